// Which sockets are polled, and when: the few hot ones are read with each poll, the others when
// epoll reports them.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/own_descriptor.h"
#include "na/own_stall.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// Reads without a byte after which a socket is left to epoll.
constexpr std::uint32_t misses_max = 1024;
// How often a write to a full socket is tried again, once or twice a turn, before it is left to
// epoll.
constexpr std::uint32_t tries_max = 16;
constexpr std::uint32_t tries_spinning_max = 1024;
constexpr int events_per_poll = 64;
constexpr std::uint64_t listener_id = 0;

std::uint64_t id_of(base::SlotId id) { return std::uint64_t{id.slot} << 32 | id.generation; }
base::SlotId slot_of(std::uint64_t id) {
    return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

}  // namespace

// False: no memory, or epoll takes no more descriptors.
bool TcpEndpoint::watch(PolledSocket& polled, bool for_writing) {
    WEFT_ASSERT(polled.socket && !polled.watch);
    base::SlotTable<PolledSocket*>::Entry* entry = sockets_.take();
    if (!entry) return false;
    entry->value = &polled;
    polled.watch = entry->id();
    polled.full = for_writing;
    epoll_event wanted{};
    wanted.events = for_writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
    wanted.data.u64 = id_of(polled.watch);
    if (base::check_open(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, polled.socket.get(), &wanted)) ==
        0) {
        return true;
    }
    sockets_.release(*entry);
    polled.watch = {};
    return false;
}

bool TcpEndpoint::watch_listener() {
    return listener_.acceptor.open(epoll_.get(), listener_.door->socket(), listener_id,
                                   send_refusal, {*listener_.door, parts_.context});
}

void TcpEndpoint::unwatch(PolledSocket& polled) {
    hot_.remove(polled);
    if (!polled.watch) return;
    WEFT_ASSERT(sockets_.find(polled.watch));
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, polled.socket.get(), nullptr);
    sockets_.release(*sockets_.find(polled.watch));
    polled.watch = {};
}

void TcpEndpoint::close_socket(PolledSocket& polled) {
    unwatch(polled);
    polled.socket.reset();
    polled.full = false;
}

// Moves the socket with its entry in the epoll set. This can't fail: the peer has been answered.
void TcpEndpoint::move_socket(PolledSocket& from, PolledSocket& to) {
    WEFT_ASSERT(!to.watch && !from.full && !to.full);
    to.socket = std::move(from.socket);
    to.watch = std::exchange(from.watch, {});
    sockets_.find(to.watch)->value = &to;
}

void TcpEndpoint::watch_writable(PolledSocket& polled, bool wanted) {
    if (polled.full == wanted) return;
    WEFT_DCHECK(polled.watch);
    polled.full = wanted;
    epoll_event events{};
    events.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
    events.data.u64 = id_of(polled.watch);
    (void)base::check_open(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, polled.socket.get(), &events));
}

// Whether to try again without epoll: a full socket mostly has room again soon.
bool TcpEndpoint::may_retry(PolledSocket& polled) const noexcept {
    if (++polled.tries <= (parts_.sleeps ? tries_max : tries_spinning_max)) return true;
    polled.tries = 0;
    return false;
}

// Whether this turn has room for the bytes of one more socket.
bool TcpEndpoint::may_read(PolledSocket::Kind kind, std::span<Event> events,
                           std::size_t count) const noexcept {
    if (kind == PolledSocket::Kind::bulk) return bulk_.bytes_left() != 0;
    return count < events.size() && slab_.has_room();
}

// Reads each hot socket at most once.
void TcpEndpoint::read_hot(PolledSocket::Kind kind, std::span<Event> events,
                           std::size_t& count) noexcept {
    HotSockets::Lane& lane = hot_.lane(kind);
    HotSockets::List& waiting = lane.sockets;
    HotSockets::List served;
    while (PolledSocket* polled = waiting.front()) {
        if (!may_read(kind, events, count)) {
            lane.share.on_left_out();
            break;
        }
        polled->unlink();
        served.push_back(*polled);
        read(*polled, events, count);
    }
    waiting.splice_back(served);
}

void TcpEndpoint::read(PolledSocket& polled, std::span<Event> events, std::size_t& count) noexcept {
    WEFT_DCHECK(polled.connection && polled.connection->phase == PeerPhase::up);
    if (polled.kind == PolledSocket::Kind::messages) {
        read_messages(*polled.connection, events, count);
    } else {
        read_bulk(*polled.connection);
    }
}

// After a read with bytes; `all`: the socket has no more.
void TcpEndpoint::on_read(PolledSocket& polled, bool all) noexcept {
    polled.misses = 0;
    if (all) evict_when_crowded(polled);
}

void TcpEndpoint::on_empty_read(PolledSocket& polled) noexcept {
    if (++polled.misses > misses_max) return hot_.remove(polled);
    evict_when_crowded(polled);
}

void TcpEndpoint::evict_when_crowded(PolledSocket& polled) noexcept {
    if (!hot_.is_crowded()) return;
    hot_.remove(polled);
    descriptor_polls_.request();
}

void TcpEndpoint::poll_descriptors(std::span<Event> events, std::size_t& count) noexcept {
    const Duration stall = descriptor_polls_.begin(now_);
    if (stall > Duration::zero()) extend_deadlines(stall);
    epoll_event ready[events_per_poll];
    const int found = base::check_open(::epoll_wait(epoll_.get(), ready, events_per_poll, 0));
    for (int i = 0; i < found; ++i) {
        if (ready[i].data.u64 == listener_id) {
            accept_some();
            continue;
        }
        // Absent if an earlier event closed the socket.
        if (auto* entry = sockets_.find(slot_of(ready[i].data.u64))) {
            handle(*entry->value, ready[i].events, events, count);
        }
    }
    if (handshakes_ != 0 || !pending_peers_.empty()) serve_handshakes();
    listener_.acceptor.serve(now_);
}

void TcpEndpoint::handle(PolledSocket& polled, std::uint32_t ready, std::span<Event> events,
                         std::size_t& count) noexcept {
    const bool readable = (ready & ~std::uint32_t{EPOLLOUT}) != 0;
    const bool writable = (ready & EPOLLOUT) != 0;
    if (polled.kind == PolledSocket::Kind::pending) return read_pending_peer(*polled.pending_peer);
    Connection& connection = *polled.connection;
    if (polled.kind == PolledSocket::Kind::messages) {
        if (connection.phase == PeerPhase::connecting) return on_connected(connection);
        if (connection.phase == PeerPhase::handshaking) return read_welcome(connection);
        if (writable && polled.full) send_now(connection);
        if (!connection.announced) {
            descriptor_polls_.request();
            return;
        }
    } else {
        const BulkPhase phase = connection.bulk->phase;
        WEFT_DCHECK(phase != BulkPhase::none);
        if (phase == BulkPhase::connecting) return on_bulk_connected(connection);
        if (phase == BulkPhase::joining) return read_joined(connection);
        if (writable && polled.full) {
            watch_writable(polled, false);
            pump(connection);
        }
    }
    if (!readable || polled.is_linked() || connection.phase != PeerPhase::up) return;
    // Sockets besides the hot ones are active: epoll is polled again soon.
    descriptor_polls_.request();
    hot_.touch(polled);
    if (!polled.is_linked()) hot_.add(polled);
    if (may_read(polled.kind, events, count)) {
        read(polled, events, count);
    } else {
        hot_.lane(polled.kind).share.on_left_out();
    }
}

}  // namespace weft::na::tcp
