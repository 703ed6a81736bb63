// Accepting: pending peers, until they are identified or refused.
#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// The oldest pending peer is refused in favour of the next once it has been silent for this time;
// until then the next ones wait in the listener's queue.
constexpr Duration evictable_after = 5ms;
constexpr int accepts_per_poll = 16;

}  // namespace

void TcpEndpoint::accept_some() {
    // The rest is for those that other contexts pass on, which are admitted at once.
    const std::size_t places = listener_.door->accepting_share(pending_peers_max);
    for (int i = 0; i < accepts_per_poll; ++i) {
        if (pending_peers_.size() >= places && !evict_oldest_pending()) return;
        base::UniqueFd socket = listener_.acceptor.accept(now_, parts_.log, address());
        if (!socket) return;
        set_accepted_options(socket.get());
        if (PendingPeer* const added = add_pending(std::move(socket), now_ + handshake_max))
            read_pending_peer(*added);  // Usually its handshake has arrived already.
    }
}

// nullptr: there is no room for it; it is refused.
PendingPeer* TcpEndpoint::add_pending(base::UniqueFd socket, TimePoint deadline) {
    std::unique_ptr<PendingPeer> accepted(new (std::nothrow) PendingPeer);
    if (!accepted) {
        send_refusal(socket.get(), listener_without_memory(busy_code));
        return nullptr;
    }
    pending_peers_.push_back(std::move(accepted));
    PendingPeer& pending_peer = *pending_peers_.back();
    pending_peer.polled.kind = PolledSocket::Kind::pending;
    pending_peer.polled.pending_peer = &pending_peer;
    pending_peer.polled.socket = std::move(socket);
    pending_peer.since = now_;
    pending_peer.deadline = deadline;
    if (watch(pending_peer.polled, false)) return &pending_peer;
    refuse(pending_peer, fail(busy_code, "epoll takes no more descriptors"));
    return nullptr;
}

// False: all of them connected just now.
bool TcpEndpoint::evict_oldest_pending() {
    WEFT_ASSERT(!pending_peers_.empty());
    PendingPeer& oldest = *pending_peers_.front();
    if (now_ - oldest.since < evictable_after) {
        listener_.acceptor.pause_until(oldest.since + evictable_after);
        return false;
    }
    refuse(oldest, fail(busy_code, "the listener has too many unfinished handshakes"));
    return true;
}

void TcpEndpoint::read_pending_peer(PendingPeer& pending_peer) {
    switch (pending_peer.handshake.read(pending_peer.polled.socket.get())) {
        case HandshakeReader::Read::more: return;
        case HandshakeReader::Read::whole: break;
        case HandshakeReader::Read::gone: drop_pending(pending_peer); return;
        case HandshakeReader::Read::garbage:
            return refuse(pending_peer, fail(Code::data_loss,
                                             "the first frame is no handshake of weft over tcp"));
    }
    Status status = place(pending_peer);
    if (!status.ok()) refuse(pending_peer, status);
}

static bool is_join(ByteView frame) { return is_control(frame, ControlKind::join); }

// The connect no longer counts as one that the listener has not seen.
static void send_passed(int socket) {
    std::byte frame[sizeof(StreamHead)];
    (void)send_handshake(socket, {frame, encode_control(ControlKind::passed, frame)});
}

// Admits the peer, or passes it to the context that it is for.
Status TcpEndpoint::place(PendingPeer& pending_peer) {
    const ByteView frame = pending_peer.handshake.frame();
    TcpDoor& door = *listener_.door;
    if (is_join(frame)) {
        const std::uint16_t named = context_of_join(frame);  // 0, or unknown: answered here.
        const bool is_others =
            named != 0 && named <= door.contexts() && named - 1 != parts_.context;
        return is_others ? pass_on(pending_peer, static_cast<std::uint16_t>(named - 1))
                         : admit(pending_peer);
    }
    const Result<Hello> theirs = decode_hello_frame(frame);
    if (!theirs) return theirs.status();
    Result<Placement::Place> place = door.placement().place(
        {theirs->incarnation, theirs->context, theirs->wanted}, now_, parts_.random);
    if (!place) return std::move(place).status();
    pending_peer.place = *std::move(place);
    const std::uint16_t context = pending_peer.place.context();
    if (context == parts_.context) return admit(pending_peer);
    if (!door.has_room(context)) return listener_context_is_full(context);
    if ((theirs->features & feature::contexts) != 0) send_passed(pending_peer.polled.socket.get());
    return pass_on(pending_peer, context);
}

