// Executors run completions and coroutines: each is a context, which one thread turns.
#pragma once

#include <weft/function.h>

namespace weft {

// Lifetime: as long as its Runtime, and as a Channel or Group of that Runtime. Code that keeps a
// pointer to it, to resume a coroutine say, must keep one of those.
class Executor {
  public:
    // post() and offload() abort the program with a message when `work` is empty. Work that throws
    // ends the program by std::terminate(): work that may throw catches, or is a coroutine
    // (Runtime::spawn, offload()).
    //
    // Runs `work` on this executor's thread, soon, never inside post(). After the end of its
    // runtime: inside post(), on the calling thread or on another one that is in post(). Work that
    // posts itself again is then dropped after a thousand times, or earlier where very much work
    // does so. A weft::Task that continues by such work is destroyed before that. So is a task that
    // other work resumes a thousand times, or that waits 100 000 times after the end. A coroutine
    // of the program's own type stays suspended, with everything that it holds, and the program
    // must destroy it. In a forked child `work` is dropped, and standard error reports that once.
    //
    // Thread: any. Cost: one allocation and, when the thread sleeps, one system call.
    virtual void post(Function<void()> work) = 0;

    // Runs `work` on a thread that may block; with RuntimeOptions::manual, and in a simulation, in
    // a turn. Throws std::system_error, and drops the work, when the system provides not a single
    // thread for it. Work that has not begun when its runtime ends is destroyed without having run:
    // work of a call at once, other work after RuntimeOptions::drain_timeout. In a forked child as
    // post(). Thread: any.
    virtual void offload(Function<void()> work) = 0;

    // The executor that this thread turns now; nullptr outside of any turn.
    static Executor* current();

  protected:
    ~Executor() = default;
};

}  // namespace weft
