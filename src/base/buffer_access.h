// Buffers of memory that an object of weft owns: of the arena, of pools of blocks.
#pragma once

#include <memory>
#include <utility>

#include <weft/buffer.h>

namespace weft::base {

struct BufferAccess {
    // `owner` keeps `memory` alive.
    static Buffer make(std::shared_ptr<void> owner, Bytes memory) {
        return Buffer(std::move(owner), memory);
    }
};

}  // namespace weft::base
