// Own design: a first-fit free list by address, and a list of those free ranges that still hold
// memory pages ("warm"). Allocation searches the warm ranges first, so that a steady state of
// allocating and freeing touches no new page; warm memory beyond the budget is returned to the
// kernel.
#include "na/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/buffer_access.h"
#include "base/unique_fd.h"
#include "base/user_memory.h"
#include "na/memory_file.h"

namespace weft::na {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t large_bytes = std::size_t{2} << 20;  // Of a huge page.
static_assert(large_bytes == Arena::hold_bytes);
constexpr std::size_t fallback_bytes_min = std::size_t{64} << 20;
constexpr std::size_t default_bytes_max = std::size_t{64} << 30;
constexpr std::size_t warm_bytes_max = std::size_t{256} << 20;  // Freed, yet kept.

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

std::size_t default_bytes() {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const std::size_t machine = pages > 0 ? static_cast<std::size_t>(pages) * page_bytes : 0;
    return std::clamp(machine, fallback_bytes_min, default_bytes_max);
}

// Disjoint, never adjacent ranges of offsets.
class Ranges {
  public:
    std::size_t bytes() const { return bytes_; }
    const std::map<std::size_t, std::size_t>& all() const { return ranges_; }

    void add(std::size_t offset, std::size_t length) {
        WEFT_DCHECK(length != 0);
        bytes_ += length;
        auto next = ranges_.lower_bound(offset);
        if (next != ranges_.end() && offset + length == next->first) {
            length += next->second;
            next = ranges_.erase(next);
        }
        if (next != ranges_.begin()) {
            auto prev = std::prev(next);
            if (prev->first + prev->second == offset) {
                prev->second += length;
                return;
            }
        }
        ranges_.emplace_hint(next, offset, length);
    }

    // Removes the parts of the range that are in the set.
    void remove(std::size_t offset, std::size_t length) {
        const std::size_t end = offset + length;
        auto at = ranges_.upper_bound(offset);
        if (at != ranges_.begin()) --at;
        while (at != ranges_.end() && at->first < end) {
            const std::size_t first = at->first;
            const std::size_t last = first + at->second;
            if (last <= offset) {
                ++at;
                continue;
            }
            at = ranges_.erase(at);
            bytes_ -= last - first;
            if (first < offset) put_back(first, offset);
            if (last > end) put_back(end, last);
        }
    }

    // The parts of the range that are in the set.
    std::vector<std::pair<std::size_t, std::size_t>> within(std::size_t offset,
                                                            std::size_t length) const {
        std::vector<std::pair<std::size_t, std::size_t>> parts;
        const std::size_t end = offset + length;
        auto at = ranges_.upper_bound(offset);
        if (at != ranges_.begin()) --at;
        for (; at != ranges_.end() && at->first < end; ++at) {
            const std::size_t first = std::max(at->first, offset);
            const std::size_t last = std::min(at->first + at->second, end);
            if (first < last) parts.emplace_back(first, last - first);
        }
        return parts;
    }

    // Lowest aligned place for `length` bytes.
    std::optional<std::size_t> find(std::size_t length, std::size_t alignment) const {
        for (const auto& [offset, bytes] : ranges_) {
            const std::size_t at = round_up(offset, alignment);
            if (at - offset <= bytes && length <= bytes - (at - offset)) return at;
        }
        return std::nullopt;
    }

  private:
    void put_back(std::size_t first, std::size_t last) {
        ranges_.emplace(first, last - first);
        bytes_ += last - first;
    }

    std::map<std::size_t, std::size_t> ranges_;
    std::size_t bytes_ = 0;
};

class MemoryArena final : public Arena {
  public:
    explicit MemoryArena(std::size_t bytes_max)
        : wanted_(round_up(bytes_max ? bytes_max : default_bytes(), page_bytes)), bytes_(wanted_) {}

    ~MemoryArena() override {
        WEFT_DCHECK(allocated_ == 0 || !is_owner());
        if (reserved_) ::munmap(reserved_, reserved_bytes_);
    }

    Result<Buffer> allocate(std::size_t bytes, Use use) override;
    Result<int> fd() override;
    void close_fd() override;
    std::size_t size() const override;
    std::optional<std::uint64_t> offset_of(ByteView memory) const override;
    std::size_t allocated_bytes() const override;
    bool hold(std::uint64_t offset, std::size_t bytes) override;
    void release(std::uint64_t offset, std::size_t bytes) noexcept override;

  private:
    Status create();
    Status try_create(std::size_t bytes);
    void give_back(std::size_t offset, std::size_t length, Use use);
    void cool();
    void cool_within(std::size_t offset, std::size_t length, std::size_t excess);
    bool drop_pages(std::size_t offset, std::size_t length);
    bool is_held(std::size_t block) const { return block < holds_.size() && holds_[block] != 0; }
    const char* limits() const {
        return bytes_ < wanted_ ? " (made smaller for a limit on address space, `ulimit -v`)"
                                : " (RuntimeOptions::arena_bytes_max, WEFT_ARENA)";
    }
    // A forked child has a copy of the lists and shares the memory: it must change neither.
    bool is_owner() const { return owner_.is_this(); }

