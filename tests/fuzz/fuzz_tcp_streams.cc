// The streams of tcp: the result is the same for every fragmentation by the network, and nothing is
// written outside of the offered memory.
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>

#include "base/unique_fd.h"
#include "core/frame.h"
#include "fuzz/fuzz.h"
#include "na/tcp/bulk_stream.h"
#include "na/tcp/handshake.h"
#include "na/tcp/inbox.h"

using namespace weft;
using namespace weft::na::tcp;
using fuzz::Input;
using fuzz::must;

namespace {

// Copies the next bytes of the stream into the memory that a reader offers; returns their number.
std::size_t deliver(ByteView& stream, std::span<const iovec> pieces, std::size_t most) {
    std::size_t read = 0;
    for (const iovec& piece : pieces) {
        const std::size_t here = std::min({piece.iov_len, most - read, stream.size()});
        if (here > 0) std::memcpy(piece.iov_base, stream.data(), here);
        stream = stream.subspan(here);
        read += here;
        if (here < piece.iov_len) break;
    }
    return read;
}

// ---- talk lane
// -----------------------------------------------------------------------------------

struct Talk {
    std::vector<std::vector<std::byte>> frames;  // Without the padding.
    bool broken = false;
    bool wants_bulk = false;
    bool bye = false;
};

// `cuts` decides the bytes of each read; null: as many as there is room for.
Talk talk_lane(ByteView stream, Input* cuts) {
    Slab slab;
    Inbox inbox;
    Talk result;
    while (!stream.empty() && !result.broken) {
        slab.reset();
        iovec pieces[2];
        const bool one = cuts && cuts->byte() % 2 != 0;
        const std::size_t most = cuts ? 1 + cuts->below(2000) : stream.size();
        const std::size_t used = inbox.room(slab, one, most, pieces);
        must(used >= 1 && used <= 2, "there is room to read into");
        const Inbox::Taken taken = inbox.on_read(deliver(stream, {pieces, used}, most), slab);
        result.broken = taken.broken;
        result.wants_bulk |= taken.wants_bulk;
        result.bye |= taken.bye;
        must(!taken.no_memory, "there is memory");
        must(taken.count <= (one ? 1u : 2u), "as many messages as there is room for");
        for (std::size_t i = 0; i < taken.count; ++i) {
            const ByteView message = taken.messages[i];
            must(message.size() >= sizeof(StreamHead), "a message has a head");
            must(core::for_each_frame(message,
                                      [&](const core::FrameHead& head, ByteView frame) {
                                          must(static_cast<std::uint8_t>(head.kind) < first_control,
                                               "signals are taken out");
                                          result.frames.push_back(fuzz::exact(frame));
                                          return true;
                                      }),
                 "a message is frames, and nothing else");
        }
    }
    inbox.clear(slab);
    return result;
}

// The same by docs/wire-format.md: one frame after the other.
Talk talk_lane_as_documented(ByteView stream) {
    Talk result;
    while (stream.size() >= sizeof(StreamHead)) {
        const auto head = base::load<StreamHead>(stream.data());
        result.broken = head.bytes < sizeof head || head.bytes > message_bytes_max;
        if (result.broken || stream.size() < padded(head.bytes)) break;
        const bool wants_bulk = head.kind == static_cast<std::uint8_t>(ControlKind::want_bulk);
        const bool bye = head.kind == static_cast<std::uint8_t>(ControlKind::bye);
        if (head.kind >= first_control) {
            result.broken = (!wants_bulk && !bye) || head.bytes != sizeof head;
            if (result.broken) break;
            result.wants_bulk |= wants_bulk;
            result.bye |= bye;
        } else {
            result.frames.push_back(fuzz::exact(stream.first(head.bytes)));
        }
        stream = stream.subspan(padded(head.bytes));
    }
    return result;
}

void check_talk(ByteView stream, Input cuts) {
    const Talk right = talk_lane_as_documented(stream);
    for (Input* const by : {static_cast<Input*>(nullptr), &cuts}) {
        const Talk is = talk_lane(stream, by);
        must(is.broken == right.broken,
             "a stream that breaks the rules ends the connection, for every cut");
        if (right.broken) continue;
        must(is.frames == right.frames, "the frames are those that were sent");
        must(is.wants_bulk == right.wants_bulk && is.bye == right.bye, "so are the signals");
    }
}

// ---- bulk lane
// -----------------------------------------------------------------------------------

struct Event {
    BulkHead head;
    std::vector<std::byte> body;
    bool ended = false;
    friend bool operator==(const Event& a, const Event& b) {
        return std::memcmp(&a.head, &b.head, sizeof a.head) == 0 && a.body == b.body &&
               a.ended == b.ended;
    }
};

bool has_body(const BulkHead& head) { return head.op == BulkOp::put || head.op == BulkOp::data; }
// An endpoint drops the connection for it.
bool is_judged_away(const BulkHead& head) {
    return has_body(head) && (head.length == 0 || head.length > (1u << 16));
}
// Some bodies are discarded, some have memory that can't be written.
bool is_wanted(const BulkHead& head) { return head.region % 3 == 1; }
bool is_unwritable(const BulkHead& head) { return head.region % 3 == 2; }
std::byte* unwritable() {
    static void* const at =
        ::mmap(nullptr, 1u << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "address space");
    return static_cast<std::byte*>(at);
}

std::vector<Event> bulk_lane(ByteView stream, Input* cuts) {
    std::vector<Event> events;
    const std::size_t waste_bytes = cuts ? 1 + cuts->below(256) : 4096;
    const std::unique_ptr<std::byte[]> waste(new std::byte[waste_bytes]);
    BulkReader reader;
    while (true) {
        for (BulkReader::Step step; (step = reader.step()) != BulkReader::Step::more;) {
            if (step == BulkReader::Step::body_end) {
                must(!events.empty() && !events.back().ended && !reader.in_body(),
                     "a body ends once");
                must(reader.has_write_failed() == is_unwritable(reader.head()),
                     "an unwritable body is reported at its end");
                events.back().ended = true;
                continue;
            }
            events.push_back({reader.head(), {}, false});
            if (is_judged_away(reader.head())) return events;
            if (!has_body(reader.head())) continue;
            if (is_wanted(reader.head())) events.back().body.resize(reader.head().length);
            reader.expect(is_wanted(reader.head())       ? events.back().body.data()
                          : is_unwritable(reader.head()) ? unwritable()
                                                         : nullptr);
        }
        if (stream.empty()) return events;
        iovec pieces[2];
        const std::size_t used =
            reader.room(cuts ? 1 + cuts->below(5000) : 1 << 20, {waste.get(), waste_bytes}, pieces);
        // As the kernel reports it for a read.
        if (pieces[0].iov_base == unwritable() && reader.on_write_failed()) continue;
        const std::size_t read = deliver(stream, {pieces, used}, cuts ? 1 + cuts->below(300) : ~0u);
        must(read > 0, "there is room to read into");
        reader.on_read(read);
    }
}

std::vector<Event> bulk_lane_as_documented(ByteView stream) {
    std::vector<Event> events;
    while (stream.size() >= sizeof(BulkHead)) {
        events.push_back({base::load<BulkHead>(stream.data()), {}, false});
        Event& event = events.back();
        stream = stream.subspan(sizeof(BulkHead));
        if (is_judged_away(event.head)) break;
        if (!has_body(event.head)) continue;
        const ByteView body = stream.first(std::min<std::size_t>(stream.size(), event.head.length));
        stream = stream.subspan(body.size());
        event.ended = body.size() == event.head.length;
        if (!is_wanted(event.head)) continue;
        event.body = fuzz::exact(body);
        event.body.resize(event.head.length);
    }
    return events;
}

void check_bulk(ByteView stream, Input cuts) {
    const std::vector<Event> right = bulk_lane_as_documented(stream);
    must(bulk_lane(stream, nullptr) == right, "heads and bodies are those that were sent");
    must(bulk_lane(stream, &cuts) == right, "for every cut");
}

// ---- greetings
// -----------------------------------------------------------------------------------

struct Greeted {
    HandshakeReader::Read read = HandshakeReader::Read::more;
    std::vector<std::byte> frame;
    std::size_t left = 0;  // Unread bytes of the stream.
};

Greeted greet(ByteView stream, Input* cuts) {
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a socket pair");
    const base::UniqueFd ours(ends[0]), theirs(ends[1]);
    HandshakeReader greeting;
    Greeted result;
    while (result.read == HandshakeReader::Read::more && !stream.empty()) {
        const std::size_t bytes =
            std::min(stream.size(), cuts ? 1 + cuts->below(40) : stream.size());
        must(
            ::send(theirs.get(), stream.data(), bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes),
            "a socket takes a few bytes");
        stream = stream.subspan(bytes);
        result.read = greeting.read(ours.get());
    }
    std::byte rest[4096];
    const ssize_t unread = ::recv(ours.get(), rest, sizeof rest, MSG_DONTWAIT);
    result.left = stream.size() + (unread > 0 ? static_cast<std::size_t>(unread) : 0);
    if (result.read == HandshakeReader::Read::whole) result.frame = fuzz::exact(greeting.frame());
    return result;
}

void check_greeting(ByteView stream, Input cuts) {
    stream = stream.first(std::min<std::size_t>(stream.size(), 2048));
    const Greeted whole = greet(stream, nullptr), pieces = greet(stream, &cuts);
    must(whole.read == pieces.read && whole.frame == pieces.frame && whole.left == pieces.left,
         "a greeting is the same for every cut");
    must(stream.size() - whole.left <= handshake_bytes_max,
         "a handshake reads no more than its limit");
    if (whole.read != HandshakeReader::Read::whole) return;
    must(stream.size() - whole.left == padded(whole.frame.size()),
         "bytes after a greeting are left to the lane");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    const std::uint8_t lane = input.byte();
    const Input cuts(input.take(32));
    const ByteView stream = input.rest();
    switch (lane % 3) {
        case 0: check_talk(stream, cuts); break;
        case 1: check_bulk(stream, cuts); break;
        default: check_greeting(stream, cuts);
    }
    return 0;
}
