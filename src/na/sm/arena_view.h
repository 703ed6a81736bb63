// Peers' arenas, each mapped once in this process, however many connections share it.
#pragma once

#include <memory>
#include <vector>

#include "na/memory_file.h"

namespace weft::na::sm {

class ArenaView {
  public:
    ArenaView(base::UniqueFd file, std::size_t bytes) : file_(std::move(file)), bytes_(bytes) {}

    std::size_t size() const { return bytes_; }
    // Maps it at the first use: many connections never need it. nullptr: no address space left.
    std::byte* data() noexcept {
        if (!mapping_) [[unlikely]] {
            map();
        }
        return mapping_.data();
    }

  private:
    friend class ArenaViews;
    void map() noexcept;

    base::UniqueFd file_;
    std::size_t bytes_;
    Mapping mapping_;
};

class ArenaViews {
  public:
    // The view of the arena in `file`, new or shared. Errors: DATA_LOSS.
    Result<std::shared_ptr<ArenaView>> open(base::UniqueFd file);

  private:
    struct Known {
        std::uint64_t device, inode;
        std::weak_ptr<ArenaView> view;
    };
    std::vector<Known> known_;
};

}  // namespace weft::na::sm
