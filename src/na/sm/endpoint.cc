#include "na/sm/endpoint.h"

#include <algorithm>
#include <cstring>

#include "na/sm/stream_copy.h"

namespace weft::na::sm {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 15) & ~std::size_t{15}; }
constexpr std::size_t inline_room = aligned(inline_bytes_max);

// A turn that commits much starts delivering before its flush.
constexpr std::uint32_t commits_per_publish = 8;

// The interval between polls of the sockets after idle_control_polls empty polls. During handshakes
// the sockets are polled after every handshake_control_polls empty polls.
constexpr Duration idle_control_every = 50us;
constexpr std::uint32_t idle_control_polls = 256;
constexpr std::uint32_t handshake_control_polls = 16;

}  // namespace

std::byte* SmEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claimed_);
    Connection* connection = find(peer);
    if (!connection || bytes > connection->message_bytes_max) [[unlikely]] {
        return nullptr;
    }
    claimed_ = connection;
    if (std::byte* inline_message = connection->writer.claim_inline(bytes)) return inline_message;
    return reserve_record(*connection, bytes);
}

// A large message is written to a draft first, since its writer stores in small pieces.
std::byte* SmEndpoint::reserve_record(Connection& connection, std::size_t bytes) noexcept {
    std::byte* room = connection.writer.claim(bytes);
    if (!room) {
        claimed_ = nullptr;
        want_writable(connection);
        return nullptr;
    }
    streamed_to_ = bytes < streamed_bytes_min ? nullptr : room;
    if (!streamed_to_) return room;
    drafted_bytes_ = message_bytes_max;
    return draft_.get();
}

void SmEndpoint::copy_out(std::byte* to, ByteView body) noexcept {
    if (body.size() < streamed_bytes_min || body.size() > streamed_bytes_max) {
        std::memcpy(to, body.data(), body.size());
        return;
    }
    const bool is_drafted = to >= draft_.get() && to < draft_.get() + message_bytes_max;
    if (is_drafted) {  // Straight to the ring: the draft has the head only.
        WEFT_DCHECK(claimed_ && streamed_to_);
        drafted_bytes_ = static_cast<std::size_t>(to - draft_.get());
        to = streamed_to_ + drafted_bytes_;
    }
    stream_copy(to, body.data(), body.size());
}

void SmEndpoint::want_writable(Connection& connection) noexcept {
    writable_waiters_ += !connection.wants_writable;
    connection.wants_writable = true;
    request_full_poll();
}

// An inline message is sent at once: the peer has taken all earlier ones, so waiting would join
// nothing.
bool SmEndpoint::commit(std::size_t bytes) noexcept {
    Connection* connection = std::exchange(claimed_, nullptr);
    if (!connection || bytes == 0) [[unlikely]] {
        return false;
    }
    RingWriter& writer = connection->writer;
    if (!writer.is_inline()) return commit_record(*connection, bytes);
    writer.send_inline(bytes, connection->reader.taken());
    if (connection->regions.is_dozing() || !watched_.is_active(*connection)) [[unlikely]] {
        return expect_answer(*connection);
    }
    return false;
}

// Publishes the first message of a turn and then every commits_per_publish-th, so that the reader
// need not wait for all.
bool SmEndpoint::commit_record(Connection& connection, std::size_t bytes) noexcept {
    if (streamed_to_) stream_copy(streamed_to_, draft_.get(), std::min(bytes, drafted_bytes_));
    connection.writer.commit(bytes);
    const std::uint32_t before = connection.commits++;
    if (before == 0) {
        connection.next_committed = committed_;
        committed_ = &connection;
        watched_.activate(connection);
    }
    connection.unpublished = before % commits_per_publish != 0;
    if (!connection.unpublished) publish(connection);
    return true;
}

// Ends a commit that needs no flush.
[[gnu::noinline, gnu::cold]] bool SmEndpoint::expect_answer(Connection& connection) noexcept {
    watched_.activate(connection);
    wake_if_dozing(connection);
    return false;
}

