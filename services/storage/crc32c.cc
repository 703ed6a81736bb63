#include "crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace storage {

std::uint32_t crc32c(std::uint32_t so_far, weft::ByteView bytes) {
    constexpr std::size_t piece_max = 1u << 30;  // ISA-L counts in int.
    std::uint32_t crc = ~so_far;
    while (!bytes.empty()) {
        const std::size_t piece = std::min(bytes.size(), piece_max);
        // ISA-L only reads, but its parameter is not const.
        auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
        crc = crc32_iscsi(data, static_cast<int>(piece), crc);
        bytes = bytes.subspan(piece);
    }
    return ~crc;
}

}  // namespace storage
