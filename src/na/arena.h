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

    // The use of memory: the program's own bytes, or bodies that peers sent or get.
    enum class Use : std::uint8_t { program, peers };
    // Page aligned (2 MiB aligned from 2 MiB on). Contents unspecified; memory for the program
    // never holds bytes that peers left there, since the program could expose them to other peers.
    // The Buffer keeps the arena alive. Errors: INVALID_ARGUMENT for 0 bytes, RESOURCE_EXHAUSTED
    // naming what is full, FAILED_PRECONDITION in a process forked from the arena's.
    virtual Result<Buffer> allocate(std::size_t bytes, Use use) = 0;
    Result<Buffer> allocate(std::size_t bytes) { return allocate(bytes, Use::program); }

    // Descriptor and length to hand to a peer. Errors: RESOURCE_EXHAUSTED when it can't be made.
    virtual Result<int> fd() = 0;
    // Call at the end of the runtime that hands out the descriptor. Memory can still be allocated
    // and freed.
    // Requires: fd() is not called any more.
    virtual void close_fd() {}
    // The limit, before the first allocation or fd(). Takes no lock; nor does offset_of().
    virtual std::size_t size() const = 0;

    // Offset of `memory` when all of it lies in the arena.
    virtual std::optional<std::uint64_t> offset_of(ByteView memory) const = 0;
    virtual std::size_t allocated_bytes() const = 0;

    // For devices that have pinned memory: the pages of these whole blocks stay in place, also when
    // the range is freed and allocated again, until release() has been called as often.
    // Requires: both are multiples of hold_bytes; the range lies within size() rounded up to them.
    // False: no memory for the table of holds.
    static constexpr std::size_t hold_bytes = std::size_t{2} << 20;
    virtual bool hold(std::uint64_t offset, std::size_t bytes) = 0;
    virtual void release(std::uint64_t offset, std::size_t bytes) noexcept = 0;
};

// Error texts of transfers that fail with Code::failed_precondition, for either side's memory.
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

// Copy into, or out of, memory of the program, which may have been unmapped or made read-only
// (base/user_memory.h); memory of the arena is always accessible. False: not all of the program's
// memory can be written, or read. Requires: equal sizes.
bool write_memory(const Arena& arena, Bytes to, ByteView from) noexcept;
bool read_memory(const Arena& arena, ByteView from, Bytes to) noexcept;
// The same check, for memory that a library copies by itself.
bool is_accessible(const Arena& arena, ByteView memory, bool to_write) noexcept;

}  // namespace weft::na
