// A few threads for what may block: file I/O, long computations.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <weft/function.h>

namespace weft::core {

// What run() throws when the system gives not a single thread: a limit of the process, and so
// RESOURCE_EXHAUSTED where a call is answered with it.
struct NoThread : std::system_error {
    using std::system_error::system_error;
};

class OffloadPool {
  public:
    explicit OffloadPool(unsigned threads_max) : threads_max_(threads_max ? threads_max : 1) {}
    ~OffloadPool() { stop(); }

    // Starts a thread when all are busy and fewer than the limit exist. `for_call`: for the sake of
    // a call. Throws NoThread, and drops the work. Thread: any.
    void run(Function<void()> work, bool for_call = false);
    // Destroys what has not begun. Thread: any; the destructors run there. refuse(): all of it, and
    // from here on what is given to run().
    void drop_for_calls();
    void refuse();
    // This thread is one of it.
    bool is_here() const;
    // Nothing runs and nothing waits: what was posted by its work has been posted. Thread: any.
    bool is_idle();
    // Runs what is queued, then joins. run() afterwards drops the work.
    void stop();

  private:
    void loop();
    template <class Keeps>
    void drop_unless(Keeps keeps);

    const unsigned threads_max_;
    std::mutex mutex_;
    std::condition_variable changed_;
    struct Work {
        Function<void()> run;
        bool for_call = false;
    };
    std::deque<Work> queue_;  // Bounded by the calls in handlers.
    std::vector<std::thread> threads_;
    unsigned idle_ = 0;
    bool stopping_ = false;
    bool refusing_ = false;
};

}  // namespace weft::core
