// Bounds of transfers, and of the memory that they use on either side.
#pragma once

#include <cstddef>
#include <cstdint>

#include <weft/time.h>

namespace storage {

// Payload of one call. From 1 MiB on, the calls and system calls of a chunk cost less than 1 % of
// it.
inline constexpr std::size_t chunk_bytes = 4u << 20;
// Chunks of one transfer that are read, in flight or written at a time.
inline constexpr std::size_t window = 8;
// Payload memory of a client: 32 MiB. Of a server: 32 MiB for all transfers, 32 MiB for extents.
inline constexpr std::size_t server_chunks = 8;
inline constexpr std::size_t extent_bytes_max = 16u << 20;
inline constexpr std::size_t extents_bytes_max = 32u << 20;
inline constexpr std::size_t extents_client_bytes_max = extents_bytes_max / 2;
static_assert(extent_bytes_max <= extents_client_bytes_max);
// Each extent is a region; a runtime has a few thousand regions for all purposes.
inline constexpr std::size_t extents_max = 512;
inline constexpr std::size_t extents_client_max = extents_max / 2;

// Uploads, and as many downloads.
inline constexpr std::size_t transfers_max = 1024;
inline constexpr std::size_t transfers_client_max = transfers_max / 4;
inline constexpr std::size_t settings_max = 4096;
// Limits of a listing that a client receives: objects, bytes of their names, time.
inline constexpr std::size_t listed_max = 1u << 20;
inline constexpr std::size_t listed_name_bytes_max = 256u << 20;
inline constexpr weft::Duration listing_time_max = std::chrono::minutes(10);
inline constexpr std::size_t setting_key_bytes_max = 256;
inline constexpr std::size_t setting_value_bytes_max = 4096;

inline constexpr weft::Duration lease_default = std::chrono::seconds(5);
inline constexpr weft::Duration lease_max = std::chrono::seconds(60);
// A chunk that takes longer makes no progress; a commit waits for the disk.
inline constexpr weft::Duration chunk_timeout = std::chrono::seconds(30);
// The longest timeout of a chunk that a server accepts: the chunk holds a buffer for that time.
inline constexpr weft::Duration chunk_time_max = std::chrono::seconds(60);
inline constexpr weft::Duration commit_timeout = std::chrono::seconds(120);

}  // namespace storage
