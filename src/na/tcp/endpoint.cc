#include "na/tcp/endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace weft::na::tcp {

// A turn that commits much starts sending before its flush.
static constexpr std::size_t send_at_bytes = 64 * 1024;
static constexpr std::size_t send_pieces_max = 8;

std::byte* TcpEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claimed_);
    Connection* connection = find(peer);
    if (!connection || connection->phase != Phase::up || bytes > connection->info.message_bytes_max)
        [[unlikely]] {
        return nullptr;
    }
    std::byte* room = connection->out.claim(bytes, chunks_);
    if (!room) [[unlikely]] {
        want_writable(*connection);
        return nullptr;
    }
    claimed_ = connection;
    return room;
}

bool TcpEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    Connection* connection = std::exchange(claimed_, nullptr);
    if (!connection) return false;
    const bool is_first = at_once && connection->out.empty() && connection->sent_turn != turn_;
    connection->out.commit(bytes, chunks_);
    if (bytes == 0) return false;
    pace_.talked(now_, is_moving_bulk());
    heat(connection->talk);  // An answer is likely.
    if (is_first) {
        connection->sent_turn = turn_;
        send_now(*connection);
        return false;
    }
    flush_later(*connection);
    if (connection->out.queued() >= send_at_bytes && !connection->talk.full) send_now(*connection);
    return true;
}

void TcpEndpoint::flush() noexcept {
    if (!committed_.empty()) send_committed();
    if (!pumping_.empty() && pumped_turn_ != turn_) pump_all();
}

// Those whose socket is full come back for the next turn.
void TcpEndpoint::send_committed() noexcept {
    base::IntrusiveList<Connection, FlushNode> sending;
    sending.splice_back(committed_);
    while (Connection* connection = sending.pop_front()) {
        if (!connection->talk.full) send_now(*connection);
    }
}

void TcpEndpoint::flush_later(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == Phase::up);
    if (!connection.FlushNode::is_linked()) committed_.push_back(connection);
}

// Until all has left or the socket takes no more.
void TcpEndpoint::send_now(Connection& connection) noexcept {
    Outbox& out = connection.out;
    while (!out.empty()) {
        if (connection.lost != 0) return out.clear(chunks_);
        iovec pieces[send_pieces_max];
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = out.gather(pieces);
        const int socket = connection.talk.socket.get();
        const ssize_t sent =
            message.msg_iovlen == 1
                ? ::send(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                : ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            connection.talk.tries = 0;
            out.sent(static_cast<std::size_t>(sent), chunks_);
        } else if (errno == EAGAIN) {
            if (may_try_again(connection.talk)) return flush_later(connection);
            return want_room(connection.talk, true);
        } else if (errno != EINTR) {
            connection.lost = errno;  // What had come before may still be read.
        }
    }
    if (connection.talk.full) want_room(connection.talk, false);
}

std::size_t TcpEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    ++turn_;
    slab_.reset();
    bulk_left_ = Pace::turn_bytes;
    std::size_t count = 0;
    if (!notices_.empty() && !give_notices(events, count)) return count;
    const bool rest_first = std::exchange(was_full_, false);
    if (rest_first && !give_rest(events.first((events.size() + 1) / 2), count)) return count;
    read_hot(Lane::Kind::talk, events, count);
    if (is_time_to_look(count != 0)) look(events, count);
    if (!committed_.empty()) send_committed();
    // What came is answered before bulk goes on, but bulk does not wait for two polls.
    bulk_waits_ = count != 0 && !bulk_waits_;
    if (!bulk_waits_) {
        read_hot(Lane::Kind::bulk, events, count);
        if (!pumping_.empty()) pump_all();
    }
    talk_share_.end_turn();
    bulk_share_.end_turn();
    (void)give_rest(events, count);
    was_full_ = count == events.size() && !rest_first;
    return count;
}

// What is not a message. False: the batch of events ends here, with one that error() explains.
bool TcpEndpoint::give_rest(std::span<Event> events, std::size_t& count) noexcept {
    if (!refused_.empty()) give_writable(events, count);
    while (!fenced_.empty() && count < events.size()) {
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::region_fenced;
        event.region = fenced_.back();
        fenced_.pop_back();
    }
    return finished_.empty() || give_finished(events, count);
}

// Reads once. Requires: may_read().
void TcpEndpoint::read_talk(Connection& connection, std::span<Event> events,
                            std::size_t& count) noexcept {
    iovec pieces[2];
    const std::size_t used = connection.in.room(slab_, events.size() - count < 2,
                                                talk_share_.of(Slab::slab_bytes), pieces);
    const int socket = connection.talk.socket.get();
    const ssize_t got = used == 1
                            ? ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                            : ::readv(socket, pieces, 2);
    if (got <= 0) [[unlikely]] {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (connection.lost != 0) return lose(connection, connection.lost);
            return missed(connection.talk);
        }
        return lose(connection, got < 0 ? errno : 0);
    }
    talk_share_.served();
    const std::size_t asked = pieces[0].iov_len + (used == 2 ? pieces[1].iov_len : 0);
    brought(connection.talk, static_cast<std::size_t>(got) < asked);
    const Inbox::Taken taken = connection.in.took(static_cast<std::size_t>(got), slab_);
    if (taken.count > 0) pace_.talked(now_, is_moving_bulk());
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
    connection.said_bye |= taken.bye;
    if (taken.wants_bulk) open_bulk(connection);
}

// Events that wait, up to and including the first that error() explains. False: the batch of events
// ends here.
bool TcpEndpoint::give_notices(std::span<Event> events, std::size_t& count) noexcept {
    while (!notices_.empty()) {
        if (count == events.size()) return false;
        const Event event = notices_.front().event;
        Connection* connection = find(event.peer);
        if (!connection) {  // Closed meanwhile.
            notices_.pop();
            continue;
        }
        if (event.kind == EventKind::peer_down) {
            // Who was up has info() while that is looked at.
            if (count != 0 && connection->announced) return false;
            error_ = std::move(notices_.front().text);
            release(event.peer);
        } else {
            connection->announced = true;
            heat(connection->talk);
        }
        notices_.pop();
        events[count++] = event;
        if (event.kind == EventKind::peer_down) return false;
    }
    return true;
}

void TcpEndpoint::want_writable(Connection& connection) noexcept {
    WEFT_ASSERT(connection.phase == Phase::up);
    if (!connection.WritableNode::is_linked()) refused_.push_back(connection);
}

static bool has_room_again(const Connection& connection) {
    return connection.out.queued() <= Outbox::queued_bytes_max / 2;
}

// The longest refused first.
void TcpEndpoint::give_writable(std::span<Event> events, std::size_t& count) noexcept {
    refused_.for_each([&](Connection& connection) {
        if (count >= events.size() || !has_room_again(connection)) return;
        connection.WritableNode::unlink();
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::writable;
        event.peer = connection.id;
    });
}

bool TcpEndpoint::arm() {
    if (!notices_.empty() || !finished_.empty() || !fenced_.empty() || !committed_.empty()) {
        return false;
    }
    bool has_work = false;
    pumping_.for_each([&](Bulk& bulk) { has_work |= !bulk.lane.full; });
    refused_.for_each([&](Connection& connection) { has_work |= has_room_again(connection); });
    look_now_ = true;
    return !has_work;
}

}  // namespace weft::na::tcp
