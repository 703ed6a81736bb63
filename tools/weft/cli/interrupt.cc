#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/internal_thread.h"

namespace weft::tool {

Interrupt::Interrupt(std::function<void()> stop) : stop_(std::move(stop)) {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    signals_.reset(::signalfd(-1, &ending, SFD_CLOEXEC));
    done_.reset(::eventfd(0, EFD_CLOEXEC));
    pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    if (!signals_ || !done_) return;  // Signals end the process at once, as by default.
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    thread_ = base::start_internal_thread([this] { loop(); });
}

Interrupt::~Interrupt() {
    if (thread_.joinable()) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto put = ::write(done_.get(), &one, sizeof one);
        thread_.join();
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    if (signal_ == 0) return;
    std::signal(signal_, SIG_DFL);
    std::raise(signal_);
}

void Interrupt::loop() {
    while (true) {
        pollfd watched[2] = {{signals_.get(), POLLIN, 0}, {done_.get(), POLLIN, 0}};
        if (::poll(watched, 2, -1) < 0) continue;
        if (watched[1].revents != 0) return;
        signalfd_siginfo info{};
        if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal_.exchange(signal) != 0) ::_exit(128 + signal);
        stop_();
    }
}

}  // namespace weft::tool