    mutable std::mutex mutex_;

    // The memory; fixed by create().
    const std::size_t wanted_;
    std::atomic<std::size_t> bytes_;  // Less where the address space is limited.
    base::UniqueFd fd_;
    std::atomic<std::byte*> base_ = nullptr;  // 2 MiB aligned; set last, and never changed.
    void* reserved_ = nullptr;
    std::size_t reserved_bytes_ = 0;
    const base::OwnerProcess owner_;

    // What is allocated, and what the rest of the memory holds.
    Ranges free_;
    Ranges warm_;                       // Part of free_ with pages that may hold memory.
    Ranges of_peers_;                   // Part of free_ that may hold bytes that peers sent or got.
    std::vector<std::uint16_t> holds_;  // By blocks of large_bytes; empty until the first hold().
    std::size_t allocated_ = 0;
};

Status failed(const char* what, std::size_t bytes) {
    return fail(Code::resource_exhausted,
                mapping_text("arena of " + std::to_string(bytes) + " bytes: " + what));
}

Status MemoryArena::try_create(std::size_t bytes) {
    Result<base::UniqueFd> fd = make_memory_file("weft-arena", bytes);
    if (!fd) return std::move(fd).status();
    if (Status status = seal(*fd, FutureWrite::allowed); !status.ok()) return status;
    // Reserved a little larger, so that 2 MiB aligned offsets are 2 MiB aligned addresses.
    const std::size_t reserve = bytes + large_bytes;
    void* at =
        ::mmap(nullptr, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return failed("reserving addresses", bytes);
    auto* base =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(at), large_bytes));
    if (Status status = map_sparse_at(base, fd->get(), bytes); !status.ok()) {
        ::munmap(at, reserve);
        return status;
    }
    fd_ = std::move(*fd);
    reserved_ = at;
    reserved_bytes_ = reserve;
    bytes_ = bytes;
    base_.store(base, std::memory_order_release);
    free_.add(0, bytes);
    return {};
}

// Takes only a part of a limit on address space (ulimit -v): peers' arenas are mapped as well.
static std::size_t fair_bytes(std::size_t wanted) {
    constexpr std::size_t least = std::size_t{128} << 20;
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
    return std::min(wanted, round_up(std::max<std::size_t>(limit.rlim_cur / 8, least), page_bytes));
}

// Halves the size as long as a limit on address space (ulimit -v, cgroups, valgrind) refuses it.
Status MemoryArena::create() {
    if (base_) return {};
    const std::size_t most = fair_bytes(bytes_);
    Status status = try_create(most);
    for (std::size_t bytes = most / 2; !status.ok() && bytes >= fallback_bytes_min; bytes /= 2) {
        status = try_create(round_up(bytes, page_bytes));
    }
    return status;
}

Result<Buffer> MemoryArena::allocate(std::size_t bytes, Use use) {
    if (bytes == 0)
        return fail(Code::invalid_argument, "Runtime::allocate() of 0 bytes: expected at least 1");
    if (!is_owner()) return fail(Code::failed_precondition, base::forked_text);
    std::unique_lock lock(mutex_);
    if (Status status = create(); !status.ok()) return status;
    if (bytes > bytes_) {
        return fail(Code::resource_exhausted, "Runtime::allocate() of " + std::to_string(bytes) +
                                                  " bytes: the arena holds " +
                                                  std::to_string(bytes_) + " in all" + limits());
    }
    const std::size_t length = round_up(bytes, page_bytes);
    const std::size_t alignment = bytes >= large_bytes ? large_bytes : page_bytes;
    std::optional<std::size_t> offset = warm_.find(length, alignment);
    if (!offset) offset = free_.find(length, alignment);
    if (!offset) {
        return fail(Code::resource_exhausted,
                    "Runtime::allocate() of " + std::to_string(bytes) + " bytes: no room, " +
                        std::to_string(allocated_) + " of the arena's " + std::to_string(bytes_) +
                        " bytes are allocated" + limits() + "; drop a Buffer");
    }
    const auto foreign = of_peers_.within(*offset, length);
    free_.remove(*offset, length);
    warm_.remove(*offset, length);
    of_peers_.remove(*offset, length);
    allocated_ += length;
    lock.unlock();
    if (use == Use::program) {
        // Clears these parts only: the other pages may hold no memory yet.
        for (const auto& [at, bytes_there] : foreign) std::memset(base_ + at, 0, bytes_there);
    }
    auto self = std::static_pointer_cast<MemoryArena>(shared_from_this());
    const auto give_back = [self = std::move(self), at = *offset, length, use](void*) {
        self->give_back(at, length, use);
    };
    std::shared_ptr<void> owner(base_ + *offset, give_back);
    return base::BufferAccess::make(std::move(owner), Bytes(base_ + *offset, bytes));
}

