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
    for (int i = 0; i < accepts_per_poll; ++i) {
        if (pending_peers_.size() >= pending_peers_max && !evict_oldest_pending()) return;
        base::UniqueFd socket = listener_.acceptor.accept(now_, parts_.log, address());
        if (!socket) return;
        set_accepted_options(socket.get());
        std::unique_ptr<PendingPeer> accepted(new (std::nothrow) PendingPeer);
        if (!accepted) {
            return send_refusal(socket.get(), listener_without_memory(busy_code));
        }
        pending_peers_.push_back(std::move(accepted));
        PendingPeer& pending_peer = *pending_peers_.back();
        pending_peer.polled.kind = PolledSocket::Kind::pending;
        pending_peer.polled.pending_peer = &pending_peer;
        pending_peer.polled.socket = std::move(socket);
        pending_peer.since = now_;
        pending_peer.deadline = now_ + handshake_max;
        if (!watch(pending_peer.polled, false)) {
            return refuse(pending_peer, fail(busy_code, "epoll takes no more descriptors"));
        }
        read_pending_peer(pending_peer);  // Usually its handshake has arrived already.
    }
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
    const ByteView frame = pending_peer.handshake.frame();
    const bool joins =
        base::load<StreamHead>(frame.data()).kind == static_cast<std::uint8_t>(ControlKind::join);
    Status status;
    if (joins) {
        const Result<Ticket> ticket = decode_join(frame);
        status = ticket ? join(pending_peer, *ticket) : ticket.status();
    } else {
        const Result<Hello> theirs = decode_hello_frame(frame);
        status = theirs ? welcome(pending_peer, *theirs) : theirs.status();
    }
    if (!status.ok()) refuse(pending_peer, status);
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
