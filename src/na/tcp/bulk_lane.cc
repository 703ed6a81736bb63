// The bulk lane of a peer: how it is made, and how it is written and read.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// Below the promise of 3 s for a peer that does not answer.
constexpr Duration bulk_handshake_max = 2500ms;
constexpr Duration stands_still_after = 50ms;
constexpr std::size_t pieces_max = 16;
// Memory may have been unreadable for a moment: the lane is written so often before it ends.
constexpr std::uint32_t faults_max = 4;

}  // namespace

Bulk& TcpEndpoint::bulk_of(Connection& connection) {
    if (!connection.bulk) {
        connection.bulk = std::make_unique<Bulk>();
        connection.bulk->lane.kind = Lane::Kind::bulk;
        connection.bulk->lane.connection = &connection;
    }
    return *connection.bulk;
}

// Has it made, by whichever side connected.
void TcpEndpoint::open_bulk(Connection& connection) {
    Bulk& bulk = bulk_of(connection);
    if (bulk.phase != BulkPhase::none || connection.phase != Phase::up) return;
    bulk.phase = BulkPhase::wanted;
    bulk.deadline = now_ + bulk_handshake_max;
    ++handshakes_;
    try_opening_bulk(connection);
}

// When it can't be begun yet, serve_handshakes() comes back to it.
void TcpEndpoint::try_opening_bulk(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    if (connection.incoming) {
        std::byte* room = connection.out.claim(sizeof(StreamHead), chunks_);
        if (!room) return;
        encode_signal(Signal::want_bulk, {room, sizeof(StreamHead)});
        connection.out.commit(sizeof(StreamHead), chunks_);
        bulk.phase = BulkPhase::asked;
        if (!connection.talk.full) send_now(connection);
    } else {
        Result<base::UniqueFd> socket = start_connecting(connection.name);
        if (socket && !*socket) return rest_bulk(bulk);
        if (!socket) return lose_bulk(connection, std::string(socket.status().text()));
        bulk.lane.socket = *std::move(socket);
        if (!watch(bulk.lane, true)) return lose_bulk(connection, "epoll is full");
        bulk.phase = BulkPhase::connecting;
    }
}

// Before the next attempt: the listener is busy.
void TcpEndpoint::rest_bulk(Bulk& bulk) {
    bulk.retry_at = now_ + ConnectPacer::pause(++bulk.attempts, parts_.random);
}

// The listener is there and has no place for the lane now.
void TcpEndpoint::try_bulk_again(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    close_lane(bulk.lane);
    bulk.greeting = {};
    bulk.phase = BulkPhase::wanted;
    bulk.deadline = now_ + bulk_handshake_max;
    rest_bulk(bulk);
}

void TcpEndpoint::on_bulk_hang_up(Connection& connection) {
    if (connection.bulk->hang_ups.may_try_again(now_)) return try_bulk_again(connection);
    lose_bulk(connection, "it hung up");
}

void TcpEndpoint::on_bulk_connected(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    const int socket = bulk.lane.socket.get();
    const int error = socket_error(socket);
    if (error != 0 && error != ECONNRESET && error != EPIPE) {
        return lose_bulk(connection, std::strerror(error));
    }
    use_plain_congestion_control(socket);
    want_room(bulk.lane, false);
    bulk.deadline = now_ + bulk_handshake_max;  // It is there, and has its time to answer.
    std::byte frame[greeting_bytes_max];
    const std::size_t bytes = encode_join(connection.ticket, frame);
    bulk.phase = BulkPhase::joining;
    if (error == 0 && send_greeting(socket, {frame, bytes})) return;
    read_joined(connection);  // A refusal that came before is there.
    if (connection.bulk && connection.bulk->phase == BulkPhase::joining) {
        on_bulk_hang_up(connection);
    }
}

