// A few threads for work that may block: file I/O, long computations.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <system_error>
#include <thread>
#include <vector>

#include <weft/function.h>

#include "base/thread_annotations.h"

namespace weft::core {

// Thrown by run() when the system gives no thread at all. This is a limit of the process, so a call
// that fails with it gets RESOURCE_EXHAUSTED.
struct NoThread : std::system_error {
    using std::system_error::system_error;
};

class OffloadPool {
  public:
    explicit OffloadPool(unsigned threads_max) : threads_max_(threads_max ? threads_max : 1) {}
    ~OffloadPool() { stop(); }

    // Starts a thread when all are busy and fewer than the limit exist. `for_call`: the work
    // belongs to a call. Throws NoThread, and drops the work. Thread: any.
    void run(Function<void()> work, bool for_call = false);
    // Destroys work that has not begun: drop_for_calls() that of calls, reject_all() all of it, and
    // all work given to run() later. Thread: any; the destructors run there.
    void drop_for_calls();
    void reject_all();
    // Whether this thread belongs to the pool.
    bool is_pool_thread() const;
    // Whether no work runs or waits: then all posts by its work are done. Thread: any.
    bool is_idle();
    // Runs the queued work, then joins. run() afterwards drops the work.
    void stop();

  private:
    void loop();
    template <class Predicate>
    void drop_unless(Predicate is_kept);

    const unsigned threads_max_;
    base::Mutex mutex_;
    std::condition_variable changed_;
    struct Work {
        Function<void()> run;
        bool for_call = false;
    };
    std::deque<Work> queue_ WEFT_GUARDED_BY(mutex_);  // Bounded by the calls in handlers.
    std::vector<std::thread> threads_ WEFT_GUARDED_BY(mutex_);
    unsigned idle_ WEFT_GUARDED_BY(mutex_) = 0;
    bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
    bool rejecting_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::core
