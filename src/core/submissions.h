// The work that other threads give to a context, and the memory that it holds meanwhile.
#pragma once

#include <atomic>
#include <memory>

#include <weft/function.h>
#include <weft/status.h>

#include "base/assert.h"
#include "base/mpsc_queue.h"

namespace weft::core {

struct Submission : base::MpscNode {
    // Runs the work, or drops it without running. The submission may be gone, or in another queue,
    // when this returns.
    enum class Use : std::uint8_t { run, drop };
    void (*finish)(Submission& self, Use use) = nullptr;
    std::uint32_t depth = 0;   // Length of the chain of after-end posts.
    bool is_end_work = false;  // Queued at the end, or posted by such work.
};

// One that owns itself.
struct PostedWork final : Submission {
    explicit PostedWork(Function<void()> with) : work(std::move(with)) {
        finish = [](Submission& self, Use use) {
            const std::unique_ptr<PostedWork> own(static_cast<PostedWork*>(&self));
            if (use == Use::run) own->work();
        };
    }
    Function<void()> work;
};

// Thread: any, except for pop() and empty(), which are for the one that runs the work.
class Submissions {
  public:
    explicit Submissions(std::size_t bytes_max) : bytes_max_(bytes_max) {}
    ~Submissions() { clear(); }
    void clear();  // Drops all work.

    // In place until it is popped.
    void push(Submission& submission) {
        WEFT_DCHECK(submission.finish);
        queue_.push(submission);
    }
    // nullptr: none waits, or a producer is between the two steps of a push. The caller finishes
    // it.
    Submission* pop() { return static_cast<Submission*>(queue_.pop()); }
    bool empty() const { return queue_.empty(); }

    // From here on a submission runs as after-end work.
    void close() { closed_.store(true, std::memory_order_seq_cst); }
    // In a forked child, where no other thread exists.
    void close_forked() noexcept { closed_.store(true, std::memory_order_relaxed); }
    bool is_closed() const { return closed_.load(std::memory_order_relaxed); }
    // After push(): whether the push may have come after close().
    bool is_closed_by_now() const { return closed_.load(std::memory_order_seq_cst); }

    // Reserves `bytes` until release(). False: no room now.
    bool admit(std::size_t bytes);
    void release(std::size_t bytes) {
        WEFT_DCHECK(bytes_.load(std::memory_order_relaxed) >= bytes);
        bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    std::size_t bytes_max() const { return bytes_max_; }
    // INVALID_ARGUMENT for a size that is never admitted, else RESOURCE_EXHAUSTED.
    Status why_not_admitted(std::size_t bytes) const;

  private:
    const std::size_t bytes_max_;
    base::MpscQueue queue_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<bool> closed_{false};
};

}  // namespace weft::core
