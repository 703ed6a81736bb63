// Where completions and coroutines run: a context, which one thread turns.
#pragma once

#include <weft/function.h>

namespace weft {

// Lifetime: as long as its Runtime, and as a Channel, Group, Region or Buffer of that: what keeps a
// pointer to it, to resume a coroutine say, keeps one of those.
class Executor {
  public:
    // Both abort the program, and say so, when `work` is empty. Work that throws ends the program
    // by std::terminate(): what may throw catches, or is a coroutine (Runtime::spawn, offload()).
    //
    // Runs `work` on this executor's thread, soon, never inside post(). Once its runtime is gone:
    // inside post(), on the calling thread or on another one that does the same; work that posts
    // itself again a thousand times, or less often where very much does, is dropped then. A
    // weft::Task that goes on by such work is destroyed before that, and so is one that others
    // resume so a thousand times, or that waits 100 000 times after the end; a coroutine of the
    // program's own type stays suspended, with all it holds, and is its program's to destroy. In a
    // forked child of its process: dropped, and standard error says so once.
    //
    // Thread: any. Cost: one allocation and, when the thread sleeps, one system call.
    virtual void post(Function<void()> work) = 0;

    // Runs `work` on a thread that may block. Throws std::system_error, and drops the work, when
    // the system gives not a single thread for it. Work that has not begun when its runtime ends is
    // destroyed without having run: work for the sake of a call at once, other work after
    // RuntimeOptions::drain_timeout. Thread: any.
    virtual void offload(Function<void()> work) = 0;

    // The executor whose turn runs on this thread; nullptr outside of any.
    static Executor* current();

  protected:
    ~Executor() = default;
};

}  // namespace weft