void SmEndpoint::flush() noexcept {
    while (Connection* connection = committed_) {
        committed_ = connection->next_committed;
        connection->commits = 0;
        if (connection->unpublished) publish(*connection);
        connection->unpublished = false;
    }
}

// Published messages lie in memory that the peer shares.
std::size_t SmEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = find(peer);
    return connection && connection->unpublished ? 1 : 0;
}

void SmEndpoint::publish(Connection& connection) noexcept {
    connection.writer.publish(connection.reader.taken());
    wake_if_dozing(connection);
}

// Requires: a full barrier after the stores that the peer must see.
void SmEndpoint::wake_if_dozing(Connection& connection) noexcept {
    const std::uint32_t doze = connection.regions.doze();
    if ((doze & 1) == 0 || doze == connection.doze_woken) return;
    connection.doze_woken = doze;
    send_wake(connection.socket.get());
}

std::size_t SmEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    received_bytes_ = 0;
    return now < messages_only_until_ ? poll_messages(events) : poll_everything(events);
}

[[gnu::noinline]] std::size_t SmEndpoint::poll_messages(std::span<Event> events) noexcept {
    using VisitResult = Watchlist::VisitResult;
    std::size_t count = 0;
    watched_.visit_ready([&](Connection& connection, std::uint64_t published) {
        RingReader& reader = connection.reader;
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        std::uint64_t acknowledged = 0;
        if (count == events.size() || received_bytes_ > received_bytes_max - inline_room ||
            !reader.take_single_inline(published, to, &bytes, &acknowledged)) {
            const TakeResult taken = take_records(connection, events.subspan(count));
            count += taken.events;
            if (taken.room_left) return VisitResult::next;
            return taken.events != 0 || taken.is_broken ? VisitResult::stop_after
                                                        : VisitResult::stop_before;
        }
        received_bytes_ += inline_room;
        emit_message(connection, events[count++], ByteView(to, bytes));
        if (connection.writer.acknowledge(acknowledged)) [[likely]] {
            return VisitResult::next;
        }
        fail_broken(connection);
        return VisitResult::stop_after;
    });
    if (count != 0) {
        empty_polls_ = 0;
    } else if (++empty_polls_ % handshake_control_polls == 0) [[unlikely]] {
        plan_control();
    }
    return count;
}

// After empty polls: the sockets may have something to read.
void SmEndpoint::plan_control() noexcept {
    TimePoint at = never;
    if (handshakes_ != 0) {
        at = now_;
    } else if (empty_polls_ >= idle_control_polls) {
        at = last_control_ + idle_control_every;
    }
    control_at_ = std::min(control_at_, at);
    messages_only_until_ = std::min(messages_only_until_, at);
}

std::size_t SmEndpoint::poll_everything(std::span<Event> events) noexcept {
    if (now_ >= control_at_) control(now_);
    request_full_poll();  // Unless no work is left, see below.
    std::size_t count = 0;
    if (!emit_pending(events, count)) return count;
    const bool others_first = std::exchange(was_full_, false);
    if (others_first) {
        count += emit_rest(events.subspan(count).first((events.size() - count + 1) / 2));
        // An event that error() explains ends the batch.
        if (count != 0 && events[count - 1].code != Code::ok) return count;
    }
    const std::size_t messages = poll_messages(events.subspan(count));
    if (messages != 0 && !rma_queue_.is_idle()) last_message_at_ = now_;
    count += messages;
    if (ending_ != 0) {
        finish_ending();
        if (!emit_pending(events, count)) return count;
    }
    if (!others_first) count += emit_rest(events.subspan(count));
    was_full_ = count == events.size() && !others_first;
    const bool more = !pending_events_.empty() || ending_ != 0 || writable_waiters_ != 0 ||
                      !fencing_.empty() || !rma_queue_.is_idle();
    if (!more) messages_only_until_ = control_at_;
    return count;
}

// Emits the events that are not messages.
std::size_t SmEndpoint::emit_rest(std::span<Event> events) noexcept {
    std::size_t count = emit_writable(events);
    count += emit_fenced(events.subspan(count));
    copy_budget_ = copy_bytes_per_turn();
    return count + emit_rma_done(events.subspan(count));
}

