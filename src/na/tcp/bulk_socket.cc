// The bulk lane of a peer: its handshake, writing and reading.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

constexpr std::size_t pieces_max = 16;
// Memory may be unreadable for a moment: the write is tried this often before the lane ends.
constexpr std::uint32_t faults_max = 4;

}  // namespace

Bulk& TcpEndpoint::bulk_of(Connection& connection) {
    if (!connection.bulk) {
        connection.bulk = std::make_unique<Bulk>();
        connection.bulk->polled.kind = PolledSocket::Kind::bulk;
        connection.bulk->polled.connection = &connection;
    }
    return *connection.bulk;
}

// Starts the bulk lane, which the side that connected makes.
void TcpEndpoint::open_bulk(Connection& connection) {
    Bulk& bulk = bulk_of(connection);
    if (bulk.phase != BulkPhase::none || connection.phase != PeerPhase::up) return;
    bulk.phase.move_to(BulkPhase::wanted);
    bulk.deadline = now_ + handshake_max;
    ++handshakes_;
    start_bulk_connect(connection);
}

// If it can't start yet, serve_handshakes() retries it.
void TcpEndpoint::start_bulk_connect(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    WEFT_ASSERT(bulk.phase == BulkPhase::wanted && !bulk.polled.socket);
    if (connection.incoming) {
        std::byte* room = connection.out.claim(sizeof(StreamHead), sends_.chunks);
        if (!room) return;
        encode_control(ControlKind::want_bulk, {room, sizeof(StreamHead)});
        connection.out.commit(sizeof(StreamHead), sends_.chunks);
        bulk.phase.move_to(BulkPhase::requested);
        if (!connection.message_socket.full) send_now(connection);
    } else {
        Result<base::UniqueFd> socket = start_connecting(connection.name);
        if (socket && !*socket) return back_off_bulk(bulk);
        if (!socket) return on_bulk_lost(connection, std::string(socket.status().text()));
        bulk.polled.socket = *std::move(socket);
        if (!watch(bulk.polled, true)) return on_bulk_lost(connection, "epoll is full");
        bulk.phase.move_to(BulkPhase::connecting);
    }
}

// Schedules the next attempt at a busy listener.
void TcpEndpoint::back_off_bulk(Bulk& bulk) {
    bulk.retry_at = now_ + ConnectPacer::backoff(++bulk.attempts, parts_.random);
}

// The listener has no room for the lane now.
void TcpEndpoint::retry_bulk(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    close_socket(bulk.polled);
    bulk.handshake = {};
    bulk.phase.move_to(BulkPhase::wanted);
    bulk.deadline = now_ + handshake_max;
    back_off_bulk(bulk);
}

void TcpEndpoint::on_bulk_hang_up(Connection& connection) {
    if (connection.bulk->hang_ups.may_retry(now_)) return retry_bulk(connection);
    on_bulk_lost(connection, "the peer hung up");
}

void TcpEndpoint::on_bulk_connected(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    const int socket = bulk.polled.socket.get();
    const int error = socket_error(socket);
    if (error != 0 && error != ECONNRESET && error != EPIPE) {
        return on_bulk_lost(connection, std::strerror(error));
    }
    use_plain_congestion_control(socket);
    watch_writable(bulk.polled, false);
    bulk.deadline = now_ + handshake_max;  // The listener exists and has its time to answer.
    std::byte frame[handshake_bytes_max];
    const std::size_t bytes = encode_join(connection.ticket, connection.info.context, frame);
    bulk.phase.move_to(BulkPhase::joining);
    if (error == 0 && send_handshake(socket, {frame, bytes})) return;
    read_joined(connection);  // A refusal may have arrived before.
    if (connection.bulk && connection.bulk->phase == BulkPhase::joining) {
        on_bulk_hang_up(connection);
    }
}

