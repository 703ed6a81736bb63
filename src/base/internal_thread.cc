#include "base/internal_thread.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/assert.h"

namespace weft::base {

constinit thread_local InternalThread* InternalThread::here = nullptr;

InternalThreadStart::InternalThreadStart() {
    sigset_t quiet;
    sigfillset(&quiet);
    // When a thread faults with such a signal blocked, the kernel ends the process without running
    // the program's handler.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
        sigdelset(&quiet, fault);
    }
    pthread_sigmask(SIG_BLOCK, &quiet, &before_);
    const InternalThread* const here = InternalThread::here;
    if (!here || !here->cpus) return;
    bound_ = CpuSet::of_this_thread();
    if (bound_) (void)here->cpus->apply_to_this_thread();
}

InternalThreadStart::~InternalThreadStart() {
    if (bound_) (void)bound_->apply_to_this_thread();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

InternalThread InternalThreadStart::started() const {
    if (InternalThread::here) return {InternalThread::here->blocked};
    InternalThread thread;
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
    // Maps memory as for the stack of a thread: mmap() returns EAGAIN under mlockall() only.
    void* const stack =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool is_locked = bytes != 0 && stack == MAP_FAILED && errno == EAGAIN;
    if (stack != MAP_FAILED) ::munmap(stack, bytes);
    if (!is_locked) return "ulimit -u, or the pids limit of the cgroup";
    return "this process locks its memory (mlockall), and `ulimit -l` (LimitMEMLOCK of a service) "
           "leaves no room for a stack of " +
           std::to_string(bytes) + " bytes: raise it, or lower `ulimit -s`";
}

bool bind_internal_thread(unsigned cpu) {
    if (cpu >= CpuSet::cpus_max) return false;
    WEFT_ASSERT(InternalThread::here);
    CpuSet one;
    one.add(cpu);
    InternalThread::here->cpus = CpuSet::of_this_thread();
    return one.apply_to_this_thread();
}

void restore_program_thread() noexcept {
    const InternalThread* const here = std::exchange(InternalThread::here, nullptr);
    if (!here) return;
    if (here->cpus) (void)here->cpus->apply_to_this_thread();
    pthread_sigmask(SIG_UNBLOCK, &here->blocked, nullptr);
}

}  // namespace weft::base
