// What the fuzz targets share. Each target is one function of bytes; built by clang it is a
// libFuzzer binary (`make fuzz`), built by anybody it replays a corpus (tests/fuzz/corpus/NAME) in
// `make test`.
//
// A target fails by a sanitizer or by `must()`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <weft/bytes.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace weft::fuzz {

inline void must(bool fact, const char* what) {
    if (fact) return;
    std::fprintf(stderr, "fuzz: not so: %s\n", what);
    std::abort();
}

// The input, taken from the front: choices first, then the bytes that a peer would send.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size)
        : rest_(reinterpret_cast<const std::byte*>(data), size) {}

    std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const auto value = static_cast<std::uint8_t>(rest_[0]);
        rest_ = rest_.subspan(1);
        return value;
    }
    // Below `end`.
    std::size_t below(std::size_t end) {
        const std::size_t value = byte() | std::size_t{byte()} << 8;
        return end == 0 ? 0 : value % end;
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
