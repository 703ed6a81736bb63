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
    std::vector<std::byte> into = std::vector<std::byte>(message_bytes_max + letter_bytes_max);

    Ring() {
        Result<Segment> made = Segment::make(&file);
        REQUIRE(made.ok());
        segment = std::move(*made);
        writer = segment.writer(Side::connector);
        reader = segment.reader(Side::acceptor);
    }

    bool write(std::string_view text) {
        std::byte* letter = writer.claim_letter(text.size());
        std::byte* room = letter ? letter : writer.claim(text.size());
        if (!room) return false;
        std::memcpy(room, text.data(), text.size());
        if (letter) {
            writer.send_letter(text.size(), 0);
        } else {
            writer.commit(text.size());
            writer.publish(0);
        }
        return true;
    }
    // Nothing: no record is there.
    std::optional<RingReader::Take> read(std::string* text) {
        if (!reader.has_records()) return std::nullopt;
        reader.look();
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
    // Of `into`: a letter is copied whole, whatever its length.
    Bytes room() { return Bytes(into).first(message_bytes_max); }
    // What the reader's own messages would tell the writer.
    void answer() { REQUIRE(writer.acknowledge(reader.taken())); }
    // Where the next record goes in the ring.
    std::byte* data() { return writer.claim(1) - header_bytes; }
};

using Take = RingReader::Take;

}  // namespace

TEST_CASE("sm ring: a message wraps whole at every alignment") {
    Ring ring;
    // Each start position of a record once: 16 bytes further per lap.
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

TEST_CASE("sm ring: an empty ring takes the largest message wherever it stands") {
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

TEST_CASE("sm ring: what is not published is not seen") {
    Ring ring;
    std::memset(ring.writer.claim(10), 'a', 10);
    ring.writer.commit(10);
    CHECK(!ring.reader.has_records());
    CHECK(ring.read() == std::nullopt);
    ring.writer.publish(0);
    CHECK(ring.reader.has_records());
    CHECK(ring.read() == Take::message);
}

TEST_CASE("sm ring: a small message goes by letter when the last one is known to be taken") {
    Ring ring;
    auto& words = ring.writer.words();
    std::string text;
    const auto letters = [&] { return words.letter.load() >> 8; };
    for (int i = 0; i < 5; ++i) {  // As calls and replies do.
        REQUIRE(ring.write("call " + std::to_string(i)));
        REQUIRE(letters() == static_cast<std::uint64_t>(i) * record_unit);
        REQUIRE(ring.read(&text) == Take::message);
        REQUIRE(text == "call " + std::to_string(i));
        ring.answer();
    }
    REQUIRE(ring.write(std::string(letter_bytes_max, 'l')));
    REQUIRE(ring.write("not by letter: the one before may be unread"));
    CHECK(letters() == 5 * record_unit);
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text == std::string(letter_bytes_max, 'l'));
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text.starts_with("not by letter"));
    ring.answer();
    REQUIRE(ring.write(std::string(letter_bytes_max + 1, 'r')));
    CHECK(letters() == 5 * record_unit);
    REQUIRE(ring.read(&text) == Take::message);
    CHECK(text == std::string(letter_bytes_max + 1, 'r'));
}

TEST_CASE("sm ring: a full ring refuses and asks to be woken when a quarter is free") {
    Ring ring;
    const std::string text(16'000, 'z');
    int written = 0;
    while (ring.write(text)) ++written;
    CHECK(written == 16);
    CHECK(ring.segment.writer(Side::connector).words().want_space.load() == 1);
    int read = 0;
    std::size_t bytes = 0;
    while (true) {
        ring.reader.look();
        REQUIRE(ring.reader.take(ring.room(), &bytes) == Take::message);
        ++read;
        if (ring.reader.free()) break;
    }
    CHECK(read == 5);  // Five of them exceed a quarter.
    CHECK(ring.write(text));
}

TEST_CASE("sm ring: records come out as they went in, for any mix of sizes", "[seeded]") {
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

TEST_CASE("sm ring: a record that does not fit the room is left for later") {
    Ring ring;
    REQUIRE(ring.write("0123456789"));
    std::byte small[9];
    std::size_t bytes = 0;
    ring.reader.look();
    CHECK(ring.reader.take(small, &bytes) == Take::no_room);
    CHECK(ring.read() == Take::message);
}

TEST_CASE("sm ring: a reader judges whatever the writer scribbles") {
    Ring ring;
    REQUIRE(ring.write(std::string(200, 'g')));
    const std::size_t record = record_bytes(200);
    auto& words = ring.writer.words();
    SECTION("a tail further ahead than the ring is long") {
        words.tail.store(ring_bytes + record_unit);
    }
    SECTION("a tail that went back") {
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
    SECTION("a letter longer than a letter can be") {
        std::memset(ring.data() - record, 0, header_bytes);
        words.letter.store(letter_bytes_max + 2);
    }
    SECTION("a letter for another place") {
        std::memset(ring.data() - record, 0, header_bytes);
        words.letter.store(4096 << 8 | 5);
    }
    SECTION("a header that is none") {
        const std::uint64_t header = 4;
        std::memcpy(ring.data() - record, &header, sizeof header);
    }
    CHECK(ring.read() == Take::broken);
}

TEST_CASE("sm ring: a writer judges whatever the reader scribbles") {
    Ring ring;
    auto& words = ring.writer.words();
    while (ring.write(std::string(60'000, 'x'))) {
    }
    SECTION("a head beyond the tail") { words.head.store(ring_bytes * 2); }
    SECTION("a head between records") { words.head.store(7); }
    CHECK(!ring.write(std::string(60'000, 'x')));
    CHECK(ring.writer.is_broken());
}

TEST_CASE("sm ring: a reader that says it took what was never written is found out") {
    Ring ring;
    REQUIRE(ring.write("small"));
    CHECK(!ring.writer.acknowledge(2 * record_unit));
    CHECK(!ring.writer.acknowledge(1));
    CHECK(ring.writer.acknowledge(record_unit));
    CHECK(ring.writer.acknowledge(0));  // Old news.
}

TEST_CASE("sm ring: random scribbling over everything shared never reads outside", "[seeded]") {
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
        ring.writer.words().letter.store(random.next() % (1 << 20));
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
        ring.reader.look();
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
