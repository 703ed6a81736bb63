#include "na/sm/ring.h"

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "na/sm/segment.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::na::sm;

namespace {

struct Ring {
    base::UniqueFd file;
    Segment segment;
    RingWriter writer;
    RingReader reader;
    std::vector<std::byte> into = std::vector<std::byte>(message_bytes_max + inline_bytes_max);

    Ring() {
        Result<Segment> made = Segment::make(&file);
        REQUIRE(made.ok());
        segment = std::move(*made);
        writer = segment.writer(Side::connector);
        reader = segment.reader(Side::acceptor);
    }

    bool write(std::string_view text) {
        std::byte* inline_message = writer.claim_inline(text.size());
        std::byte* room = inline_message ? inline_message : writer.claim(text.size());
        if (!room) return false;
        std::memcpy(room, text.data(), text.size());
        if (inline_message) {
            writer.send_inline(text.size(), 0);
        } else {
            writer.commit(text.size());
            writer.publish(0);
        }
        return true;
    }
    // std::nullopt without a record.
    std::optional<RingReader::Take> read(std::string* text) {
        if (!reader.has_records()) return std::nullopt;
        reader.refresh();
        std::size_t bytes = 0;
        const RingReader::Take took = reader.take(room(), &bytes);
        if (took == RingReader::Take::message) {
            *text = std::string(as_text(ByteView(into).first(bytes)));
        }
        reader.free();
        return took;
    }
    std::optional<RingReader::Take> read() {
        std::string ignored;
        return read(&ignored);
    }
    // A part of `into`: an inline message is copied whole, whatever its length.
    Bytes room() { return Bytes(into).first(message_bytes_max); }
    // The acknowledgement that the reader's own messages would carry.
    void answer() { REQUIRE(writer.acknowledge(reader.taken())); }
    // The position of the next record in the ring.
    std::byte* data() { return writer.claim(1) - header_bytes; }
};

using Take = RingReader::Take;

}  // namespace

TEST_CASE("sm ring: a message that wraps is complete at every alignment") {
    Ring ring;
    // Covers each start position of a record once: 16 bytes further each lap.
    std::string text;
    for (std::size_t lap = 0; lap < ring_bytes / record_unit; ++lap) {
        const std::string message(100 + lap % 16, static_cast<char>('a' + lap % 26));
        REQUIRE(ring.write(message));
        REQUIRE(ring.read(&text) == Take::message);
        REQUIRE(text == message);
        const std::string big(61'000 + lap % 4'000, static_cast<char>('A' + lap % 26));
        REQUIRE(ring.write(big));
        REQUIRE(ring.read(&text) == Take::message);
        REQUIRE(text == big);
    }
}

TEST_CASE("sm ring: an empty ring takes the largest message at every position") {
    Ring ring;
    const std::string largest(message_bytes_max, 'x');
    base::SeededRandom random(5);
    for (int i = 0; i < 2000; ++i) {
        REQUIRE(ring.write(std::string(random.next() % 60'000, 'y')));
        REQUIRE(ring.read() == Take::message);
        REQUIRE(ring.write(largest));
        REQUIRE(ring.read() == Take::message);
    }
}

TEST_CASE("sm ring: an unpublished record is not visible to the reader") {
    Ring ring;
    std::memset(ring.writer.claim(10), 'a', 10);
    ring.writer.commit(10);
    CHECK(!ring.reader.has_records());
    CHECK(ring.read() == std::nullopt);
    ring.writer.publish(0);
    CHECK(ring.reader.has_records());
    CHECK(ring.read() == Take::message);
}

TEST_CASE("sm ring: a small message is sent inline when the last one is acknowledged") {
    Ring ring;
    auto& words = ring.writer.words();
    std::string text;
    const auto letters = [&] { return words.inline_slot.load() >> 8; };
    for (int i = 0; i < 5; ++i) {  // In the pattern of calls and replies.
        REQUIRE(ring.write("call " + std::to_string(i)));
        REQUIRE(letters() == static_cast<std::uint64_t>(i) * record_unit);
        REQUIRE(ring.read(&text) == Take::message);
        REQUIRE(text == "call " + std::to_string(i));
        ring.answer();
    }
    REQUIRE(ring.write(std::string(inline_bytes_max, 'l')));
    REQUIRE(ring.write("not by letter: the one before may be unread"));
    CHECK(letters() == 5 * record_unit);
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text == std::string(inline_bytes_max, 'l'));
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text.starts_with("not by letter"));
    ring.answer();
    REQUIRE(ring.write(std::string(inline_bytes_max + 1, 'r')));
    CHECK(letters() == 5 * record_unit);
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text == std::string(inline_bytes_max + 1, 'r'));
}

