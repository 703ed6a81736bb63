#include "na/tcp/endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace weft::na::tcp {

// A turn that commits much starts sending before its flush.
static constexpr std::size_t send_at_bytes = 64 * 1024;
static constexpr std::size_t send_pieces_max = 8;

std::byte* TcpEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!sends_.claimed);
    Connection* connection = peers_.find(peer);
    if (!connection || connection->phase != PeerPhase::up ||
        bytes > connection->info.message_bytes_max) [[unlikely]] {
        return nullptr;
    }
    std::byte* room = connection->out.claim(bytes, sends_.chunks);
    if (!room) [[unlikely]] {
        want_writable(*connection);
        return nullptr;
    }
    sends_.claimed = connection;
    return room;
}

bool TcpEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    Connection* connection = std::exchange(sends_.claimed, nullptr);
    if (!connection) return false;
    WEFT_DCHECK(connection->phase == PeerPhase::up);
    const bool is_first = at_once && connection->out.empty() && connection->sent_turn != turn_;
    connection->out.commit(bytes, sends_.chunks);
    if (bytes == 0) return false;
    bulk_.on_messages(now_);
    hot_.touch(connection->message_socket);  // An answer is likely.
    if (is_first) {
        connection->sent_turn = turn_;
        send_now(*connection);
        return false;
    }
    flush_later(*connection);
    if (connection->out.queued() >= send_at_bytes && !connection->message_socket.full)
        send_now(*connection);
    return true;
}

void TcpEndpoint::flush() noexcept {
    if (!sends_.committed.empty()) send_committed();
    if (bulk_.must_pump(turn_)) pump_all();
}

// A full socket is retried in the next turn (send_now()), or when epoll reports room.
void TcpEndpoint::send_committed() noexcept {
    base::IntrusiveList<Connection, FlushNode> sending;
    sending.splice_back(sends_.committed);
    while (Connection* connection = sending.pop_front()) {
        if (!connection->message_socket.full) send_now(*connection);
    }
}

void TcpEndpoint::flush_later(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == PeerPhase::up);
    if (!connection.FlushNode::is_linked()) sends_.committed.push_back(connection);
}

// Sends until nothing is queued or the socket takes no more.
void TcpEndpoint::send_now(Connection& connection) noexcept {
    Outbox& out = connection.out;
    while (!out.empty()) {
        if (connection.write_error != 0) return out.clear(sends_.chunks);
        iovec pieces[send_pieces_max];
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = out.gather(pieces);
        const int socket = connection.message_socket.socket.get();
        const ssize_t sent =
            message.msg_iovlen == 1
                ? ::send(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                : ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            connection.message_socket.tries = 0;
            out.sent(static_cast<std::size_t>(sent), sends_.chunks);
        } else if (errno == EAGAIN) {
            if (may_retry(connection.message_socket)) return flush_later(connection);
            return watch_writable(connection.message_socket, true);
        } else if (errno != EINTR) {
            connection.write_error = errno;  // Bytes that arrived before may still be read.
        }
    }
    if (connection.message_socket.full) watch_writable(connection.message_socket, false);
}

std::size_t TcpEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    ++turn_;
    slab_.reset();
    bulk_.begin_turn();
    peers_.begin_poll();
    std::size_t count = 0;
    if (!events_.waiting.empty() && !emit_pending(events, count)) return count;
    const bool others_first = std::exchange(events_.was_full, false);
    const std::size_t half = (events.size() + 1) / 2;
    if (others_first && count < half && !emit_rest(events.first(half), count)) return count;
    read_hot(PolledSocket::Kind::messages, events, count);
    if (hot_.empty() || descriptor_polls_.is_due(count != 0, now_)) poll_descriptors(events, count);
    if (!sends_.committed.empty()) send_committed();
    if (bulk_.may_move(count != 0)) {
        read_hot(PolledSocket::Kind::bulk, events, count);
        if (!bulk_.pumping().empty()) pump_all();
    }
    hot_.end_turn();
    (void)emit_rest(events, count);
    events_.was_full = count == events.size() && !others_first;
    return count;
}

