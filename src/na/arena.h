// The memory that a runtime shares with its peers: one sealed memfd, mapped once here and once by
// each sm peer, from which weft::Buffer is cut.
//
// The file is as large as it may ever grow and sparse: only touched pages cost memory, so no
// second segment, no growing and no remapping exist.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <weft/buffer.h>
#include <weft/result.h>

namespace weft::na {

// Thread: any, after creation.
class Arena : public std::enable_shared_from_this<Arena> {
  public:
    // Creates nothing until the first allocation or fd().
    // bytes_max: 0 means the machine's memory, at most 64 GiB. Rounded up to whole pages.
    static std::shared_ptr<Arena> make(std::size_t bytes_max = 0);
    virtual ~Arena() = default;

    // What the memory is for: bodies that peers sent or get, or the program's own bytes.
    enum class Use : std::uint8_t { program, peers };
    // Page aligned (2 MiB aligned from 2 MiB on). Contents unspecified, but for the program never
    // what peers left there: it did not see that, and may show it to others. The Buffer keeps the
    // arena. Errors: INVALID_ARGUMENT for 0 bytes, RESOURCE_EXHAUSTED naming what is full,
    // FAILED_PRECONDITION in a process forked from the arena's.
    virtual Result<Buffer> allocate(std::size_t bytes, Use use) = 0;
    Result<Buffer> allocate(std::size_t bytes) { return allocate(bytes, Use::program); }

    // Descriptor and length to hand to a peer. Errors: RESOURCE_EXHAUSTED when it can't be made.
    virtual Result<int> fd() = 0;
    // At the end of the runtime that hands it out. The memory stays, to be allocated and freed.
    // Requires: fd() is not called any more.
    virtual void close_fd() {}
    virtual std::size_t size() const = 0;

    // Offset of `memory` when all of it lies in the arena.
    virtual std::optional<std::uint64_t> offset_of(ByteView memory) const = 0;
    virtual std::size_t allocated_bytes() const = 0;

    // For devices that have pinned memory: the pages of these whole blocks stay what they are, also
    // when they are freed and handed out again, until release() was called as often.
    // Requires: both are multiples of hold_bytes; the range lies within size() rounded up to them.
    // False: no memory to remember that in.
    static constexpr std::size_t hold_bytes = std::size_t{2} << 20;
    virtual bool hold(std::uint64_t offset, std::size_t bytes) = 0;
    virtual void release(std::uint64_t offset, std::size_t bytes) noexcept = 0;
};

// What is said of a transfer that ends so (Code::failed_precondition), of either side's memory.
inline constexpr const char* memory_text_unwritable =
    "the owner's memory can't be written there: it is read-only, not mapped, or a page of a file "
    "that is full or was cut";
inline constexpr const char* memory_text_unreadable =
    "the owner's memory can't be read there: it is not mapped, or a page of a file that was cut";
inline constexpr const char* local_text_unwritable =
    "the local buffer can't be written: it is read-only, not mapped, or a page of a file that is "
    "full or was cut";
inline constexpr const char* local_text_unreadable =
    "the local buffer can't be read: it is not mapped, or a page of a file that was cut";

// Copy into, or out of, memory of the program, which may not be what it was (base/user_memory.h);
// that of the arena always is. False: not all of it can be written, or read. Requires: of one size.
bool write_memory(const Arena& arena, Bytes to, ByteView from) noexcept;
bool read_memory(const Arena& arena, ByteView from, Bytes to) noexcept;
// The same question of libraries that copy by themselves.
bool can_touch(const Arena& arena, ByteView memory, bool to_write) noexcept;

}  // namespace weft::na
