// Runtime::stop(), as a descriptor that becomes readable.
#pragma once

#include <atomic>

#include "base/assert.h"
#include "base/unique_fd.h"

namespace weft::api {

// Thread: any.
class StopEvent {
  public:
    StopEvent();
    explicit operator bool() const { return bool(fd_); }  // False: the system gave no descriptor.
    int fd() const { return fd_.get(); }                  // Readable after stop().
    void stop();
    bool is_stopped() const { return is_stopped_; }
    // Returns when no stop() is in progress. What happened before a stop() happened before the
    // return.
    void await_stops() const;
    // No thread calls stop() any more.
    void close() {
        WEFT_DCHECK(stops_ == 0);
        fd_.reset();
    }

  private:
    base::UniqueFd fd_;
    std::atomic<int> stops_{0};  // In progress.
    std::atomic<bool> is_stopped_{false};
};

}  // namespace weft::api