TEST_CASE("sm ring: a full ring refuses, and requests a wakeup when a quarter is free") {
    Ring ring;
    const std::string text(16'000, 'z');
    int written = 0;
    while (ring.write(text)) ++written;
    CHECK(written == 16);
    CHECK(ring.segment.writer(Side::connector).words().want_space.load() == 1);
    int read = 0;
    std::size_t bytes = 0;
    while (true) {
        ring.reader.refresh();
        REQUIRE(ring.reader.take(ring.room(), &bytes) == Take::message);
        ++read;
        if (ring.reader.free()) break;
    }
    CHECK(read == 5);  // Five of them exceed a quarter.
    CHECK(ring.write(text));
}

TEST_CASE("sm ring: records are read in the order and with the bytes written, for any sizes",
          "[seeded]") {
    const std::uint64_t seed = test::seed_of(GENERATE(range(0, 3)));
    INFO("repeat with TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    Ring ring;
    std::deque<std::string> model;
    std::string text;
    for (int step = 0; step < 20'000; ++step) {
        if (random.next() % 2 == 0) {
            std::string message(random.next() % (1ull << (random.next() % 17)), '\0');
            if (message.size() > message_bytes_max) message.resize(message_bytes_max);
            for (char& c : message) c = static_cast<char>(random.next());
            if (ring.write(message)) model.push_back(std::move(message));
        } else if (model.empty()) {
            REQUIRE(ring.read(&text) == std::nullopt);
        } else {
            REQUIRE(ring.read(&text) == Take::message);
            REQUIRE(text == model.front());
            model.pop_front();
            if (random.next() % 4 == 0) ring.answer();
        }
    }
}

TEST_CASE("sm ring: a record larger than the buffer stays for a later read") {
    Ring ring;
    REQUIRE(ring.write("0123456789"));
    std::byte small[9];
    std::size_t bytes = 0;
    ring.reader.refresh();
    CHECK(ring.reader.take(small, &bytes) == Take::no_room);
    CHECK(ring.read() == Take::message);
}

TEST_CASE("sm ring: a reader detects every corruption by the writer") {
    Ring ring;
    REQUIRE(ring.write(std::string(200, 'g')));
    const std::size_t record = record_bytes(200);
    auto& words = ring.writer.words();
    SECTION("a tail further ahead than the ring is long") {
        words.tail.store(ring_bytes + record_unit);
    }
    SECTION("a tail that moved back") {
        std::string text;
        REQUIRE(ring.read(&text) == Take::message);
        words.tail.store(0);
    }
    SECTION("a tail between records") { words.tail.store(record_unit + 1); }
    SECTION("a length beyond the published bytes") {
        const std::uint64_t header = 1000 | std::uint64_t{message_kind} << 32;
        std::memcpy(ring.data() - record, &header, sizeof header);
    }
    SECTION("a length beyond any message") {
        words.tail.store(ring_bytes);
        const std::uint64_t header = 0xffff'fff0 | std::uint64_t{message_kind} << 32;
        std::memcpy(ring.data() - record, &header, sizeof header);
    }
    SECTION("an inline message longer than the slot") {
        std::memset(ring.data() - record, 0, header_bytes);
        words.inline_slot.store(inline_bytes_max + 2);
    }
    SECTION("an inline message for another position") {
        std::memset(ring.data() - record, 0, header_bytes);
        words.inline_slot.store(4096 << 8 | 5);
    }
    SECTION("a header of no known kind") {
        const std::uint64_t header = 4;
        std::memcpy(ring.data() - record, &header, sizeof header);
    }
    CHECK(ring.read() == Take::broken);
}

TEST_CASE("sm ring: a tail that moves back after it was seen is broken") {
    Ring ring;
    std::string text;
    REQUIRE(ring.write("one"));
    REQUIRE(ring.read(&text) == Take::message);
    REQUIRE(ring.write("two"));
    REQUIRE(ring.reader.has_records());
    const std::uint64_t seen = ring.reader.published();
    SECTION("to the last taken record") {
        ring.writer.words().tail.store(seen - record_unit);
        ring.reader.refresh();
        CHECK_FALSE(ring.reader.has_more());
        ring.writer.words().tail.store(seen);
        CHECK(ring.read(&text) == Take::message);
        CHECK(text == "two");
        return;
    }
    SECTION("before the last taken record") {
        ring.writer.words().tail.store(seen - 2 * record_unit);
        ring.reader.refresh();
        CHECK(ring.reader.has_more());
        std::size_t bytes = 0;
        CHECK(ring.reader.take(ring.room(), &bytes) == Take::broken);
    }
}

TEST_CASE("sm ring: a writer detects every corruption by the reader") {
    Ring ring;
    auto& words = ring.writer.words();
    while (ring.write(std::string(60'000, 'x'))) {
    }
    SECTION("a head beyond the tail") { words.head.store(ring_bytes * 2); }
    SECTION("a head between records") { words.head.store(7); }
    CHECK(!ring.write(std::string(60'000, 'x')));
    CHECK(ring.writer.is_broken());
}

TEST_CASE("sm ring: an acknowledgement of bytes that were never written is refused") {
    Ring ring;
    REQUIRE(ring.write("small"));
    CHECK(!ring.writer.acknowledge(2 * record_unit));
    CHECK(!ring.writer.acknowledge(1));
    CHECK(ring.writer.acknowledge(record_unit));
    CHECK(ring.writer.acknowledge(0));  // An outdated acknowledgement.
}

TEST_CASE("sm ring: random changes of all shared memory cause no read outside of it", "[seeded]") {
    const std::uint64_t seed = test::seed_of(GENERATE(range(0, 4)));
    INFO("repeat with TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    for (int round = 0; round < 200; ++round) {
        Ring ring;
        for (int i = 0; i < 20; ++i) ring.write(std::string(random.next() % 3000, 'x'));
        std::byte* data = ring.data();
        for (int i = 0; i < 50; ++i) {
            const std::uint64_t noise = random.next();
            std::memcpy(data - noise % 3000 / 8 * 8, &noise, sizeof noise);
        }
        ring.writer.words().tail.store(random.next() % (2 * ring_bytes) / 16 * 16);
        ring.writer.words().inline_slot.store(random.next() % (1 << 20));
        for (int i = 0; i < 100 && ring.read() == Take::message; ++i) {
        }
    }
}

TEST_CASE("sm ring: two threads stream through it without loss") {
    Ring ring;
    constexpr std::uint64_t count = 200'000;
    std::thread writer([&] {
        for (std::uint64_t i = 0; i < count;) {
            std::byte* room = ring.writer.claim(8 + i % 100);
            if (!room) {
                std::this_thread::yield();
                continue;
            }
            std::memcpy(room, &i, sizeof i);
            ring.writer.commit(8 + i % 100);
            if (i % 5 == 0 || i + 1 == count) ring.writer.publish(0);
            ++i;
        }
    });
    bool good = true;
    for (std::uint64_t i = 0; i < count && good;) {
        if (!ring.reader.has_records()) {
            std::this_thread::yield();
            continue;
        }
        ring.reader.refresh();
        std::size_t bytes = 0;
        const Take took = ring.reader.take(ring.room(), &bytes);
        std::uint64_t got = 0;
        std::memcpy(&got, ring.into.data(), sizeof got);
        good = took == Take::message && bytes == 8 + i % 100 && got == i;
        ring.reader.free();
        ++i;
    }
    writer.join();
    CHECK(good);
}
