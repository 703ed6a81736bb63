// Memory that peers may read or write without code of the owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include <weft/buffer.h>
#include <weft/function.h>
#include <weft/result.h>
#include <weft/time.h>

namespace weft {

enum class Access : std::uint8_t { none = 0, read = 1, write = 2, read_write = 3 };

constexpr bool allows(Access granted, Access wanted) {
    return (static_cast<int>(granted) & static_cast<int>(wanted)) == static_cast<int>(wanted);
}

// Names a range of an exposed region: 48 bytes, which any message can carry (weft.BulkRef carries
// them in protobuf). A value: copying and dropping it has no effect. Any process that has it may
// use it until the owner closes the region. Default-made it names nothing: a transfer by it fails
// with PERMISSION_DENIED.
//
// Its range and access right bind honest peers and narrow nothing: the key is the region's, so a
// peer that changes the other fields reaches all of the region, with the region's own right. Memory
// that a peer must not see or change is exposed in a region of its own, or not at all.
struct RegionRef {
    std::uint8_t version = 0;
    Access access = Access::none;
    std::uint16_t reserved16 = 0;
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    std::uint32_t reserved32 = 0;
    std::uint64_t key = 0;
    std::uint64_t offset = 0;  // Of this range in the region.
    std::uint64_t length = 0;  // Bytes that may be accessed from there.
    std::uint64_t owner = 0;   // Incarnation of the process that exposed it.

    static constexpr std::size_t wire_bytes = 48;
    void encode(std::span<std::byte, wire_bytes> to) const;
    // Errors: PERMISSION_DENIED, naming the fault of the bytes.
    static Result<RegionRef> decode(ByteView bytes);
};
static_assert(sizeof(RegionRef) == RegionRef::wire_bytes);

// What peers may do with a region, and for how long.
struct ExposeOptions {
    Access access = Access::read;
    // After this time the region closes by itself, in a turn of any context of the runtime. Zero:
    // only close() ends it. Not negative.
    Duration lease{};
};

namespace bulk {
class Regions;
}

// Owns the exposure, not only the memory: movable, closes on destruction.
//
// A transfer to or from memory that can't be touched (read-only or unmapped, a page of a file that
// was cut or for which the disk is full) fails with FAILED_PRECONDITION; the connection and the
// processes continue. Three exceptions. Memory of Runtime::allocate() must stay mapped as it is. On
// ofi+tcp, where libfabric copies, only the first 4 MiB of an exposed range are probed, when access
// is granted: a file that is cut later, or a full disk behind those 4 MiB, ends the process by
// SIGBUS. A device (verbs, ofi+verbs) pins memory: where it can't, expose() fails with
// RESOURCE_EXHAUSTED, as does on verbs a transfer with that local memory.
//
// Empty when default-made, moved from or closed. The reference of a moved-from region names
// nothing, and close() of an empty region only calls `fenced`.
//
// Closing admits no new access, and then waits for the fence: until the transport proves that no
// peer can touch the memory any more the region keeps its Buffer, whatever happens to this handle.
// Thread: any. On another thread than its context's, close() of a runtime with one context admits
// no access from the next turn on; with several, from its return on.
class Region {
  public:
    Region() = default;
    Region(Region&& other) noexcept
        : owner_(std::move(other.owner_)), ref_(std::exchange(other.ref_, {})) {}
    Region& operator=(Region&& other) noexcept;
    ~Region() { close(); }

    RegionRef ref() const { return ref_; }
    // A part of the region. Requires: offset + bytes <= ref().length; anything else aborts the
    // program with a message.
    RegionRef ref(std::uint64_t offset, std::uint64_t bytes) const;
    // `fenced` runs when no peer can touch the memory any more, on the context's thread, possibly
    // inside close(); for an empty region, and after the end of the runtime, inside close(). It
    // does not run in a forked child, and must not throw. Where the transport does not check each
    // access (ofi+tcp, ofi+verbs, verbs) a peer in mid-transfer has 10 s to finish; then its
    // connection ends.
    //
    // The end of a runtime closes its regions and waits at most a second for their fences. Memory
    // that a peer may still write then (an sm peer that was stopped in the middle of its copy) is
    // kept until the process ends: its release and `fenced` never run, and the log reports that.
    void close(Function<void()> fenced = nullptr);
    explicit operator bool() const { return owner_ != nullptr; }

  private:
    friend class bulk::Regions;
    std::shared_ptr<bulk::Regions> owner_;
    RegionRef ref_;
};

}  // namespace weft