// Emits the events that are not messages. False: the batch ends with one that error() explains.
bool TcpEndpoint::emit_rest(std::span<Event> events, std::size_t& count) noexcept {
    if (!sends_.refused.empty()) emit_writable(events, count);
    while (regions_.has_fenced() && count < events.size()) {
        events[count++] = fenced_event(regions_.next_fenced());
    }
    const auto all = [](const Event&) { return EventUse::hand_out; };
    (void)events_.finished.hand_out(events, count, events_.error, all);
    return count == 0 || events[count - 1].code == Code::ok;
}

// Reads once. Requires: may_read().
void TcpEndpoint::read_messages(Connection& connection, std::span<Event> events,
                                std::size_t& count) noexcept {
    FairShare& share = hot_.lane(PolledSocket::Kind::messages).share;
    WEFT_DCHECK(count < events.size());
    iovec pieces[2];
    const std::size_t used =
        connection.in.room(slab_, events.size() - count < 2, share.of(Slab::slab_bytes), pieces);
    const int socket = connection.message_socket.socket.get();
    const ssize_t got = used == 1
                            ? ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                            : ::readv(socket, pieces, 2);
    if (got <= 0) [[unlikely]] {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (connection.write_error != 0)
                return on_connection_lost(connection, connection.write_error);
            return on_empty_read(connection.message_socket);
        }
        return on_connection_lost(connection, got < 0 ? errno : 0);
    }
    share.on_served();
    const std::size_t asked = pieces[0].iov_len + (used == 2 ? pieces[1].iov_len : 0);
    on_read(connection.message_socket, static_cast<std::size_t>(got) < asked);
    const Inbox::Taken taken = connection.in.on_read(static_cast<std::size_t>(got), slab_);
    if (taken.count > 0) bulk_.on_messages(now_);
    for (std::size_t i = 0; i < taken.count; ++i) {
        Event& event = events[count++];
        event.kind = EventKind::message;
        event.peer = connection.id;
        event.bytes = taken.messages[i];
    }
    if (taken.broken) [[unlikely]] {
        return take_down(connection, Code::data_loss,
                         connection.info.uri + " broke the rules of the stream (bad frame)");
    }
    if (taken.no_memory) [[unlikely]] {
        return take_down(connection, Code::resource_exhausted,
                         connection.info.uri + ": no memory for its message");
    }
    connection.received_bye |= taken.bye;
    if (taken.wants_bulk) open_bulk(connection);
}

// Emits pending events up to and including the first that error() explains. False: the batch ends
// here.
bool TcpEndpoint::emit_pending(std::span<Event> events, std::size_t& count) noexcept {
    return events_.waiting.hand_out(events, count, events_.error, [&](const Event& event) {
        Connection* connection = peers_.find(event.peer);
        if (!connection) return EventUse::drop;  // Closed meanwhile.
        if (event.kind == EventKind::peer_down) {
            // info() of a peer that was up stays valid for the events before.
            if (count != 0 && connection->announced) return EventUse::keep;
            (void)peers_.remove_reported(event.peer);
        } else {
            connection->announced = true;
            hot_.touch(connection->message_socket);
        }
        return EventUse::hand_out;
    });
}

void TcpEndpoint::want_writable(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == PeerPhase::up);
    if (!connection.WritableNode::is_linked()) sends_.refused.push_back(connection);
}

static bool has_room_again(const Connection& connection) {
    return connection.out.queued() <= Outbox::queued_bytes_max / 2;
}

// The connection that waits longest is first.
void TcpEndpoint::emit_writable(std::span<Event> events, std::size_t& count) noexcept {
    sends_.refused.for_each([&](Connection& connection) {
        if (count >= events.size() || !has_room_again(connection)) return;
        connection.WritableNode::unlink();
        events[count++] = writable_event(connection.id);
    });
}

bool TcpEndpoint::arm() {
    if (!events_.waiting.empty() || !events_.finished.empty() || regions_.has_fenced() ||
        !sends_.committed.empty()) {
        return false;
    }
    bool has_work = false;
    bulk_.pumping().for_each([&](Bulk& bulk) { has_work |= !bulk.polled.full; });
    sends_.refused.for_each(
        [&](Connection& connection) { has_work |= has_room_again(connection); });
    descriptor_polls_.request();
    return !has_work;
}

}  // namespace weft::na::tcp
