// Shared parts of the fuzz targets. Each target is one function of bytes: a libFuzzer program in
// the preset `fuzz` (tools/fuzz.py runs them), and everywhere else a test over the corpus in
// tests/fuzz/corpus/NAME (`make test`).
//
// A target fails by a sanitizer or by `must()`. It keeps no state between inputs, so that a failing
// input fails alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include <weft/bytes.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace weft::fuzz {

inline void must(bool fact, const char* what) {
    if (fact) [[likely]] {
        return;
    }
    std::fprintf(stderr, "fuzz: violated: %s\n", what);
    std::abort();
}

// In memory of exactly that size: a sanitizer detects any access beyond it.
inline std::vector<std::byte> exact(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// The input, read from the front: choices first, then the bytes that a peer would send. Beyond its
// end it reads zeros.
class Input {
  public:
    explicit Input(ByteView bytes) : rest_(bytes) {}
    Input(const std::uint8_t* data, std::size_t size)
        : rest_(reinterpret_cast<const std::byte*>(data), size) {}

    template <class T>
    T value() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        const ByteView bytes = take(sizeof value);
        if (!bytes.empty()) std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
        return value;
    }
    std::uint8_t byte() { return value<std::uint8_t>(); }
    // A number below `end`; 0 when `end` is 0.
    std::size_t below(std::size_t end) {
        const std::size_t number = end > 256 ? value<std::uint16_t>() : byte();
        return end == 0 ? 0 : number % end;
    }
    ByteView take(std::size_t bytes) {
        const ByteView taken = rest_.first(std::min(bytes, rest_.size()));
        rest_ = rest_.subspan(taken.size());
        return taken;
    }
    ByteView rest() const { return rest_; }
    bool empty() const { return rest_.empty(); }

  private:
    ByteView rest_;
};

}  // namespace weft::fuzz
