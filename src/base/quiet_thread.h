// Threads that weft starts: they take no signals of the program's, except those of their own
// faults. Threads started there, and children forked there, have the cpus of the program's thread
// that began all this; forked children have its signal mask, too.
#pragma once

#include <signal.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/cpu_set.h"

namespace weft::base {

// What weft changed of a thread that it started.
struct QuietThread {
    sigset_t blocked;              // By weft; the thread of the program had these unblocked.
    std::optional<CpuSet> cpus{};  // Before bind_quiet_thread().

    static constinit thread_local QuietThread* here;  // nullptr: a thread of the program.
};

// While it lives this thread is as one that it starts shall be: signals are blocked, and a binding
// of bind_quiet_thread() is lifted. Around whatever starts threads in a library.
class QuietStart {
  public:
    QuietStart();
    ~QuietStart();
    QuietStart(const QuietStart&) = delete;
    QuietStart& operator=(const QuietStart&) = delete;

    QuietThread started() const;

  private:
    sigset_t before_;
    std::optional<CpuSet> bound_;
};

// Throws std::system_error when the system gives no thread.
template <class Body>
std::thread start_quiet_thread(Body&& body) {
    const QuietStart start;
    return std::thread([own = start.started(), body = std::forward<Body>(body)]() mutable {
        QuietThread::here = &own;
        body();
        QuietThread::here = nullptr;
    });
}

// When start_quiet_thread() has just thrown: the limits that may be met.
std::string thread_limits_text();

// Binds this thread, which start_quiet_thread() started. False: it can't run on that cpu.
bool bind_quiet_thread(unsigned cpu);

// In a forked child, whose only thread this is: undoes what weft changed of it. Takes no lock.
void become_thread_of_program() noexcept;

}  // namespace weft::base
