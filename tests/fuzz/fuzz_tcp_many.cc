// A whole endpoint of tcp and several connections that open, send and end in any order, also in the
// middle of its poll: between two of its system calls, as peers on other cores do. The input is the
// order. The endpoint is checked against the rules at the head of na/provider.h.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <set>
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

constexpr std::size_t sockets_max = 6;
constexpr std::size_t transfers_max = 64;
constexpr std::size_t memory_bytes = 4096;

// A connection by hand, of either side.
struct Raw {
    base::UniqueFd socket;
    std::vector<std::byte> heard;
};

class Crowd {
  public:
    explicit Crowd(fuzz::Input& input) : input_(input) {
        const std::string path = "/tmp/weft-crowd-" + std::to_string(::getpid());
        address_ = {"unix", path, "", 0};
        endpoint_ =
            provider_->open(&address_, {random_, log_, *arena_, {1, 2}, "", 6}, now_).value();
        their_path_ = path + "-raw";
        ::unlink(their_path_.c_str());
        listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const SocketName name = *SocketName::from_path(their_path_);
        must(::bind(listener_.get(), name.get(), static_cast<socklen_t>(name.size())) == 0 &&
                 ::listen(listener_.get(), 8) == 0,
             "the peers listen");
        for (std::size_t i = 0; i < memory_.size(); ++i) expose(i);
    }
    ~Crowd() { ::unlink(their_path_.c_str()); }

    void play() {
        for (int steps = 0; steps < 400 && !input_.empty(); ++steps) act_here(input_.byte());
    }

    // All peers disconnect, and nothing of them is left; the next peer is served.
    void end() {
        raws_ = {};
        for (int i = 0; i < 10; ++i) poll(16);
        // Connections without a reply, or not accepted yet: an endpoint waits for an existing
        // listener. Time passes in steps: one large step would count as a stall of the endpoint.
        for (int i = 0; i < 40; ++i) {
            while (accept()) {
            }
            now_ += 100ms;
            poll(16);
        }
        for (int i = 0; i < 200 && !(peers_.empty() && posted_.empty()); ++i) poll(16);
        must(peers_.empty(), "a disconnected peer is down");
        must(posted_.empty(), "each transfer ends");
        for (int i = 0; i < 10; ++i) poll(16);
        must(endpoint_->next_deadline() == never, "no handshake is left");
        must(endpoint_->arm(), "nothing is left to do");
        raws_[0].socket = connect();
        send_hello(raws_[0]);
        for (int i = 0; i < 10; ++i) poll(16);
        must(peers_.size() == 1, "an honest peer is served");
    }

    // Called between two system calls of a poll.
    void interrupt() {
        if (in_poll_left_ == 0 || input_.empty()) return;
        --in_poll_left_;
        for (int acts = 1 + input_.byte() % 4; acts > 0; --acts) act_there(input_.byte());
    }

  private:
    // A region of the endpoint: `bytes` that peers put and get.
    struct Memory {
        std::vector<std::byte> bytes = std::vector<std::byte>(memory_bytes);
        std::uint32_t generation = 0;
        std::uint64_t key = 0;
        bool fencing = false;
    };

    void expose(std::size_t i) {
        Memory& memory = memory_[i];
        ++memory.generation;
        memory.key = 1 + i;
        memory.fencing = false;
        must(endpoint_
                 ->expose({static_cast<std::uint32_t>(i), memory.generation, memory.key,
                           memory.bytes, Access::read_write})
                 .ok(),
             "exposed");
    }

    Raw& raw() { return raws_[input_.below(sockets_max)]; }

    // An action of the endpoint's user, and the passing of time.
    void act_here(std::uint8_t choice) {
        switch (choice % 16) {
            case 0:
            case 1:
            case 2: return poll(1 + input_.below(16));
            case 3:
                in_poll_left_ = 1 + input_.byte() % 16;
                poll(16);
                in_poll_left_ = 0;
                return;
            case 4: return send(true);
            case 5: return send(false);
            case 6: endpoint_->flush(); return;
            case 7:
                if (const PeerId peer = some_peer()) {
                    endpoint_->close(peer);
                    peers_.erase(key_of(peer));
                }
                return;
            case 8: return post();
            case 9: return fence();
            case 10: now_ += Duration(1ms) * (1 << input_.byte() % 12); return;
            case 11: return call();
            default: return act_there(input_.byte());
        }
    }

