#include "api/run_signals.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/own_descriptor.h"

namespace weft::api {
namespace {

struct AllRuns {
    std::mutex mutex;
    std::vector<RunSignals*> runs;
};

}  // namespace

RunSignals::RunSignals(int state_signal) : state_signal_(state_signal) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, state_signal}) {
        if (signal != 0) sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    signals_ = base::UniqueFd::close_on_fork(
        [&] { return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK); });
    forwarded_ =
        base::UniqueFd::close_on_fork([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    auto& all = base::per_process<AllRuns>();
    const std::lock_guard lock(all.mutex);
    all.runs.push_back(this);
}

RunSignals::~RunSignals() {
    if (is_usable()) forward();  // Consumes late signals: these must not end the program.
    {
        auto& all = base::per_process<AllRuns>();
        const std::lock_guard lock(all.mutex);
        std::erase(all.runs, this);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

RunSignals::Received RunSignals::take() {
    forward();
    std::uint64_t forwarded = 0;
    (void)base::check_open(read(forwarded_.get(), &forwarded, sizeof forwarded));
    return {terminate_.exchange(false), report_state_.exchange(false)};
}

void RunSignals::forward() {
    signalfd_siginfo info;
    while (base::check_open(read(signals_.get(), &info, sizeof info)) > 0) {
        auto& all = base::per_process<AllRuns>();
        const std::lock_guard lock(all.mutex);
        for (RunSignals* run : all.runs) run->record(static_cast<int>(info.ssi_signo));
    }
}

void RunSignals::record(int signal) {
    if (signal == SIGINT || signal == SIGTERM) {
        terminate_ = true;
    } else if (signal == state_signal_) {
        report_state_ = true;
    } else {
        return;
    }
    const std::uint64_t one = 1;
    (void)base::check_open(write(forwarded_.get(), &one, sizeof one));
}

}  // namespace weft::api
