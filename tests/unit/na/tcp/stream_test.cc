// The streams of tcp, cut at every position and at random ones: the output equals the input.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/random.h"
#include "na/tcp/bulk_stream.h"
#include "na/tcp/inbox.h"
#include "na/tcp/outbox.h"
#include "support/catch.h"
#include "support/seed.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

// A padded frame with a body that depends on its number.
void add_frame(std::vector<std::byte>& to, std::uint8_t kind, std::uint32_t bytes,
               std::uint32_t number) {
    const std::size_t start = to.size();
    to.resize(start + padded(bytes));
    base::store(to.data() + start, StreamHead{kind, 0, 0, bytes});
    for (std::size_t at = sizeof(StreamHead); at < bytes; ++at) {
        to[start + at] = static_cast<std::byte>(number * 31 + at);
    }
}

// Reads like the endpoint, but from memory.
class Feeder {
  public:
    explicit Feeder(ByteView stream) : stream_(stream) {}

    // At most `bytes` arrive in one read; false: the stream is broken.
    bool feed(std::size_t bytes, bool one) {
        slab_.reset();
        iovec pieces[2];
        const std::size_t used = inbox_.room(slab_, one, bytes, pieces);
        std::size_t read = 0;
        for (std::size_t i = 0; i < used; ++i) {
            const std::size_t here =
                std::min({pieces[i].iov_len, bytes - read, stream_.size() - read});
            std::memcpy(pieces[i].iov_base, stream_.data() + read, here);
            read += here;
        }
        stream_ = stream_.subspan(read);
        const Inbox::Taken taken = inbox_.on_read(read, slab_);
        REQUIRE(taken.count <= (one ? 1u : 2u));
        REQUIRE_FALSE(taken.no_memory);
        for (std::size_t i = 0; i < taken.count; ++i) {
            const ByteView message = taken.messages[i];
            REQUIRE(reinterpret_cast<std::uintptr_t>(message.data()) % 8 == 0);
            out.insert(out.end(), message.begin(), message.end());
            out.resize(padded(out.size()));
        }
        wants_bulk += taken.wants_bulk;
        byes += taken.bye;
        return !taken.broken;
    }
    bool empty() const { return stream_.empty(); }

    std::vector<std::byte> out;
    int wants_bulk = 0, byes = 0;

  private:
    ByteView stream_;
    Slab slab_;
    Inbox inbox_;
};

struct Sample {
    std::vector<std::byte> stream;    // With control frames in between.
    std::vector<std::byte> messages;  // Without.
    int signals = 0;
};

Sample sample(base::Random& random, int frames, std::uint32_t bytes_max) {
    Sample sample;
    for (int i = 0; i < frames; ++i) {
        if (random.next() % 8 == 0) {
            add_frame(sample.stream, static_cast<std::uint8_t>(ControlKind::want_bulk), 8, 0);
            ++sample.signals;
        }
        const auto bytes = static_cast<std::uint32_t>(8 + random.next() % (bytes_max - 7));
        add_frame(sample.stream, 1, bytes, static_cast<std::uint32_t>(i));
        add_frame(sample.messages, 1, bytes, static_cast<std::uint32_t>(i));
    }
    return sample;
}

}  // namespace

TEST_CASE("tcp: a stream cut at every position gives the same frames") {
    base::SeededRandom random(1);
    const Sample given = sample(random, 6, 40);
    for (std::size_t cut = 1; cut < given.stream.size(); ++cut) {
        for (const bool one : {false, true}) {
            INFO("cut at " << cut << (one ? ", one event" : ""));
            Feeder feeder(given.stream);
            REQUIRE(feeder.feed(cut, one));
            while (!feeder.empty()) REQUIRE(feeder.feed(given.stream.size(), one));
            REQUIRE(feeder.out == given.messages);
            REQUIRE((feeder.wants_bulk > 0) == (given.signals > 0));
        }
    }
}