void MemoryArena::give_back(std::size_t offset, std::size_t length, Use use) {
    if (!is_owner()) return;
    std::lock_guard lock(mutex_);
    WEFT_ASSERT(allocated_ >= length);
    allocated_ -= length;
    free_.add(offset, length);
    warm_.add(offset, length);
    if (use == Use::peers) of_peers_.add(offset, length);
    cool();
}

// Returns the highest warm ranges to the kernel until the rest fits the budget: allocation fills
// from below. Held blocks stay, even beyond the budget.
void MemoryArena::cool() {
    if (warm_.bytes() <= warm_bytes_max) return;
    std::size_t below = bytes_;
    while (warm_.bytes() > warm_bytes_max) {
        auto range = warm_.all().lower_bound(below);
        if (range == warm_.all().begin()) return;  // All that is left is held.
        --range;
        below = range->first;
        cool_within(range->first, range->second,
                    round_up(warm_.bytes() - warm_bytes_max, large_bytes));
    }
}

// After close_fd(), locked pages (mlockall) stay.
bool MemoryArena::drop_pages(std::size_t offset, std::size_t length) {
    if (!fd_) return ::madvise(base_.load() + offset, length, MADV_REMOVE) == 0;
    return ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(length)) == 0;
}

// Returns up to `excess` bytes of a warm range to the kernel, from its end.
void MemoryArena::cool_within(std::size_t offset, std::size_t length, std::size_t excess) {
    std::size_t end = offset + length;
    while (end > offset && excess > 0) {
        if (is_held((end - 1) / large_bytes)) {
            end = std::max(offset, (end - 1) / large_bytes * large_bytes);
            continue;
        }
        // One call for a contiguous part that is not held.
        std::size_t at = end;
        while (at > offset && end - at < excess && !is_held((at - 1) / large_bytes)) {
            at = std::max(offset, (at - 1) / large_bytes * large_bytes);
        }
        at = std::max(at, end - std::min(end, excess));
        // After a failure the pages stay in memory, which costs only memory.
        const bool are_dropped = drop_pages(at, end - at);
        warm_.remove(at, end - at);
        if (are_dropped) of_peers_.remove(at, end - at);
        excess -= end - at;
        end = at;
    }
}

bool MemoryArena::hold(std::uint64_t offset, std::size_t bytes) {
    WEFT_DCHECK(offset % large_bytes == 0 && bytes % large_bytes == 0);
    std::lock_guard lock(mutex_);
    try {
        if (holds_.empty()) holds_.resize(round_up(bytes_, large_bytes) / large_bytes);
    } catch (const std::bad_alloc&) {
        return false;
    }
    for (std::size_t block = offset / large_bytes; block < (offset + bytes) / large_bytes; ++block)
        ++holds_[block];
    return true;
}

void MemoryArena::release(std::uint64_t offset, std::size_t bytes) noexcept {
    if (!is_owner()) return;
    std::lock_guard lock(mutex_);
    for (std::size_t block = offset / large_bytes; block < (offset + bytes) / large_bytes;
         ++block) {
        WEFT_ASSERT(holds_[block] != 0);
        --holds_[block];
    }
}

Result<int> MemoryArena::fd() {
    std::lock_guard lock(mutex_);
    if (Status status = create(); !status.ok()) return status;
    return fd_.get();
}

void MemoryArena::close_fd() {
    std::lock_guard lock(mutex_);
    fd_.reset();
}

std::size_t MemoryArena::size() const { return bytes_.load(std::memory_order_relaxed); }

std::optional<std::uint64_t> MemoryArena::offset_of(ByteView memory) const {
    const auto base = reinterpret_cast<std::uintptr_t>(base_.load(std::memory_order_acquire));
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::size_t bytes = size();  // Set before the base.
    if (base == 0 || first < base || first - base > bytes ||
        memory.size() > bytes - (first - base)) {
        return std::nullopt;
    }
    return first - base;
}

std::size_t MemoryArena::allocated_bytes() const {
    std::lock_guard lock(mutex_);
    return allocated_;
}

}  // namespace

std::shared_ptr<Arena> Arena::make(std::size_t bytes_max) {
    return std::make_shared<MemoryArena>(bytes_max);
}

bool write_memory(const Arena& arena, Bytes to, ByteView from) noexcept {
    if (!arena.offset_of(to)) return base::copy_to_user(to, from);
    std::memcpy(to.data(), from.data(), from.size());
    return true;
}

bool read_memory(const Arena& arena, ByteView from, Bytes to) noexcept {
    if (!arena.offset_of(from)) return base::copy_from_user(from, to);
    std::memcpy(to.data(), from.data(), from.size());
    return true;
}

bool is_accessible(const Arena& arena, ByteView memory, bool to_write) noexcept {
    return arena.offset_of(memory) || base::is_accessible(memory, to_write);
}

}  // namespace weft::na