SmEndpoint::TakeResult SmEndpoint::take_records(Connection& connection,
                                                std::span<Event> events) noexcept {
    RingReader& reader = connection.reader;
    TakeResult taken;
    reader.refresh();
    if (!connection.writer.acknowledge(reader.acknowledged())) {
        taken.is_broken = true;
        fail_broken(connection);
        return taken;
    }
    do {
        if (taken.events == events.size()) return taken;
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        const auto took = reader.take(Bytes(to, received_bytes_max - received_bytes_), &bytes);
        if (took != RingReader::Take::message) {
            taken.is_broken = took == RingReader::Take::broken;
            if (taken.is_broken) fail_broken(connection);
            return taken;
        }
        received_bytes_ += aligned(bytes);
        emit_message(connection, events[taken.events++], ByteView(to, bytes));
        if (reader.free()) wake_if_dozing(connection);
    } while (reader.has_more());
    taken.room_left = true;
    return taken;
}

inline void SmEndpoint::emit_message(Connection& connection, Event& event,
                                     ByteView message) noexcept {
    event.kind = EventKind::message;
    event.peer = connection.id;
    event.bytes = message;
}

// Changes the list of connections: the walk over it must end here, and the next poll continues.
void SmEndpoint::fail_broken(Connection& connection) noexcept {
    take_down(connection, Code::data_loss,
              connection.info.uri + " broke the rules of the ring (bad record)");
}

// Emits pending events up to and including the first that error() explains. False: the batch ends
// here.
bool SmEndpoint::emit_pending(std::span<Event> events, std::size_t& count) noexcept {
    while (!pending_events_.empty()) {
        if (count == events.size()) return false;
        PendingEvent pending = std::move(pending_events_.front());
        pending_events_.pop_front();
        if (!find(pending.event.peer)) continue;  // Closed meanwhile.
        events[count++] = pending.event;
        if (pending.event.kind == EventKind::peer_down) {
            retire(release(pending.event.peer));
            error_ = std::move(pending.text);
            return false;
        }
    }
    return true;
}

// Starts with another connection each time.
std::size_t SmEndpoint::emit_writable(std::span<Event> events) noexcept {
    std::size_t count = 0;
    if (writable_waiters_ == 0) return count;
    const std::size_t start = ++next_writable_;
    for (std::size_t i = 0; i < watched_.size() && count < events.size() && writable_waiters_ != 0;
         ++i) {
        Connection& connection = watched_[(start + i) % watched_.size()];
        if (!connection.wants_writable) continue;
        const bool writable = connection.phase == PeerPhase::up && connection.writer.has_space();
        if (connection.writer.is_broken()) {
            take_down(connection, Code::data_loss,
                      connection.info.uri + " broke the rules of the ring (bad head)");
            --i;  // The last watched connection took its place.
            continue;
        }
        if (!writable) continue;
        connection.wants_writable = false;
        --writable_waiters_;
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::writable;
        event.peer = connection.id;
    }
    return count;
}

// After the doze word, a full barrier, checks for everything that may have arrived before.
bool SmEndpoint::arm() {
    if (!pending_events_.empty() || !rma_queue_.is_idle() || ending_ != 0) return false;
    table_.doze();
    armed_ = true;
    control_at_ = TimePoint::min();
    request_full_poll();
    for (std::size_t i = 0; i < watched_.size(); ++i) {
        Connection& connection = watched_[i];
        if (connection.reader.has_records() ||
            (connection.wants_writable &&
             (connection.writer.has_space() || connection.writer.is_broken()))) {
            table_.wake();
            armed_ = false;
            watched_.activate(connection);
            return false;
        }
    }
    return true;
}

void SmEndpoint::unwatch(Connection& connection) {
    watched_.remove(connection);
    for (Connection** at = &committed_; *at; at = &(*at)->next_committed) {
        if (*at != &connection) continue;
        *at = connection.next_committed;
        break;
    }
    writable_waiters_ -= connection.wants_writable;
    connection.wants_writable = false;
    if (claimed_ == &connection) claimed_ = nullptr;
}

}  // namespace weft::na::sm