    // An action of a peer.
    void act_there(std::uint8_t choice) {
        Raw& one = raw();
        switch (choice % 16) {
            case 0: one = {connect(), {}}; return;
            case 1: one = {accept(), {}}; return;
            case 12:
            case 13: one = {connect(), {}}; return send_hello(one);
            case 14:
            case 15:  // Opens a bulk lane and sends its first bytes.
                one = {connect(), {}};
                send_join(one);
                return choice % 32 < 16 ? say_head(one) : say(one, input_.take(40));
            case 2: return send_hello(one);
            case 3: return send_join(one);
            case 4: return say_welcome(one);
            case 5: return say_head(one);
            case 6: return say_frame(one);
            case 7: return hear(one);
            case 8: one = {}; return;
            case 9:
                if (one.socket) ::shutdown(one.socket.get(), SHUT_WR);
                return;
            case 10: return say(one, input_.take(1 + input_.byte()));
            case 11: {
                const std::vector<std::byte> many(1 + input_.below(40'000));
                return say(one, many);
            }
        }
    }

    base::UniqueFd connect() const {
        const SocketName name = *SocketName::from_path(address_.name);
        base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        // Fails when the queue is full.
        (void)::connect(socket.get(), name.get(), static_cast<socklen_t>(name.size()));
        return socket;
    }
    base::UniqueFd accept() const {
        return base::UniqueFd(static_cast<int>(::syscall(SYS_accept4, listener_.get(), nullptr,
                                                         nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    }

    static void say(Raw& one, ByteView bytes) {
        if (one.socket)
            (void)::send(one.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    void send_hello(Raw& one) {
        std::byte room[handshake_bytes_max];
        const Hello hello{{77, 88}, 65 * 1024, 64 * 1024, "unix:///raw"};
        say(one, {room, encode_hello(hello, room)});
    }
    // With the ticket of another peer's welcome.
    void send_join(Raw& one) {
        std::byte room[handshake_bytes_max];
        const std::size_t start = input_.below(sockets_max);
        Ticket ticket;
        for (std::size_t i = 0; i < sockets_max && ticket == Ticket{}; ++i) {
            ticket = ticket_of(raws_[(start + i) % sockets_max]);
        }
        say(one, {room, encode_join(ticket, 0, room)});
    }
    void say_welcome(Raw& one) {
        std::byte room[handshake_bytes_max];
        const Hello hello{{77, 88}, 65 * 1024, 64 * 1024, "unix:///raw"};
        const bool joins = input_.byte() % 2 == 0;
        say(one, {room, joins ? encode_control(ControlKind::welcome, room)
                              : encode_welcome({3, 4}, hello, room)});
    }
    void say_head(Raw& one) {
        BulkHead head;
        const std::uint8_t choice = input_.byte();
        head.op = static_cast<BulkOp>(choice % 5);
        head.region = choice / 5 % 4;
        head.generation = head.region < memory_.size() ? memory_[head.region].generation : 1;
        head.key = 1 + head.region;
        head.length = 1 + static_cast<std::uint32_t>(input_.below(memory_bytes));
        head.transfer = std::uint64_t{1} << 32 | choice / 20;
        std::vector<std::byte> bytes(sizeof head);
        std::memcpy(bytes.data(), &head, sizeof head);
        const bool has_body = head.op == BulkOp::put || head.op == BulkOp::data;
        if (has_body) bytes.resize(sizeof head + input_.below(head.length + 1));
        say(one, bytes);
    }
    void say_frame(Raw& one) {
        const std::uint8_t choice = input_.byte();
        StreamHead head{choice, 0, 0, sizeof(StreamHead)};
        if (choice % 4 == 0) head.bytes = static_cast<std::uint32_t>(8 + input_.below(70'000));
        std::vector<std::byte> bytes(padded(head.bytes));
        std::memcpy(bytes.data(), &head, sizeof head);
        say(one, ByteView(bytes).first(choice % 8 == 4 ? bytes.size() / 2 : bytes.size()));
    }
    // Reads the start of the stream, which is the greeting.
    static void hear(Raw& one) {
        if (!one.socket) return;
        std::byte room[65536];
        const auto got = ::syscall(SYS_recvfrom, one.socket.get(), room, sizeof room, MSG_DONTWAIT,
                                   nullptr, nullptr);
        if (got > 0 && one.heard.size() < 4096) {
            one.heard.insert(one.heard.end(), room, room + std::min<long>(got, 4096));
        }
    }
    static Ticket ticket_of(Raw& one) {
        hear(one);
        if (one.heard.size() < sizeof(StreamHead)) return {};
        const auto head = base::load<StreamHead>(one.heard.data());
        if (head.bytes < sizeof head || head.bytes > one.heard.size()) return {};
        const auto welcome = decode_welcome(ByteView(one.heard).first(head.bytes));
        return welcome ? welcome->ticket : Ticket{};
    }

    using PeerKey = std::pair<std::uint32_t, std::uint32_t>;
    static PeerKey key_of(PeerId peer) { return {peer.index, peer.generation}; }

    // One of the peers without a reported end.
    PeerId some_peer() {
        if (peers_.empty()) return {};
        auto at = peers_.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(input_.below(peers_.size())));
        return {at->first.first, at->first.second};
    }

    void call() {
        if (const auto peer = endpoint_->connect({"unix", their_path_, "", 0}, now_)) {
            must(peers_.emplace(key_of(*peer), false).second, "an id is never used twice");
        }
    }
    void send(bool at_once) {
        const std::size_t bytes = 8 + input_.below(60'000);
        std::byte* room = endpoint_->reserve(some_peer(), bytes);
        if (!room) return;
        std::memset(room, 0, bytes);
        const std::size_t used = input_.byte() % 8 == 0 ? 0 : bytes;
        (void)(at_once ? endpoint_->commit(used) : endpoint_->commit_later(used));
    }
    void post() {
        if (posted_.size() == transfers_max) return;
        RmaItem item;
        item.kind = input_.byte() % 2 == 0 ? RmaKind::get : RmaKind::put;
        item.peer = some_peer();
        item.local = Bytes(local_).first(input_.below(local_.size() + 1));
        item.cookie = ++cookies_;
        if (endpoint_->post({&item, 1}) == 1) posted_.insert(item.cookie);
    }
    void fence() {
        const std::size_t i = input_.below(memory_.size());
        if (std::exchange(memory_[i].fencing, true)) return;
        endpoint_->fence(static_cast<std::uint32_t>(i), Holders::done);
    }

    void poll(std::size_t batch) {
        std::array<Event, 16> events;
        now_ += 1ms;
        const std::size_t count = endpoint_->poll(std::span(events).first(batch), now_);
        must(count <= batch, "no more events than asked for");
        for (std::size_t i = 0; i < count; ++i) take(events[i]);
    }
    void take(const Event& event) {
        const auto peer = peers_.find(key_of(event.peer));
        switch (event.kind) {
            case EventKind::peer_up:
                if (event.incoming) {
                    must(peers_.emplace(key_of(event.peer), true).second, "a peer comes up once");
                } else {
                    must(peer != peers_.end() && !peer->second, "a peer comes up once");
                    peer->second = true;
                }
                must(endpoint_->info(event.peer) != nullptr, "a peer that is up is known");
                break;
            case EventKind::peer_down:
                must(peer != peers_.end(), "a peer that ends was known");
                must(!endpoint_->error().empty(), "an end has a reason");
                peers_.erase(peer);
                break;
            case EventKind::message:
                must(peer != peers_.end() && peer->second, "only a peer that is up sends");
                must(event.bytes.size() >= sizeof(StreamHead), "a message has a head");
                touch(event.bytes);
                break;
            case EventKind::writable:
                must(peer != peers_.end() && peer->second, "only a peer that is up has room");
                break;
            case EventKind::rma_done:
                must(posted_.erase(event.cookie) == 1, "a transfer ends once");
                break;
            case EventKind::region_fenced:
                must(memory_[event.region].fencing, "only a requested fence is reported");
                expose(event.region);
                break;
        }
    }
    static void touch(ByteView bytes) {
        volatile std::byte last = bytes.back();
        (void)last;
    }

    fuzz::Input& input_;
    base::SeededRandom random_{1};
    base::Log log_{LogLevel::off};
    std::shared_ptr<Arena> arena_ = Arena::make(1 << 20);
    std::unique_ptr<Provider> provider_ = make_unix_provider();
    Address address_;
    std::string their_path_;
    base::UniqueFd listener_;
    TimePoint now_{1'000s};
    std::array<Memory, 3> memory_;
    std::vector<std::byte> local_ = std::vector<std::byte>(memory_bytes);
    std::unique_ptr<Endpoint> endpoint_;
    std::array<Raw, sockets_max> raws_;
    std::map<PeerKey, bool> peers_;  // Whether it is up.
    std::set<std::uint64_t> posted_;
    std::uint64_t cookies_ = 0;
    int in_poll_left_ = 0;
};

Crowd* playing = nullptr;

void interrupt() {
    if (playing) playing->interrupt();
}

}  // namespace

// Replaces the endpoint's system calls.
extern "C" {
int accept4(int socket, sockaddr* name, socklen_t* size, int flags) {
    interrupt();
    return static_cast<int>(::syscall(SYS_accept4, socket, name, size, flags));
}
ssize_t recv(int socket, void* to, std::size_t bytes, int flags) {
    interrupt();
    return ::syscall(SYS_recvfrom, socket, to, bytes, flags, nullptr, nullptr);
}
int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout) {
    interrupt();
    return static_cast<int>(
        ::syscall(SYS_epoll_pwait, epoll, events, events_max, timeout, nullptr, 8));
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    Crowd crowd(input);
    playing = &crowd;
    crowd.play();
    crowd.end();
    playing = nullptr;
    return 0;
}
}
