// An endpoint of tcp with exposed memory, and a peer that sends the input on its lanes. The
// endpoint is checked against a model: which puts and gets are good, their replies, and the memory
// afterwards.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "fuzz/fuzz.h"
#include "na/address.h"
#include "na/arena.h"
#include "na/socket_name.h"
#include "na/tcp/tcp.h"
#include "na/tcp/wire.h"

using namespace weft;
using namespace weft::na;
using namespace weft::na::tcp;
using fuzz::must;

namespace {

constexpr std::uint32_t transfer_bytes_max = 1 << 20;

// One of the endpoint's regions, and its state in the model.
struct Memory {
    std::uint32_t generation;
    Access access;
    std::vector<std::byte> bytes;
    std::vector<std::byte> expected;
    std::uint64_t key = 0;
};

class Owner {
  public:
    Owner() : address_{"unix", "/tmp/weft-fuzz-" + std::to_string(::getpid()), "", 0} {
        endpoint =
            provider_->open(&address_, {random_, log_, *arena_, {1, 2}, "", 8}, now_).value();
        expose({1, Access::read_write, {}, {}}, 4096);
        expose({7, Access::read, {}, {}}, 1000);
        expose({1, Access::write, {}, {}}, 1);
    }

    void poll() {
        std::array<Event, 8> events;
        now_ += 1ms;  // Long enough for a check of every socket.
        const std::size_t count = endpoint->poll(events, now_);
        for (std::size_t i = 0; i < count; ++i) {
            const Event& event = events[i];
            if (event.kind == EventKind::peer_up) ++up;
            if (event.kind == EventKind::peer_down) --up;
            must(event.kind != EventKind::rma_done, "nothing was posted");
            if (event.kind == EventKind::message) check_message(event.bytes);
        }
        endpoint->flush();
    }
    // All sent bytes have been read.
    void run_until_idle() {
        for (int i = 0; i < 6; ++i) poll();
    }
    void pass(Duration time) { now_ += time; }

    base::UniqueFd connect() {
        const SocketName name = *SocketName::from_path(address_.name);
        base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        must(::connect(socket.get(), name.get(), static_cast<socklen_t>(name.size())) == 0,
             "the endpoint listens");
        return socket;
    }
    void fence(std::uint32_t region) {
        endpoint->fence(region, Holders::done);
        memory[region].access = Access::none;
    }

    std::deque<Memory> memory;  // Its elements never move, and outlive the endpoint.
    std::unique_ptr<Endpoint> endpoint;
    int up = 0;  // Peers.

  private:
    void expose(Memory what, std::size_t bytes) {
        const auto region = static_cast<std::uint32_t>(memory.size());
        what.key = random_.next();
        what.bytes.resize(bytes);
        for (std::size_t i = 0; i < bytes; ++i) what.bytes[i] = static_cast<std::byte>(i ^ region);
        what.expected = what.bytes;
        memory.push_back(std::move(what));
        Memory& kept = memory.back();
        must(endpoint->expose({region, kept.generation, kept.key, kept.bytes, kept.access}).ok(),
             "exposed");
    }
    static void check_message(ByteView message) {
        must(message.size() >= sizeof(StreamHead), "a message has a head");
        must(base::load<StreamHead>(message.data()).kind < first_control, "no signal comes out");
    }

