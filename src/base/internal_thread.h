// Threads that weft starts. They block the program's signals, except signals of their own faults.
// Threads started and children forked on such a thread get the cpus of the program's thread that
// started it; forked children get its signal mask, too.
#pragma once

#include <signal.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/cpu_set.h"

namespace weft::base {

// The changes of weft to a thread that it started.
struct InternalThread {
    sigset_t blocked;              // By weft; the program's thread had these unblocked.
    std::optional<CpuSet> cpus{};  // Before bind_internal_thread().

    static constinit thread_local InternalThread* here;  // nullptr: a thread of the program.
};

// While it lives, this thread has the state that a new thread inherits: signals are blocked, and a
// binding of bind_internal_thread() is lifted. Wraps library calls that start threads.
class InternalThreadStart {
  public:
    InternalThreadStart();
    ~InternalThreadStart();
    InternalThreadStart(const InternalThreadStart&) = delete;
    InternalThreadStart& operator=(const InternalThreadStart&) = delete;

    InternalThread started() const;

  private:
    sigset_t before_;
    std::optional<CpuSet> bound_;
};

// Throws std::system_error when the system gives no thread.
template <class Body>
std::thread start_internal_thread(Body&& body) {
    const InternalThreadStart start;
    return std::thread([own = start.started(), body = std::forward<Body>(body)]() mutable {
        InternalThread::here = &own;
        body();
        InternalThread::here = nullptr;
    });
}

// The limits that may be exhausted, after start_internal_thread() threw.
std::string thread_limits_text();

// Binds this thread. False: it can't run on that cpu. Requires: a thread of
// start_internal_thread().
bool bind_internal_thread(unsigned cpu);

// Undoes the changes of weft to the only thread of a forked child. Takes no lock.
void restore_program_thread() noexcept;

}  // namespace weft::base