// The peer has a whole frame, and is at its context.
Status TcpEndpoint::admit(PendingPeer& pending_peer) {
    const ByteView frame = pending_peer.handshake.frame();
    if (is_join(frame)) {
        const Result<Ticket> ticket = decode_join(frame);
        return ticket ? join(pending_peer, *ticket) : ticket.status();
    }
    const Result<Hello> theirs = decode_hello_frame(frame);
    return theirs ? welcome(pending_peer, *theirs) : theirs.status();
}

Status TcpEndpoint::pass_on(PendingPeer& pending_peer, std::uint16_t context) {
    unwatch(pending_peer.polled);
    PassedPeer passed{std::move(pending_peer.polled.socket), pending_peer.handshake,
                      std::move(pending_peer.place), pending_peer.deadline};
    drop_pending(pending_peer);
    const std::shared_ptr<PassedPeer> shared = share_part(passed);
    if (!shared) {
        send_refusal(passed.socket.get(), listener_without_memory(busy_code));
        return {};
    }
    const bool is_passed = listener_.door->pass(context, now_, [shared](Endpoint* to) {
        if (to) static_cast<TcpEndpoint*>(to)->take_passed(std::move(*shared));
    });
    if (!is_passed) send_refusal(shared->socket.get(), listener_context_is_full(context));
    return {};
}

// In a turn of this context, between two polls.
void TcpEndpoint::take_passed(PassedPeer passed) {
    if (pending_peers_.size() >= pending_peers_max) {
        return send_refusal(passed.socket.get(),
                            fail(busy_code, "the listener has too many unfinished handshakes"));
    }
    PendingPeer* const added = add_pending(std::move(passed.socket), passed.deadline);
    if (!added) return;
    added->handshake = passed.handshake;
    added->place = std::move(passed.place);
    if (Status status = admit(*added); !status.ok()) refuse(*added, status);
}

// Gives an incoming peer a slot and sends the welcome, after which the peer may use the connection.
Status TcpEndpoint::welcome(PendingPeer& pending_peer, const Hello& theirs) {
    if (!has_slot()) return listener_at_peers_max(parts_.peers_max);
    Connection* const added = add_peer();
    if (!added) return listener_without_memory();
    Connection& connection = *added;
    connection.incoming = true;
    connection.phase.move_to(PeerPhase::handshaking);  // The first phase of an incoming peer.
    connection.info.uri = theirs.uri.empty() ? "an unnamed peer" : theirs.uri;
    apply_hello(connection.info, theirs, limits_);
    connection.place = std::move(pending_peer.place);
    connection.ticket = {parts_.random.next(), parts_.random.next()};
    std::byte frame[handshake_bytes_max];
    const std::size_t bytes =
        encode_welcome(connection.ticket, hello(pending_peer.polled.socket.get()), frame);
    if (!send_handshake(pending_peer.polled.socket.get(), {frame, bytes})) {
        peers_.remove(connection.id);
        return fail(Code::unavailable, "the peer hung up during the handshake");
    }
    move_socket(pending_peer.polled, connection.message_socket);
    drop_pending(pending_peer);
    ++handshakes_;
    bring_up(connection);
    return {};
}

void TcpEndpoint::refuse(PendingPeer& pending_peer, const Status& why) {
    parts_.log.write_rate_limited(LogLevel::info, now_,
                                  "refused a connection to " + address() + ": " + why.to_string());
    send_refusal(pending_peer.polled.socket.get(), why);
    drop_pending(pending_peer);
}

void TcpEndpoint::drop_pending(PendingPeer& pending_peer) {
    WEFT_ASSERT(pending_peer.polled.pending_peer == &pending_peer);
    close_socket(pending_peer.polled);
    std::erase_if(pending_peers_, [&](const auto& one) { return one.get() == &pending_peer; });
    listener_.acceptor.resume();
}

}  // namespace weft::na::tcp