TEST_CASE("tcp: a stream in pieces of any size gives the same frames", "[seeded]") {
    const std::uint64_t seed = seed_of(GENERATE(range(0, 20)));
    INFO("TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    const Sample given = sample(random, 60, seed % 2 ? 300 : message_bytes_max);
    const std::size_t piece_max = std::size_t{1} << (random.next() % 19);
    Feeder feeder(given.stream);
    while (!feeder.empty()) {
        REQUIRE(feeder.feed(1 + random.next() % piece_max, random.next() % 4 == 0));
    }
    REQUIRE(feeder.out == given.messages);
}

TEST_CASE("tcp: a frame of an impossible length, or a hello in mid-stream, breaks the stream") {
    struct Bad {
        const char* what;
        StreamHead head;
    };
    const auto kind = [](ControlKind signal) { return static_cast<std::uint8_t>(signal); };
    const Bad bad = GENERATE_COPY(values<Bad>({
        {"no length", {1, 0, 0, 0}},
        {"shorter than its head", {1, 0, 0, 7}},
        {"one byte too long", {1, 0, 0, message_bytes_max + 1}},
        {"huge", {1, 0, 0, 0xffffffff}},
        {"a length that padding overflows", {1, 0, 0, 0xfffffff9}},
        {"hello", {kind(ControlKind::hello), 0, 0, 8}},
        {"welcome", {kind(ControlKind::welcome), 0, 0, 8}},
        {"a signal of a later version", {0xff, 0, 0, 8}},
        {"a bye with a body", {kind(ControlKind::bye), 0, 0, 16}},
    }));
    INFO(bad.what);
    for (std::size_t cut = 1; cut <= 24; ++cut) {
        std::vector<std::byte> stream;
        add_frame(stream, 1, 16, 1);
        stream.resize(stream.size() + 64);
        base::store(stream.data() + 16, bad.head);
        Feeder feeder(stream);
        bool good = feeder.feed(cut, false);
        while (good && !feeder.empty()) good = feeder.feed(stream.size(), false);
        REQUIRE_FALSE(good);
        REQUIRE(feeder.out.size() <= 16);
    }
}

TEST_CASE("tcp: an invalid control frame behind a valid one breaks the stream") {
    const auto kind = [](ControlKind signal) { return static_cast<std::uint8_t>(signal); };
    for (const std::uint8_t bad :
         {kind(ControlKind::hello), std::uint8_t{0xf6}, std::uint8_t{0xff}}) {
        for (const std::size_t cut : {std::size_t{8}, std::size_t{16}}) {
            std::vector<std::byte> stream;
            add_frame(stream, kind(ControlKind::want_bulk), 8, 0);
            add_frame(stream, bad, 8, 0);
            Feeder feeder(stream);
            bool good = feeder.feed(cut, false);
            while (good && !feeder.empty()) good = feeder.feed(stream.size(), false);
            INFO("kind " << int{bad} << ", cut at " << cut);
            REQUIRE_FALSE(good);
        }
    }
}

TEST_CASE("tcp: a stream of control frames only costs time linear in its bytes") {
    // As many as one read returns. A move of the remaining bytes for each frame would copy 4 GiB.
    std::vector<std::byte> stream;
    for (int i = 0; i < 32'000; ++i) {
        add_frame(stream, static_cast<std::uint8_t>(ControlKind::want_bulk), 8, 0);
    }
    Feeder feeder(stream);
    const std::clock_t start = std::clock();  // Cpu time of this process only.
    REQUIRE(feeder.feed(stream.size(), false));
    CHECK(std::clock() - start < CLOCKS_PER_SEC / 50 * slowness);
    CHECK(feeder.empty());
    CHECK(feeder.out.empty());
}

TEST_CASE("tcp: an outbox sends all that it was given, however little the socket takes",
          "[seeded]") {
    const std::uint64_t seed = seed_of(GENERATE(range(0, 10)));
    INFO("TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    ChunkPool pool;
    Outbox outbox;
    std::vector<std::byte> given, left;
    const auto send = [&](std::size_t bytes) {
        iovec pieces[8];
        const std::size_t count = outbox.gather(pieces);
        std::size_t sent = 0;
        for (std::size_t i = 0; i < count && sent < bytes; ++i) {
            const std::size_t here = std::min(pieces[i].iov_len, bytes - sent);
            const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
            left.insert(left.end(), from, from + here);
            sent += here;
        }
        outbox.sent(sent, pool);
    };
    std::uint32_t number = 0;
    bool was_full = false;
    for (int step = 0; step < 3000; ++step) {
        const auto bytes = static_cast<std::uint32_t>(
            8 + random.next() % (step % 3 ? 500 : message_bytes_max - 8));
        std::byte* room = outbox.claim(bytes, pool);
        was_full |= !room;
        REQUIRE((room || outbox.queued() > Outbox::queued_bytes_max / 2));
        if (room && random.next() % 8 == 0) {
            outbox.commit(0, pool);
        } else if (room) {
            std::vector<std::byte> frame;
            add_frame(frame, 1, bytes, ++number);
            std::fill_n(room, padded(bytes), std::byte{0xee});
            std::copy_n(frame.begin(), bytes, room);
            outbox.commit(bytes, pool);
            given.insert(given.end(), frame.begin(), frame.end());
        }
        if (random.next() % 4 == 0) send(random.next() % (64 * 1024));
    }
    while (!outbox.empty()) send(100'000);
    CHECK(was_full);
    CHECK(left == given);
}

namespace {

// The heads and bodies that a bulk reader delivers.
struct Bodies {
    BulkReader reader;
    std::vector<std::vector<std::byte>> bodies;  // Indexed by transfer.
    std::vector<BulkHead> heads;
    std::vector<std::uint64_t> ended;
    bool discards = false;
    std::byte waste[128];

    // `bytes` of the stream arrive.
    std::size_t feed(ByteView stream, std::size_t bytes, std::size_t body_max) {
        iovec pieces[2];
        const std::size_t used = reader.room(body_max, waste, pieces);
        std::size_t read = 0;
        for (std::size_t i = 0; i < used; ++i) {
            const std::size_t here =
                std::min({pieces[i].iov_len, bytes - read, stream.size() - read});
            std::memcpy(pieces[i].iov_base, stream.data() + read, here);
            read += here;
        }
        reader.on_read(read);
        for (BulkReader::Step step; (step = reader.step()) != BulkReader::Step::more;) {
            const BulkHead head = reader.head();
            if (step == BulkReader::Step::body_end) {
                ended.push_back(head.transfer);
                continue;
            }
            heads.push_back(head);
            if (head.op != BulkOp::put && head.op != BulkOp::data) continue;
            bodies.resize(head.transfer + 1);
            bodies[head.transfer].resize(head.length);
            reader.expect(discards ? nullptr : bodies[head.transfer].data());
        }
        return read;
    }
};

std::vector<std::byte> all_of(BulkWriter& writer, base::Random& random) {
    std::vector<std::byte> stream;
    while (!writer.empty()) {
        iovec pieces[16];
        const std::size_t count = writer.gather(pieces, 1 + random.next() % 4000);
        REQUIRE(count > 0);
        std::size_t offered = 0;
        for (std::size_t i = 0; i < count; ++i) offered += pieces[i].iov_len;
        const std::size_t wanted = random.next() % (offered + 1);
        std::size_t sent = 0;
        for (std::size_t i = 0; i < count && sent < wanted; ++i) {
            const std::size_t here = std::min(pieces[i].iov_len, wanted - sent);
            const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
            stream.insert(stream.end(), from, from + here);
            sent += here;
        }
        writer.sent(sent);
    }
    return stream;
}

BulkHead head_of(BulkOp op, std::uint64_t transfer, std::size_t length = 0) {
    BulkHead head;
    head.op = op;
    head.transfer = transfer;
    head.length = static_cast<std::uint32_t>(length);
    return head;
}

}  // namespace

TEST_CASE("tcp: bulk heads and bodies are read as they were written, however the stream is cut",
          "[seeded]") {
    const std::uint64_t seed = seed_of(GENERATE(range(0, 20)));
    INFO("TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    std::vector<std::vector<std::byte>> bodies(40);
    BulkWriter writer;
    for (std::uint64_t i = 0; i < bodies.size(); ++i) {
        bodies[i].resize(1 + random.next() % (i % 3 ? 100 : 20'000));
        for (std::byte& byte : bodies[i]) byte = static_cast<std::byte>(random.next());
        writer.push(head_of(i % 2 ? BulkOp::put : BulkOp::data, i, bodies[i].size()),
                    bodies[i].data());
        if (i % 4 == 0) writer.push(head_of(BulkOp::get, i, 4096));
        if (i % 5 == 0) writer.push(head_of(BulkOp::done, i));
    }
    const std::vector<std::byte> stream = all_of(writer, random);
    const bool discards = seed % 4 == 0;
    Bodies in;
    in.discards = discards;
    for (ByteView left = stream; !left.empty();) {
        left = left.subspan(in.feed(left, 1 + random.next() % 3000, 1 + random.next() % 9000));
    }
    CHECK(in.ended.size() == bodies.size());
    CHECK(in.heads.size() == bodies.size() + 10 + 8);
    CHECK_FALSE(in.reader.in_body());
    if (!discards) CHECK(in.bodies == bodies);
}

TEST_CASE("tcp: data of a revoked region ends in zeroes, and its done reports that") {
    base::SeededRandom random(7);
    for (const std::size_t sent : {0u, 39u, 40u, 41u, 140u, 1039u}) {
        INFO(sent << " bytes were sent");
        std::vector<std::byte> body(1000, std::byte{0xaa}), other(500, std::byte{0xbb});
        BulkWriter writer;
        writer.push(head_of(BulkOp::data, 1, body.size()), body.data(), 5);
        writer.push(head_of(BulkOp::done, 1));
        writer.push(head_of(BulkOp::data, 2, other.size()), other.data(), 6);
        writer.push(head_of(BulkOp::done, 2));
        iovec pieces[16];
        (void)writer.gather(pieces, 10'000);
        writer.sent(sent);
        writer.revoke(5);
        std::ranges::fill(body, std::byte{0xcc});                      // The owner may reuse it.
        const std::vector<std::byte> stream = all_of(writer, random);  // The rest of the stream.
        CHECK(std::ranges::find(stream, std::byte{0xaa}) == stream.end());
        CHECK(std::ranges::find(stream, std::byte{0xcc}) == stream.end());
        CHECK(std::ranges::count(stream, std::byte{0xbb}) == 500);
        // Both dones are at the positions that a reader of the heads expects.
        const std::size_t left = sent == 0 ? 0 : 1040 - sent;
        REQUIRE(stream.size() == left + 40 + 540 + 40);
        const auto refused = base::load<BulkHead>(stream.data() + left);
        CHECK(refused.op == BulkOp::done);
        CHECK(refused.code == static_cast<std::uint8_t>(Code::permission_denied));
        CHECK(refused.why == static_cast<std::uint8_t>(Refusal::revoked));
        CHECK(base::load<BulkHead>(stream.data() + left + 580).code == 0);
    }
}
