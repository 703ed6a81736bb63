// How connections end.
#include <sys/socket.h>
#include <utility>

#include <algorithm>
#include <cstring>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {

TcpEndpoint::~TcpEndpoint() {
    const bool is_child = ::getpid() != owner_;  // Everything belongs to the parent.
    if (is_child) {
        path_.abandon();
        epoll_.reset();  // Its set is the parent's.
    }
    for (const Slot& slot : slots_) {
        Connection* connection = slot.connection.get();
        if (!connection || connection->phase == Phase::down) continue;
        if (!is_child && connection->phase == Phase::up) say_bye(*connection);
        end(*connection, Code::cancelled, "the endpoint ends");
    }
    while (!strangers_.empty()) drop(*strangers_.front());
}

// Takes it out of every list, epoll set and table but its slot: nothing leads to it afterwards.
void TcpEndpoint::end(Connection& connection, Code code, const std::string& why) {
    if (connection.phase < Phase::up) end_handshake(connection);
    if (claimed_ == &connection) claimed_ = nullptr;
    connection.FlushNode::leave();
    connection.WritableNode::leave();
    close_bulk(connection, code, why);
    connection.out.clear(chunks_);
    connection.in.clear(slab_);
    close_lane(connection.talk);
}

void TcpEndpoint::take_down(Connection& connection, Code code, std::string text) {
    if (connection.phase == Phase::down) return;
    end(connection, Code::unavailable, "the connection was lost");
    connection.move_to(Phase::down);
    Notice notice;
    notice.event.kind = EventKind::peer_down;
    notice.event.code = code;
    notice.event.peer = connection.id;
    notice.text = std::move(text);
    notify(std::move(notice));
}

// The talk lane ended, by `error` or, 0, in order.
void TcpEndpoint::lose(Connection& connection, int error) {
    const std::string& uri = connection.info.uri;
    if (connection.said_bye) {
        return take_down(connection, Code::unavailable, uri + " closed the connection");
    }
    take_down(connection, Code::unavailable,
              "lost " + uri + ": " +
                  (error == 0 ? "its end of the connection was closed (the process is gone)"
                              : std::strerror(error)));
}

// What was committed goes out first, as far as the socket takes it.
void TcpEndpoint::say_bye(Connection& connection) {
    if (connection.talk.full) return;
    if (std::byte* room = connection.out.claim(sizeof(StreamHead), chunks_)) {
        encode_signal(Signal::bye, {room, sizeof(StreamHead)});
        connection.out.commit(sizeof(StreamHead), chunks_);
    }
    send_now(connection);
}

// A socket that is closed with bytes unread resets its connection, and what the kernel still has of
// ours is lost with it. What the other kernel acknowledged stays readable there, and what a UNIX
// socket took lies in the peer's already.
std::size_t TcpEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = find(peer);
    if (!connection || connection->phase != Phase::up || connection->lost != 0) return 0;
    const std::size_t queued = connection->out.queued();
    return is_local() ? queued : queued + unacknowledged_bytes(connection->talk.socket.get());
}

// What the kernel has not put on the way yet is dropped by it where the peer answers what it reads
// of the rest: that answer resets the socket.
bool TcpEndpoint::has_left(PeerId peer) const {
    const Connection* const connection = find(peer);
    if (!connection || connection->phase != Phase::up || connection->lost != 0) return true;
    if (!connection->out.empty()) return false;
    return is_local() || waiting_bytes(connection->talk.socket.get()) == 0;
}

bool TcpEndpoint::has_arrived(PeerId peer) {
    Connection* connection = find(peer);
    if (!connection || connection->phase != Phase::up) return false;
    if (is_local()) return true;
    const std::size_t left = unacknowledged_bytes(connection->talk.socket.get());
    return left == 0 || left < std::exchange(connection->unacknowledged, left);
}

void TcpEndpoint::close(PeerId peer) {
    Connection* connection = find(peer);
    if (!connection) return;
    if (connection->phase == Phase::up) say_bye(*connection);
    if (connection->phase != Phase::down) end(*connection, Code::cancelled, "closed here");
    release(peer);
}

std::string TcpEndpoint::why_waiting(PeerId peer) const {
    const Connection* connection = find(peer);
    if (!connection || connection->phase >= Phase::up) return "";
    const std::string& uri = connection->info.uri;
    std::string why = pacer_.why_waiting(uri);
    if (why.empty() && connection->alternatives)
        why = uri + ": " + connection->alternatives->told();
    return why;
}

const PeerInfo* TcpEndpoint::info(PeerId peer) const {
    const Connection* connection = find(peer);
    if (!connection) return nullptr;
    // Until its peer_down is handed out.
    const bool is_known = connection->phase == Phase::up ||
                          (connection->phase == Phase::down && connection->announced);
    return is_known ? &connection->info : nullptr;
}

}  // namespace weft::na::tcp