void TcpEndpoint::read_joined(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    switch (bulk.handshake.read(bulk.polled.socket.get())) {
        case HandshakeReader::Read::more: return;
        case HandshakeReader::Read::whole: break;
        case HandshakeReader::Read::gone: return on_bulk_hang_up(connection);
        case HandshakeReader::Read::garbage:
            return take_down(connection, Code::data_loss,
                             connection.info.uri + " sent garbage in its handshake");
    }
    const Status status = decode_joined(bulk.handshake.frame());
    if (is_retryable(status.code())) {
        bulk.hang_ups.clear();
        return retry_bulk(connection);
    }
    if (!status.ok()) {
        return on_bulk_lost(connection, std::string(status.text()));
    }
    bring_up_bulk(connection);
}

void TcpEndpoint::bring_up_bulk(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    WEFT_ASSERT(bulk.polled.watch && connection.phase == PeerPhase::up);
    if (bulk.phase != BulkPhase::none) --handshakes_;
    bulk.phase.move_to(BulkPhase::up);
    bulk.deadline = never;
    hot_.touch(bulk.polled);
    if (!bulk.writer.empty()) pump(connection);
}

// A pending peer that presents the ticket of a peer becomes that peer's bulk lane.
Status TcpEndpoint::join(PendingPeer& pending_peer, const Ticket& ticket) {
    Connection* connection = nullptr;
    peers_.for_each([&](Connection& one) {
        const bool may_join = one.phase == PeerPhase::up && one.incoming && one.ticket == ticket;
        if (may_join) connection = &one;
    });
    if (connection) {
        Bulk& bulk = bulk_of(*connection);
        if (bulk.phase == BulkPhase::up) {
            return fail(Code::already_exists, "the peer has a bulk connection");
        }
        std::byte frame[handshake_bytes_max];
        const std::size_t bytes = encode_control(ControlKind::welcome, frame);
        if (!send_handshake(pending_peer.polled.socket.get(), {frame, bytes})) {
            return fail(Code::unavailable, "the peer hung up during the handshake");
        }
        move_socket(pending_peer.polled, bulk.polled);
        drop_pending(pending_peer);
        bring_up_bulk(*connection);
        return {};
    }
    return fail(Code::permission_denied,
                "a ticket that this process did not give out (does a balancer of connections stand "
                "before several servers?)");
}

// The lane is lost or could not be made: its transfers fail. The peer stays up, and the next
// transfer makes a new lane.
void TcpEndpoint::on_bulk_lost(Connection& connection, const std::string& why) {
    close_bulk(connection, Code::unavailable, "the bulk connection: " + why);
}

void TcpEndpoint::close_bulk(Connection& connection, Code code, const std::string& why) {
    if (!connection.bulk) return;
    Bulk& bulk = *connection.bulk;
    if (bulk.phase != BulkPhase::none && bulk.phase != BulkPhase::up) --handshakes_;
    close_socket(bulk.polled);
    bulk.PumpNode::unlink_if_linked();
    bulk.UnderWayNode::unlink_if_linked();
    connection.bulk.reset();
    transfers_.for_each([&](RmaEntry& entry) {
        if (entry.value.connection == &connection) finish(entry, code, why);
    });
}

void TcpEndpoint::serve_bulk_handshake(Connection& connection) {
    if (connection.bulk->deadline <= now_) {
        on_bulk_lost(connection, "it was not made in time");
    } else if (connection.bulk->phase == BulkPhase::wanted && connection.bulk->retry_at <= now_) {
        start_bulk_connect(connection);
    }
}

// ---- writing -----------------------------------------------------------------------------------

// Schedules writes to the lane, in this turn's flush and then with each poll.
void TcpEndpoint::pump(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == PeerPhase::up);
    bulk_.schedule(*connection.bulk);
}

