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
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, state_signal}) {
        if (signal != 0) sigaddset(&wanted, signal);
    }
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    signals_ = base::UniqueFd::closed_in_children(
        [&] { return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK); });
    passed_ =
        base::UniqueFd::closed_in_children([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    auto& all = base::per_process<AllRuns>();
    const std::lock_guard lock(all.mutex);
    all.runs.push_back(this);
}

RunSignals::~RunSignals() {
    if (is_usable()) pass_on();  // One that came meanwhile was heard; it must not end the program.
    {
        auto& all = base::per_process<AllRuns>();
        const std::lock_guard lock(all.mutex);
        std::erase(all.runs, this);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

RunSignals::Taken RunSignals::take() {
    pass_on();
    std::uint64_t passed = 0;
    (void)base::check_open(read(passed_.get(), &passed, sizeof passed));
    return {ends_.exchange(false), asks_.exchange(false)};
}

void RunSignals::pass_on() {
    signalfd_siginfo info;
    while (base::check_open(read(signals_.get(), &info, sizeof info)) > 0) {
        auto& all = base::per_process<AllRuns>();
        const std::lock_guard lock(all.mutex);
        for (RunSignals* run : all.runs) run->note(static_cast<int>(info.ssi_signo));
    }
}

void RunSignals::note(int signal) {
    if (signal == SIGINT || signal == SIGTERM) {
        ends_ = true;
    } else if (signal == state_signal_) {
        asks_ = true;
    } else {
        return;
    }
    const std::uint64_t one = 1;
    (void)base::check_open(write(passed_.get(), &one, sizeof one));
}

}  // namespace weft::api
