#include "na/sm/arena_view.h"

#include <sys/stat.h>

namespace weft::na::sm {

static constexpr std::size_t arena_bytes_max = std::size_t{1} << 40;

std::byte* ArenaView::map() noexcept {
    const base::MutexLock lock(mutex_);
    if (mapping_) return mapping_.data();
    Result<Mapping> mapping = map_sparse(file_.get(), bytes_);
    if (!mapping) return nullptr;
    mapping_ = std::move(*mapping);
    // The descriptor is no longer needed: views identify the arena by its inode, which the mapping
    // keeps from being reused.
    file_.reset();
    data_.store(mapping_.data(), std::memory_order_release);
    return mapping_.data();
}

Result<std::shared_ptr<ArenaView>> ArenaViews::open(base::UniqueFd file) {
    Result<std::size_t> bytes = validate_memory_file(file.get(), "arena", 4096, arena_bytes_max);
    if (!bytes) return std::move(bytes).status();
    struct stat is {};
    if (::fstat(file.get(), &is) != 0) return fail(Code::data_loss, errno_text("the peer's arena"));
    const base::MutexLock lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.view.expired(); });
    for (const Known& known : known_) {
        if (known.device != is.st_dev || known.inode != is.st_ino) continue;
        if (std::shared_ptr<ArenaView> view = known.view.lock()) return view;
    }
    auto view = std::make_shared<ArenaView>(std::move(file), *bytes);
    known_.push_back({is.st_dev, is.st_ino, view});
    return view;
}

}  // namespace weft::na::sm
