// Peers' arenas, each mapped once for a runtime, however many contexts and connections share it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/thread_annotations.h"
#include "na/memory_file.h"

namespace weft::na::sm {

// Thread: any.
class ArenaView {
  public:
    ArenaView(base::UniqueFd file, std::size_t bytes) : bytes_(bytes), file_(std::move(file)) {}

    std::size_t size() const { return bytes_; }
    // Maps it at the first use: many connections never need it. nullptr: no address space left.
    std::byte* data() noexcept {
        std::byte* const at = data_.load(std::memory_order_acquire);
        return at ? at : map();
    }

  private:
    friend class ArenaViews;
    std::byte* map() noexcept WEFT_EXCLUDES(mutex_);

    const std::size_t bytes_;
    std::atomic<std::byte*> data_{nullptr};
    base::Mutex mutex_;
    base::UniqueFd file_ WEFT_GUARDED_BY(mutex_);
    Mapping mapping_ WEFT_GUARDED_BY(mutex_);
};

// Thread: any.
class ArenaViews {
  public:
    // The view of the arena in `file`, new or shared. Errors: DATA_LOSS.
    Result<std::shared_ptr<ArenaView>> open(base::UniqueFd file) WEFT_EXCLUDES(mutex_);

  private:
    struct Known {
        std::uint64_t device, inode;
        std::weak_ptr<ArenaView> view;
    };
    base::Mutex mutex_;
    std::vector<Known> known_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::na::sm
