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

    // Page aligned (2 MiB aligned from 2 MiB on). Contents unspecified. The Buffer keeps the arena.
    // Errors: INVALID_ARGUMENT for 0 bytes, RESOURCE_EXHAUSTED naming what is full,
    // FAILED_PRECONDITION in a process forked from the arena's.
    virtual Result<Buffer> allocate(std::size_t bytes) = 0;

    // Descriptor and length to hand to a peer. Errors: RESOURCE_EXHAUSTED when it can't be made.
    virtual Result<int> fd() = 0;
    virtual std::size_t size() const = 0;

    // Offset of `memory` when all of it lies in the arena.
    virtual std::optional<std::uint64_t> offset_of(ByteView memory) const = 0;
    virtual std::size_t allocated_bytes() const = 0;
};

}  // namespace weft::na