void TcpEndpoint::read_joined(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    switch (bulk.greeting.read(bulk.lane.socket.get())) {
        case Greeting::Read::more: return;
        case Greeting::Read::whole: break;
        case Greeting::Read::gone: return on_bulk_hang_up(connection);
        case Greeting::Read::garbage:
            return take_down(connection, Code::data_loss,
                             connection.info.uri + " sent garbage for a greeting");
    }
    const Status status = decode_joined(bulk.greeting.frame());
    if (may_be_tried_again(status.code())) {
        bulk.hang_ups.clear();
        return try_bulk_again(connection);
    }
    if (!status.ok()) {
        return lose_bulk(connection, std::string(status.text()));
    }
    bulk_up(connection);
}

void TcpEndpoint::bulk_up(Connection& connection) {
    Bulk& bulk = *connection.bulk;
    if (bulk.phase != BulkPhase::none) --handshakes_;
    bulk.phase = BulkPhase::up;
    bulk.deadline = never;
    heat(bulk.lane);
    if (!bulk.writer.empty()) pump(connection);
}

// A stranger that shows the ticket of a peer is the peer's bulk lane.
Status TcpEndpoint::join(Stranger& stranger, const Ticket& ticket) {
    for (const Slot& slot : slots_) {
        Connection* connection = slot.connection.get();
        if (!connection || connection->phase != Phase::up || !connection->incoming ||
            connection->ticket != ticket) {
            continue;
        }
        Bulk& bulk = bulk_of(*connection);
        if (bulk.phase == BulkPhase::up) {
            return fail(Code::already_exists, "the peer has a bulk connection");
        }
        std::byte frame[greeting_bytes_max];
        const std::size_t bytes = encode_signal(Signal::welcome, frame);
        if (!send_greeting(stranger.lane.socket.get(), {frame, bytes})) {
            return fail(Code::unavailable, "it hung up during the handshake");
        }
        hand_over(stranger.lane, bulk.lane);
        drop(stranger);
        bulk_up(*connection);
        return {};
    }
    return fail(Code::permission_denied,
                "a ticket that this process did not give out (does a balancer of connections stand "
                "before several servers?)");
}

// The lane is gone or could not be made; what was under way on it fails. The peer lives on, and the
// next transfer has a new one made.
void TcpEndpoint::lose_bulk(Connection& connection, const std::string& why) {
    close_bulk(connection, Code::unavailable, "the bulk connection: " + why);
}

void TcpEndpoint::close_bulk(Connection& connection, Code code, const std::string& why) {
    if (!connection.bulk) return;
    Bulk& bulk = *connection.bulk;
    if (bulk.phase != BulkPhase::none && bulk.phase != BulkPhase::up) --handshakes_;
    close_lane(bulk.lane);
    bulk.PumpNode::leave();
    bulk.UnderWayNode::leave();
    connection.bulk.reset();
    transfers_.for_each([&](TransferEntry& entry) {
        if (entry.value.connection == &connection) finish(entry, code, why);
    });
}

void TcpEndpoint::serve_bulk_handshake(Connection& connection) {
    if (connection.bulk->deadline <= now_) {
        lose_bulk(connection, "it was not made in time");
    } else if (connection.bulk->phase == BulkPhase::wanted && connection.bulk->retry_at <= now_) {
        try_opening_bulk(connection);
    }
}

// ---- writing -----------------------------------------------------------------------------------

void TcpEndpoint::note_moved(Bulk& bulk, std::size_t bytes) {
    pace_.moved(now_, bytes);
    bulk.UnderWayNode::leave();
    if (!bulk.is_under_way()) return;
    bulk.moved_at = now_;
    under_way_.push_back(bulk);
}

// A peer that stands still in the middle of a transfer makes nobody else's slow.
bool TcpEndpoint::is_moving_bulk() {
    if (!pumping_.empty()) return true;
    const Bulk* last = under_way_.back();
    return last && now_ - last->moved_at < stands_still_after;
}

// Has it written to, in this turn's flush and from then on with each poll.
void TcpEndpoint::pump(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == Phase::up);
    if (connection.bulk->PumpNode::is_linked()) return;
    pumping_.push_back(*connection.bulk);
    pumped_turn_ = 0;
}

