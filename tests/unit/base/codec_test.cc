#include "base/codec.h"

#include <array>
#include <string>

#include "support/catch.h"

using namespace weft;
using base::Reader;
using base::Writer;

TEST_CASE("values are read back as they were written, little-endian and unpadded") {
    std::array<std::byte, 64> memory{};
    Writer out(memory);
    out.put(std::uint8_t{0x11});
    out.put(std::uint32_t{0x55443322});
    out.put_text("weft");
    out.put(std::uint64_t{7});
    REQUIRE(out.ok());
    CHECK(out.written() == 1 + 4 + 2 + 4 + 8);
    const unsigned char head[] = {0x11, 0x22, 0x33, 0x44, 0x55, 4, 0, 'w'};
    CHECK(std::memcmp(memory.data(), head, sizeof head) == 0);

    Reader in(ByteView(memory).first(out.written()));
    CHECK(in.take<std::uint8_t>() == 0x11);
    CHECK(in.take<std::uint32_t>() == 0x55443322);
    CHECK(in.take_text() == "weft");
    CHECK(in.take<std::uint64_t>() == 7);
    CHECK(in.ok());
    CHECK(in.remaining() == 0);
}

TEST_CASE("a reader past its end returns zeros, reads no further and is not ok") {
    const std::array<std::byte, 5> memory{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                          std::byte{5}};
    Reader in(memory);
    CHECK(in.take<std::uint32_t>() == 0x04030201);
    CHECK(in.take<std::uint16_t>() == 0);
    CHECK_FALSE(in.ok());
    // The byte that was left is not read either.
    CHECK(in.take<std::uint8_t>() == 0);
    CHECK(in.take_bytes(1).empty());
    CHECK(in.take_text().empty());
    CHECK(in.remaining() == 0);
    CHECK_FALSE(in.ok());
}

TEST_CASE("reading 0 bytes is no failure") {
    Reader in(ByteView{});
    CHECK(in.take_bytes(0).empty());
    CHECK(in.ok());
}

TEST_CASE("a text longer than the bytes that follow its length is refused") {
    for (std::size_t length : {4, 5, 0xffff}) {
        std::array<std::byte, 5> memory{};
        Writer out(memory);
        out.put(static_cast<std::uint16_t>(length));
        Reader in(memory);
        CHECK(in.take_text().empty());
        CHECK_FALSE(in.ok());
    }
}

TEST_CASE("a full writer writes nothing more and is not ok") {
    std::array<std::byte, 8> memory{};
    Writer out(Bytes(memory).first(6));
    out.put(std::uint32_t{~0u});
    out.put(std::uint32_t{~0u});
    CHECK_FALSE(out.ok());
    out.put(std::uint8_t{0xff});
    CHECK_FALSE(out.ok());
    CHECK(memory[3] == std::byte{0xff});
    for (std::size_t at = 4; at < 8; ++at) CHECK(memory[at] == std::byte{0});
}

TEST_CASE("a text of more than 65535 bytes is truncated") {
    std::string memory(70'000, '\0');
    Writer out({reinterpret_cast<std::byte*>(memory.data()), memory.size()});
    out.put_text(std::string(66'000, 'x'));
    REQUIRE(out.ok());
    CHECK(out.written() == 2 + 65'535);
    Reader in(as_bytes(memory));
    CHECK(in.take_text().size() == 65'535);
}
