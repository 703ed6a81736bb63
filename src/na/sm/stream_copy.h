// A copy to memory that another processor reads next.
//
// An ordinary store first fetches the cache line from the processor that read it last, one line
// after the other; if the two share no cache, that costs more than all else of a large message. A
// streaming store fetches nothing: whole lines are written to memory, and the reader loads them
// from there in order, ahead of use. docs/performance.md has the figures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::na::sm {

// In this range streaming is no slower if the two processors share a cache either. Longer messages
// are read faster from that cache than from memory.
inline constexpr std::size_t streamed_bytes_min = 10 * 1024;
inline constexpr std::size_t streamed_bytes_max = 256 * 1024;

// Visible to any thread that sees a later store of this thread. The ranges must not overlap.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__SSE2__)
    constexpr std::size_t line = 64;
    const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % line);
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; bytes - at >= line; at += line) {
        const auto* source = reinterpret_cast<const __m128i*>(from + at);
        auto* target = reinterpret_cast<__m128i*>(to + at);
        const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + at, from + at, bytes - at);
    _mm_sfence();  // A release store does not order streaming stores.
#else
    std::memcpy(to, from, bytes);
#endif
}

}  // namespace weft::na::sm
