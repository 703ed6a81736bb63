#include "base/quiet_thread.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>

namespace weft::base {

constinit thread_local QuietThread* QuietThread::here = nullptr;

QuietStart::QuietStart() {
    sigset_t quiet;
    sigfillset(&quiet);
    // The kernel ends a process whose thread faults with such a signal blocked: the program's
    // handler would not run.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
        sigdelset(&quiet, fault);
    }
    pthread_sigmask(SIG_BLOCK, &quiet, &before_);
    const QuietThread* const here = QuietThread::here;
    if (!here || !here->cpus) return;
    bound_ = CpuSet::here();
    if (bound_) (void)here->cpus->run_here();
}

QuietStart::~QuietStart() {
    if (bound_) (void)bound_->run_here();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

QuietThread QuietStart::started() const {
    if (QuietThread::here) return {QuietThread::here->blocked};
    QuietThread thread;
    sigemptyset(&thread.blocked);
    for (int signal = 1; signal < NSIG; ++signal) {
        if (sigismember(&before_, signal) == 0) sigaddset(&thread.blocked, signal);
    }
    return thread;
}

std::string thread_limits_text() {
    pthread_attr_t threads;
    std::size_t bytes = 0;
    if (::pthread_getattr_default_np(&threads) == 0) {
        ::pthread_attr_getstacksize(&threads, &bytes);
        ::pthread_attr_destroy(&threads);
    }
    // As the stack of a thread is had: mmap() says EAGAIN under mlockall() only.
    void* const stack =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool is_locked = bytes != 0 && stack == MAP_FAILED && errno == EAGAIN;
    if (stack != MAP_FAILED) ::munmap(stack, bytes);
    if (!is_locked) return "ulimit -u, or the pids limit of the cgroup";
    return "this process locks its memory (mlockall), and `ulimit -l` (LimitMEMLOCK of a service) "
           "leaves no room for a stack of " +
           std::to_string(bytes) + " bytes: raise it, or lower `ulimit -s`";
}

bool bind_quiet_thread(unsigned cpu) {
    if (cpu >= CpuSet::most) return false;
    CpuSet one;
    one.add(cpu);
    QuietThread::here->cpus = CpuSet::here();
    return one.run_here();
}

void become_thread_of_program() noexcept {
    const QuietThread* const here = std::exchange(QuietThread::here, nullptr);
    if (!here) return;
    if (here->cpus) (void)here->cpus->run_here();
    pthread_sigmask(SIG_UNBLOCK, &here->blocked, nullptr);
}

}  // namespace weft::base
