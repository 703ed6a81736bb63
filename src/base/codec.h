// Bounded little-endian reading and writing of wire structures.
//
// Bytes of a peer are validated here: a Reader never reads past its end; after an attempt ok() is
// false.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <weft/bytes.h>

namespace weft::base {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported yet");

template <class T>
T load(const std::byte* from) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Requires: `T` has no padding, which would expose old memory to the reader.
template <class T>
void store(std::byte* to, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    std::memcpy(to, &value, sizeof value);
}

class Reader {
  public:
    explicit Reader(ByteView bytes) : remaining_(bytes) {}

    // Zero when too few bytes are left; then ok() is false.
    template <class T>
    T take() {
        if (remaining_.size() < sizeof(T)) {
            fail();
            return T{};
        }
        T value = load<T>(remaining_.data());
        remaining_ = remaining_.subspan(sizeof(T));
        return value;
    }

    ByteView take_bytes(std::size_t bytes) {
        if (remaining_.size() < bytes) {
            fail();
            return {};
        }
        ByteView taken = remaining_.first(bytes);
        remaining_ = remaining_.subspan(bytes);
        return taken;
    }

    // Text with a 16-bit length in front.
    std::string_view take_text() { return as_text(take_bytes(take<std::uint16_t>())); }

    bool ok() const { return ok_; }
    std::size_t remaining() const { return remaining_.size(); }

  private:
    void fail() {
        ok_ = false;
        remaining_ = {};
    }

    ByteView remaining_;
    bool ok_ = true;
};

class Writer {
  public:
    explicit Writer(Bytes bytes) : remaining_(bytes), start_(bytes.data()) {}

    template <class T>
    void put(const T& value) {
        put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof value});
    }

    void put_bytes(ByteView bytes) {
        if (remaining_.size() < bytes.size()) {
            ok_ = false;
            remaining_ = {};
            return;
        }
        if (!bytes.empty()) std::memcpy(remaining_.data(), bytes.data(), bytes.size());
        remaining_ = remaining_.subspan(bytes.size());
    }

    // Truncated at 65 535 bytes.
    void put_text(std::string_view text) {
        text = text.substr(0, 0xffff);
        put(static_cast<std::uint16_t>(text.size()));
        put_bytes(as_bytes(text));
    }

    bool ok() const { return ok_; }
    std::size_t written() const { return static_cast<std::size_t>(remaining_.data() - start_); }

  private:
    Bytes remaining_;
    std::byte* start_;
    bool ok_ = true;
};

}  // namespace weft::base