// Each once, as long as the turn has room; the others come first next time.
void TcpEndpoint::pump_all() noexcept {
    pumped_turn_ = turn_;
    base::IntrusiveList<Bulk, PumpNode> waiting;
    waiting.splice_back(pumping_);
    std::size_t left = Pace::turn_bytes;
    while (Bulk* bulk = waiting.front()) {
        if (left == 0) {
            pump_share_.left_out();
            break;
        }
        bulk->PumpNode::unlink();
        Connection& connection = *bulk->lane.connection;
        if (bulk->phase == BulkPhase::none) {
            open_bulk(connection);
        } else if (bulk->phase == BulkPhase::up && !bulk->lane.full) {
            left -= write_bulk(connection, bulk_slice(pump_share_, left));
        }
    }
    waiting.splice_back(pumping_);
    pumping_.splice_back(waiting);
    pump_share_.end_turn();
}

// What a lane may move, of the bytes that are left of a turn.
std::size_t TcpEndpoint::bulk_slice(const Share& share, std::size_t left) const noexcept {
    const std::size_t slice = share.of(pace_.slice_bytes(now_));
    return std::min(left, std::max(slice, Pace::slice_bytes_busy));
}

// Returns the bytes that left, bodies and heads, at most about `bytes_max`.
std::size_t TcpEndpoint::write_bulk(Connection& connection, std::size_t bytes_max) noexcept {
    Bulk& bulk = *connection.bulk;
    iovec pieces[pieces_max];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = bulk.writer.gather(pieces, bytes_max);
    if (message.msg_iovlen == 0) return 0;
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < message.msg_iovlen; ++i) wanted += pieces[i].iov_len;
    const ssize_t sent = ::sendmsg(bulk.lane.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EFAULT) {
        bulk.faults = drop_unreadable(connection, bytes_max) ? 0 : bulk.faults + 1;
        if (bulk.faults == faults_max) {
            lose_bulk(connection,
                      "no socket can send memory of a transfer that a copy can read "
                      "(EFAULT): transfer a copy of it");
        } else if (!bulk.writer.empty()) {
            pumping_.push_back(bulk);
        }
        return 0;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        lose_bulk(connection, std::strerror(errno));
        return 0;
    }
    const std::size_t left = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    bulk.writer.sent(left);
    if (left > 0) {
        bulk.lane.tries = 0;
        bulk.faults = 0;
        pump_share_.served();
    }
    if (left != wanted && !may_try_again(bulk.lane)) want_room(bulk.lane, true);
    note_moved(bulk, left);
    if (!bulk.lane.full && !bulk.writer.empty()) pumping_.push_back(bulk);
    return std::min(left, bytes_max);
}

// ---- reading -----------------------------------------------------------------------------------

void TcpEndpoint::read_bulk(Connection& connection) noexcept {
    std::size_t budget = bulk_slice(bulk_share_, bulk_left_);
    bool has_come = false;
    while (true) {
        Bulk& bulk = *connection.bulk;
        iovec pieces[2];
        const std::size_t used = bulk.reader.room(budget, {waste_.get(), waste_bytes}, pieces);
        const int socket = bulk.lane.socket.get();
        const ssize_t got =
            used == 1 ? ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                      : ::readv(socket, pieces, 2);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return has_come ? brought(bulk.lane, true) : missed(bulk.lane);
        }
        if (got < 0 && errno == EFAULT && bulk.reader.fault()) continue;
        if (got <= 0) {
            return lose_bulk(connection, got == 0 ? "it was closed" : std::strerror(errno));
        }
        const auto bytes = static_cast<std::size_t>(got);
        bulk_left_ -= std::min(bulk_left_, bytes);
        if (!std::exchange(has_come, true)) bulk_share_.served();
        bulk.reader.took(bytes);
        if (const char* broken = take_steps(connection)) {
            return take_down(connection, Code::data_loss,
                             connection.info.uri + " broke the rules of bulk: " + broken);
        }
        note_moved(bulk, bytes);
        const std::size_t asked = pieces[0].iov_len + (used == 2 ? pieces[1].iov_len : 0);
        if (bytes < asked || bytes >= budget) return brought(bulk.lane, bytes < asked);
        budget -= bytes;
    }
}

}  // namespace weft::na::tcp
