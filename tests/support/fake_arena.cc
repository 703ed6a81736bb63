#include "support/fake_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace weft::test {

#if WEFT_HAS_ARENA

std::shared_ptr<na::Arena> make_arena() {
    return na::Arena::make(256u << 20);
}

#else

namespace {

// Never gives memory back: enough for tests.
class FakeArena final : public na::Arena {
  public:
    static constexpr std::size_t bytes_max = 256u << 20;

    ~FakeArena() override {
        if (base_ != MAP_FAILED) munmap(base_, bytes_max);
    }

    Result<Buffer> allocate(std::size_t bytes) override {
        if (bytes == 0) return fail(Code::invalid_argument, "0 bytes");
        Result<int> ready = fd();
        if (!ready) return ready.status();
        const std::size_t rounded = (bytes + 4095) & ~std::size_t{4095};
        if (rounded > bytes_max - used_) return fail(Code::resource_exhausted, "arena full");
        Bytes memory{static_cast<std::byte*>(base_) + used_, bytes};
        used_ += rounded;
        return Buffer(shared_from_this(), memory);
    }

    Result<int> fd() override {
        if (fd_) return fd_.get();
        fd_.reset(memfd_create("weft-test", MFD_CLOEXEC));
        if (!fd_ || ftruncate(fd_.get(), bytes_max) != 0) {
            return fail(Code::resource_exhausted, "memfd");
        }
        base_ = mmap(nullptr, bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
        if (base_ == MAP_FAILED) return fail(Code::resource_exhausted, "mmap");
        return fd_.get();
    }

    std::size_t size() const override { return bytes_max; }

    std::optional<std::uint64_t> offset_of(ByteView memory) const override {
        if (base_ == MAP_FAILED) return std::nullopt;
        const auto start = reinterpret_cast<std::uintptr_t>(base_);
        const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
        if (at < start || at - start > bytes_max - memory.size()) return std::nullopt;
        return at - start;
    }

    std::size_t allocated_bytes() const override { return used_; }

  private:
    base::UniqueFd fd_;
    void* base_ = MAP_FAILED;
    std::size_t used_ = 0;
};

}  // namespace

std::shared_ptr<na::Arena> make_arena() {
    return std::make_shared<FakeArena>();
}

#endif

}  // namespace weft::test