    base::SeededRandom random_{1};
    base::Log log_{LogLevel::off};
    std::shared_ptr<Arena> arena_ = Arena::make(1 << 20);
    std::unique_ptr<Provider> provider_ = make_unix_provider();
    const Address address_;
    TimePoint now_{1'000s};
};

// Sends as much as the socket takes; the endpoint reads meanwhile. False: it disconnected.
bool say(Owner& owner, int socket, ByteView bytes) {
    for (int tries = 0; !bytes.empty() && tries < 1000; ++tries) {
        const ssize_t sent =
            ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
        if (!bytes.empty()) owner.poll();
    }
    return bytes.empty();
}

// Exactly that many bytes of a reply; fewer: it disconnected.
std::vector<std::byte> hear(Owner& owner, int socket, std::size_t bytes) {
    std::vector<std::byte> heard(bytes);
    std::size_t have = 0;
    for (int tries = 0; have < bytes && tries < 1000; ++tries) {
        const ssize_t got = ::recv(socket, heard.data() + have, bytes - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) break;
        if (got > 0) have += static_cast<std::size_t>(got);
        if (have < bytes) owner.poll();
    }
    heard.resize(have);
    return heard;
}

// A peer that has completed the handshake on both lanes.
struct Peer {
    base::UniqueFd talk, bulk;
    explicit Peer(Owner& owner) : talk(owner.connect()), bulk(owner.connect()) {
        std::byte room[handshake_bytes_max];
        const Hello hello{{77, 88}, 65 * 1024, 64 * 1024, "unix:///raw"};
        must(say(owner, talk.get(), {room, encode_hello(hello, room)}), "a hello leaves");
        const auto welcome = decode_welcome(frame(owner, talk.get()));
        must(welcome.ok(), "a good hello is welcome");
        must(say(owner, bulk.get(), {room, encode_join(welcome->ticket, 0, room)}),
             "a join leaves");
        must(decode_joined(frame(owner, bulk.get())).ok(), "a good ticket joins");
        owner.run_until_idle();
    }
    static std::vector<std::byte> frame(Owner& owner, int socket) {
        std::vector<std::byte> whole = hear(owner, socket, sizeof(StreamHead));
        must(whole.size() == sizeof(StreamHead), "an answer");
        const auto head = base::load<StreamHead>(whole.data());
        const auto rest = hear(owner, socket, padded(head.bytes) - sizeof head);
        whole.insert(whole.end(), rest.begin(), rest.end());
        whole.resize(head.bytes);
        return whole;
    }
};

// ---- the model
// -----------------------------------------------------------------------------------

Refusal judge(const Owner& owner, const BulkHead& head) {
    if (head.region >= owner.memory.size()) return Refusal::no_region;
    const Memory& memory = owner.memory[head.region];
    const bool reads = head.op == BulkOp::get;
    if (memory.generation != head.generation) return Refusal::stale;
    if (memory.access == Access::none) return Refusal::revoked;
    if (memory.key != head.key) return Refusal::key;
    if (!allows(memory.access, reads ? Access::read : Access::write)) {
        return reads ? Refusal::not_readable : Refusal::not_writable;
    }
    __extension__ using Wide = unsigned __int128;
    if (Wide{head.offset} + head.length > memory.bytes.size()) return Refusal::range;
    return Refusal::none;
}

// Usually a good head.
BulkHead head_of(const Owner& owner, fuzz::Input& input) {
    BulkHead head;
    const std::uint8_t choice = input.byte();
    head.op = choice % 2 == 0 ? BulkOp::put : BulkOp::get;
    head.region = choice / 2 % 4;
    head.transfer = input.byte();
    if (head.region < owner.memory.size()) {
        const Memory& memory = owner.memory[head.region];
        head.generation = memory.generation;
        head.key = memory.key;
        head.offset = input.below(memory.bytes.size() + 1);
        head.length =
            1 + static_cast<std::uint32_t>(input.below(memory.bytes.size() + 1 - head.offset));
    } else {
        head.length = 1 + input.byte();
    }
    switch (choice / 8) {
        case 1: head.op = input.value<BulkOp>(); break;
        case 2: head.region = input.value<std::uint32_t>(); break;
        case 3: head.generation = input.value<std::uint32_t>(); break;
        case 4: head.key ^= input.value<std::uint64_t>(); break;
        case 5: head.offset = input.value<std::uint64_t>(); break;
        case 6: head.length = input.value<std::uint32_t>() % (transfer_bytes_max + 2); break;
        case 7: head.transfer = input.value<std::uint64_t>(); break;
        case 8: head.reserved = input.byte(); break;
        default: break;
    }
    return head;
}

// True: the head alone ends the connection.
bool breaks_the_rules(const BulkHead& head) {
    const bool asks = head.op == BulkOp::put || head.op == BulkOp::get;
    return !asks || head.length == 0 || head.length > transfer_bytes_max;
}

void check_done(Owner& owner, int socket, const BulkHead& asked, Refusal right) {
    const auto answer = hear(owner, socket, sizeof(BulkHead));
    must(answer.size() == sizeof(BulkHead), "every request is replied to");
    const auto done = base::load<BulkHead>(answer.data());
    must(done.op == BulkOp::done && done.transfer == asked.transfer, "by a done of that name");
    must((done.code == 0) == (right == Refusal::none), "it succeeds exactly when the model does");
    must(done.why == static_cast<std::uint8_t>(right), "for the reason that the model has");
}

void check_data(Owner& owner, int socket, const BulkHead& asked) {
    const auto answer = hear(owner, socket, sizeof(BulkHead));
    must(answer.size() == sizeof(BulkHead), "a get is replied to");
    const auto data = base::load<BulkHead>(answer.data());
    must(data.op == BulkOp::data && data.transfer == asked.transfer && data.length == asked.length,
         "by the requested length");
    const Memory& memory = owner.memory[asked.region];
    const auto body = hear(owner, socket, asked.length);
    must(std::ranges::equal(body, ByteView(memory.expected).subspan(asked.offset, asked.length)),
         "a get returns the memory");
}

void check_memory(const Owner& owner) {
    for (const Memory& memory : owner.memory) {
        must(memory.bytes == memory.expected, "nothing else was written");
    }
}

// Sends the body in pieces, sometimes with a fence between them; returns the expected reply.
Refusal put(Owner& owner, int socket, const BulkHead& head, fuzz::Input& input) {
    Refusal right = judge(owner, head);
    const std::vector<std::byte> body(head.length, static_cast<std::byte>(input.byte()));
    const std::size_t cut = input.byte() % 2 == 0 ? body.size() : input.below(body.size() + 1);
    Memory* const memory = right == Refusal::none ? &owner.memory[head.region] : nullptr;
    std::byte* const at = memory ? memory->expected.data() + head.offset : nullptr;
    must(say(owner, socket, ByteView(body).first(cut)), "a body leaves");
    if (at) std::memcpy(at, body.data(), cut);
    if (cut < body.size()) {
        owner.run_until_idle();
        const std::size_t fenced = input.byte() % 8;
        if (fenced < owner.memory.size()) {
            owner.fence(static_cast<std::uint32_t>(fenced));
            if (right == Refusal::none && fenced == head.region) right = Refusal::revoked;
        }
        must(say(owner, socket, ByteView(body).subspan(cut)), "the rest of its bytes is sent");
        if (at && right == Refusal::none)
            std::memcpy(at + cut, body.data() + cut, body.size() - cut);
    }
    return right;
}

void play_bulk(Owner& owner, fuzz::Input& input) {
    const Peer peer(owner);
    const int socket = peer.bulk.get();
    for (int steps = 0; steps < 40 && !input.empty(); ++steps) {
        const BulkHead head = head_of(owner, input);
        const bool fatal = breaks_the_rules(head);
        const Refusal refusal = judge(owner, head);
        must(say(owner, socket, {reinterpret_cast<const std::byte*>(&head), sizeof head}),
             "a head leaves");
        if (fatal) {
            for (int i = 0; i < 100 && owner.up > 0; ++i) owner.poll();
            must(owner.up == 0, "a head that breaks the rules ends the connection");
            break;
        }
        if (head.op == BulkOp::get) {
            if (refusal == Refusal::none) check_data(owner, socket, head);
            check_done(owner, socket, head, refusal);
        } else {
            check_done(owner, socket, head, put(owner, socket, head, input));
        }
        check_memory(owner);
    }
    check_memory(owner);
}

// ---- bytes as they come
// --------------------------------------------------------------------------

void play_bytes(Owner& owner, fuzz::Input& input, std::span<const int> lanes) {
    while (!input.empty()) {
        const std::uint8_t choice = input.byte();
        const ByteView bytes = input.take(1 + input.byte());
        (void)say(owner, lanes[choice % lanes.size()], bytes);
        if (choice & 0x80) owner.poll();
        if (choice == 0x7f) owner.pass(1s);
    }
    owner.run_until_idle();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    Owner owner;
    switch (input.byte() % 4) {
        case 0: {  // Connections that are no peers.
            const base::UniqueFd one = owner.connect(), other = owner.connect();
            const int lanes[] = {one.get(), other.get()};
            play_bytes(owner, input, lanes);
            break;
        }
        case 1: {  // A peer, on both lanes.
            const Peer peer(owner);
            const int lanes[] = {peer.talk.get(), peer.bulk.get()};
            play_bytes(owner, input, lanes);
            break;
        }
        default: play_bulk(owner, input);
    }
    // They have disconnected, and nothing of them is left.
    for (int i = 0; i < 100 && owner.up > 0; ++i) owner.poll();
    must(owner.up == 0, "a disconnected peer is down");
    owner.pass(3s);
    owner.run_until_idle();
    must(owner.endpoint->next_deadline() == never, "no handshake is left");
    const Peer honest(owner);  // The next peer is served.
    return 0;
}
