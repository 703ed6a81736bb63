// How connections end.
#include <sys/socket.h>
#include <utility>

#include <algorithm>
#include <cstring>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {

TcpEndpoint::~TcpEndpoint() {
    const bool is_child = ::getpid() != owner_;  // Then everything belongs to the parent.
    if (listener_.door) listener_.door->leave(parts_.context);
    if (is_child) {
        if (listener_.door) listener_.door->abandon();
        epoll_.reset();  // The epoll set is the parent's.
    }
    peers_.for_each([&](Connection& connection) {
        if (connection.phase == PeerPhase::down) return;
        if (!is_child && connection.phase == PeerPhase::up) send_bye(connection);
        end(connection, Code::cancelled, "the endpoint ends");
    });
    while (!pending_peers_.empty()) drop_pending(*pending_peers_.front());
}

// Removes the connection from every list, epoll set and table except its slot: nothing refers to it
// afterwards.
void TcpEndpoint::end(Connection& connection, Code code, const std::string& why) {
    WEFT_ASSERT(connection.phase != PeerPhase::down);
    if (connection.phase < PeerPhase::up) end_handshake(connection);
    if (sends_.claimed == &connection) sends_.claimed = nullptr;
    connection.FlushNode::unlink_if_linked();
    connection.WritableNode::unlink_if_linked();
    close_bulk(connection, code, why);
    connection.out.clear(sends_.chunks);
    connection.in.clear(slab_);
    close_socket(connection.message_socket);
}

void TcpEndpoint::take_down(Connection& connection, Code code, std::string text) {
    if (connection.phase == PeerPhase::down) return;
    end(connection, Code::unavailable, "the connection was lost");
    connection.phase.move_to(PeerPhase::down);
    events_.waiting.push(down_event(connection.id, code), std::move(text));
}

// The talk lane ended: with `error` or, if 0, in order.
void TcpEndpoint::on_connection_lost(Connection& connection, int error) {
    const std::string& uri = connection.info.uri;
    if (connection.received_bye) {
        return take_down(connection, Code::unavailable, uri + " closed the connection");
    }
    take_down(connection, Code::unavailable,
              "lost " + uri + ": " +
                  (error == 0 ? "its end of the connection was closed (the process has ended)"
                              : std::strerror(error)));
}

// Committed messages are sent first, as far as the socket takes them.
void TcpEndpoint::send_bye(Connection& connection) {
    if (connection.message_socket.full) return;
    if (std::byte* room = connection.out.claim(sizeof(StreamHead), sends_.chunks)) {
        encode_control(ControlKind::bye, {room, sizeof(StreamHead)});
        connection.out.commit(sizeof(StreamHead), sends_.chunks);
    }
    send_now(connection);
}

// Closing a socket with unread bytes resets its connection, which drops the bytes that the local
// kernel still holds. Bytes that the peer's kernel acknowledged stay readable there; bytes that a
// UNIX socket took are in the peer's socket already.
std::size_t TcpEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = peers_.find(peer);
    if (!connection || connection->phase != PeerPhase::up || connection->write_error != 0) return 0;
    const std::size_t queued = connection->out.queued();
    return is_local() ? queued
                      : queued + unacknowledged_bytes(connection->message_socket.socket.get());
}

// If the peer answers bytes that it reads after this side has closed, the answer resets the socket,
// and the kernel drops the bytes that it has not sent yet.
bool TcpEndpoint::has_left(PeerId peer) const {
    const Connection* const connection = peers_.find(peer);
    if (!connection || connection->phase != PeerPhase::up || connection->write_error != 0)
        return true;
    if (!connection->out.empty()) return false;
    return is_local() || waiting_bytes(connection->message_socket.socket.get()) == 0;
}

bool TcpEndpoint::has_arrived(PeerId peer) {
    Connection* connection = peers_.find_up(peer);
    if (!connection) return false;
    if (is_local()) return true;
    const std::size_t left = unacknowledged_bytes(connection->message_socket.socket.get());
    return left == 0 || left < std::exchange(connection->unacknowledged, left);
}

void TcpEndpoint::close(PeerId peer) {
    Connection* connection = peers_.find(peer);
    if (!connection) return;
    if (connection->phase == PeerPhase::up) send_bye(*connection);
    if (connection->phase != PeerPhase::down)
        end(*connection, Code::cancelled, "this side closed the connection");
    peers_.remove(peer);
}

std::string TcpEndpoint::why_waiting(PeerId peer) const {
    const Connection* connection = peers_.find(peer);
    if (!connection || connection->phase >= PeerPhase::up) return "";
    const std::string& uri = connection->info.uri;
    std::string why = pacer_.why_waiting(uri);
    if (why.empty() && connection->candidates)
        why = uri + ": " + connection->candidates->describe();
    return why;
}

const PeerInfo* TcpEndpoint::info(PeerId peer) const {
    const Connection* connection = peers_.find(peer);
    if (!connection) return nullptr;
    // Until its peer_down is returned.
    const bool is_known = connection->phase == PeerPhase::up ||
                          (connection->phase == PeerPhase::down && connection->announced);
    return is_known ? &connection->info : nullptr;
}

}  // namespace weft::na::tcp
