// CRC32C (Castagnoli; RFC 3720), by the processor's instructions where it has them.
#pragma once

#include <cstdint>

#include <weft/bytes.h>

namespace storage {

// Of `bytes` appended to what `so_far` is the checksum of; 0 for nothing.
std::uint32_t crc32c(std::uint32_t so_far, weft::ByteView bytes);

}  // namespace storage
