// CRC32C (Castagnoli; RFC 3720), by the processor's instructions where it has them.
#pragma once

#include <cstdint>

#include <weft/bytes.h>

namespace storage {

// `so_far`: the checksum of the bytes before `bytes`, 0 if none. Returns that of both together.
std::uint32_t crc32c(std::uint32_t so_far, weft::ByteView bytes);

}  // namespace storage