// Writes to each lane once, as long as the turn has room; the others are first in the next turn.
void TcpEndpoint::pump_all() noexcept {
    bulk_.begin_pump(turn_);
    BulkSchedule::Pumping& pumping = bulk_.pumping();
    BulkSchedule::Pumping waiting;
    waiting.splice_back(pumping);
    std::size_t left = BulkThrottle::turn_bytes;
    while (Bulk* bulk = waiting.front()) {
        if (left == 0) {
            bulk_.pump_share().on_left_out();
            break;
        }
        bulk->PumpNode::unlink();
        Connection& connection = *bulk->polled.connection;
        if (bulk->phase == BulkPhase::none) {
            open_bulk(connection);
        } else if (bulk->phase == BulkPhase::up && !bulk->polled.full) {
            left -= write_bulk(connection, bulk_.slice(bulk_.pump_share(), left, now_));
        }
    }
    waiting.splice_back(pumping);
    pumping.splice_back(waiting);
    bulk_.pump_share().end_turn();
}

// Sends at most about `bytes_max`, heads and bodies. Returns the bytes sent, at most `bytes_max`.
std::size_t TcpEndpoint::write_bulk(Connection& connection, std::size_t bytes_max) noexcept {
    Bulk& bulk = *connection.bulk;
    WEFT_DCHECK(bulk.phase == BulkPhase::up && !bulk.polled.full);
    iovec pieces[pieces_max];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = bulk.writer.gather(pieces, bytes_max);
    if (message.msg_iovlen == 0) return 0;
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < message.msg_iovlen; ++i) wanted += pieces[i].iov_len;
    const ssize_t sent = ::sendmsg(bulk.polled.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EFAULT) {
        bulk.faults = drop_unreadable(connection, bytes_max) ? 0 : bulk.faults + 1;
        if (bulk.faults == faults_max) {
            on_bulk_lost(connection,
                         "no socket can send memory of a transfer that a copy can read "
                         "(EFAULT): transfer a copy of it");
        } else if (!bulk.writer.empty()) {
            bulk_.pumping().push_back(bulk);
        }
        return 0;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        on_bulk_lost(connection, std::strerror(errno));
        return 0;
    }
    const std::size_t left = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    bulk.writer.sent(left);
    if (left > 0) {
        bulk.polled.tries = 0;
        bulk.faults = 0;
        bulk_.pump_share().on_served();
    }
    if (left != wanted && !may_retry(bulk.polled)) watch_writable(bulk.polled, true);
    bulk_.note_moved(bulk, left, now_);
    if (!bulk.polled.full && !bulk.writer.empty()) bulk_.pumping().push_back(bulk);
    return std::min(left, bytes_max);
}

// ---- reading -----------------------------------------------------------------------------------

void TcpEndpoint::read_bulk(Connection& connection) noexcept {
    FairShare& share = hot_.lane(PolledSocket::Kind::bulk).share;
    std::size_t budget = bulk_.slice(share, bulk_.bytes_left(), now_);
    bool has_come = false;
    while (true) {
        Bulk& bulk = *connection.bulk;
        iovec pieces[2];
        WEFT_DCHECK(bulk.phase == BulkPhase::up);
        const std::size_t used = bulk.reader.room(budget, bulk_.discarded(), pieces);
        const int socket = bulk.polled.socket.get();
        const ssize_t got =
            used == 1 ? ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                      : ::readv(socket, pieces, 2);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return has_come ? on_read(bulk.polled, true) : on_empty_read(bulk.polled);
        }
        if (got < 0 && errno == EFAULT && bulk.reader.on_write_failed()) continue;
        if (got <= 0) {
            return on_bulk_lost(connection, got == 0 ? "it was closed" : std::strerror(errno));
        }
        const auto bytes = static_cast<std::size_t>(got);
        bulk_.on_received(bytes);
        if (!std::exchange(has_come, true)) share.on_served();
        bulk.reader.on_read(bytes);
        if (const char* broken = process_bulk(connection)) {
            return take_down(connection, Code::data_loss,
                             connection.info.uri + " broke the rules of bulk: " + broken);
        }
        bulk_.note_moved(bulk, bytes, now_);
        const std::size_t asked = pieces[0].iov_len + (used == 2 ? pieces[1].iov_len : 0);
        if (bytes < asked || bytes >= budget) return on_read(bulk.polled, bytes < asked);
        budget -= bytes;
    }
}

}  // namespace weft::na::tcp
