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
    WEFT_DCHECK(!sends_.claimed);
    Connection* connection = peers_.find(peer);
    if (!connection || bytes > connection->message_bytes_max) [[unlikely]] {
        return nullptr;
    }
    sends_.claimed = connection;
    if (std::byte* inline_message = connection->writer.claim_inline(bytes)) return inline_message;
    return reserve_record(*connection, bytes);
}

// A large message is written to a draft first, since its writer stores in small pieces.
std::byte* SmEndpoint::reserve_record(Connection& connection, std::size_t bytes) noexcept {
    std::byte* room = connection.writer.claim(bytes);
    if (!room) {
        sends_.claimed = nullptr;
        want_writable(connection);
        return nullptr;
    }
    sends_.streamed_to = bytes < streamed_bytes_min ? nullptr : room;
    if (!sends_.streamed_to) return room;
    sends_.drafted_bytes = message_bytes_max;
    return sends_.draft.get();
}

void SmEndpoint::copy_out(std::byte* to, ByteView body) noexcept {
    if (body.size() < streamed_bytes_min || body.size() > streamed_bytes_max) {
        std::memcpy(to, body.data(), body.size());
        return;
    }
    const bool is_drafted = to >= sends_.draft.get() && to < sends_.draft.get() + message_bytes_max;
    if (is_drafted) {  // Straight to the ring: the draft has the head only.
        WEFT_DCHECK(sends_.claimed && sends_.streamed_to);
        sends_.drafted_bytes = static_cast<std::size_t>(to - sends_.draft.get());
        to = sends_.streamed_to + sends_.drafted_bytes;
    }
    stream_copy(to, body.data(), body.size());
}

void SmEndpoint::want_writable(Connection& connection) noexcept {
    WEFT_DCHECK(connection.phase == PeerPhase::up);
    sends_.waiters += !connection.wants_writable;
    connection.wants_writable = true;
    request_full_poll();
}

// An inline message is sent at once: the peer has taken all earlier ones, so waiting would join
// nothing.
bool SmEndpoint::commit(std::size_t bytes) noexcept {
    Connection* connection = std::exchange(sends_.claimed, nullptr);
    if (!connection || bytes == 0) [[unlikely]] {
        return false;
    }
    RingWriter& writer = connection->writer;
    if (!writer.is_inline()) return commit_record(*connection, bytes);
    writer.send_inline(bytes, connection->reader.taken());
    if (connection->regions.is_asleep() || !watched_.is_active(*connection)) [[unlikely]] {
        return expect_answer(*connection);
    }
    return false;
}

// Publishes the first message of a turn and then every commits_per_publish-th, so that the reader
// need not wait for all.
bool SmEndpoint::commit_record(Connection& connection, std::size_t bytes) noexcept {
    if (sends_.streamed_to)
        stream_copy(sends_.streamed_to, sends_.draft.get(), std::min(bytes, sends_.drafted_bytes));
    connection.writer.commit(bytes);
    const std::uint32_t before = connection.commits++;
    if (before == 0) {
        connection.next_committed = sends_.committed;
        sends_.committed = &connection;
        watched_.activate(connection);
    }
    connection.unpublished = before % commits_per_publish != 0;
    if (!connection.unpublished) publish(connection);
    return true;
}

// Ends a commit that needs no flush.
[[gnu::noinline, gnu::cold]] bool SmEndpoint::expect_answer(Connection& connection) noexcept {
    watched_.activate(connection);
    wake_if_asleep(connection);
    return false;
}

void SmEndpoint::flush() noexcept {
    while (Connection* connection = sends_.committed) {
        sends_.committed = connection->next_committed;
        WEFT_DCHECK(connection->commits != 0);
        connection->commits = 0;
        if (connection->unpublished) publish(*connection);
        connection->unpublished = false;
    }
}

// Published messages lie in memory that the peer shares.
std::size_t SmEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = peers_.find(peer);
    return connection && connection->unpublished ? 1 : 0;
}

void SmEndpoint::publish(Connection& connection) noexcept {
    connection.writer.publish(connection.reader.taken());
    wake_if_asleep(connection);
}

// Requires: a full barrier after the stores that the peer must see.
void SmEndpoint::wake_if_asleep(Connection& connection) noexcept {
    const std::uint32_t sleep = connection.regions.sleep_count();
    if ((sleep & 1) == 0 || sleep == connection.sleep_woken) return;
    connection.sleep_woken = sleep;
    send_wake(connection.socket.get());
}

std::size_t SmEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    control_.now = now;
    received_.bytes = 0;
    return now < control_.messages_only_until ? poll_messages(events) : poll_everything(events);
}

[[gnu::noinline]] std::size_t SmEndpoint::poll_messages(std::span<Event> events) noexcept {
    using VisitResult = Watchlist::VisitResult;
    std::size_t count = 0;
    watched_.visit_ready([&](Connection& connection, std::uint64_t published) {
        RingReader& reader = connection.reader;
        std::byte* to = received_.memory.get() + received_.bytes;
        std::size_t bytes = 0;
        std::uint64_t acknowledged = 0;
        if (count == events.size() || received_.bytes > received_bytes_max - inline_room ||
            !reader.take_single_inline(published, to, &bytes, &acknowledged)) {
            const TakeResult taken = take_records(connection, events.subspan(count));
            count += taken.events;
            if (taken.room_left) return VisitResult::next;
            return taken.events != 0 || taken.is_broken ? VisitResult::stop_after
                                                        : VisitResult::stop_before;
        }
        received_.bytes += inline_room;
        emit_message(connection, events[count++], ByteView(to, bytes));
        if (connection.writer.acknowledge(acknowledged)) [[likely]] {
            return VisitResult::next;
        }
        fail_broken(connection);
        return VisitResult::stop_after;
    });
    if (count != 0) {
        control_.empty_polls = 0;
    } else if (++control_.empty_polls % handshake_control_polls == 0) [[unlikely]] {
        plan_control();
    }
    return count;
}

// After empty polls: the sockets may have something to read.
void SmEndpoint::plan_control() noexcept {
    TimePoint at = never;
    if (handshakes_ != 0) {
        at = control_.now;
    } else if (control_.empty_polls >= idle_control_polls) {
        at = control_.last + idle_control_every;
    }
    control_.at = std::min(control_.at, at);
    control_.messages_only_until = std::min(control_.messages_only_until, at);
}

std::size_t SmEndpoint::poll_everything(std::span<Event> events) noexcept {
    peers_.begin_poll();
    if (control_.now >= control_.at) control(control_.now);
    request_full_poll();  // Unless no work is left, see below.
    std::size_t count = 0;
    if (!emit_pending(events, count)) return count;
    const bool others_first = std::exchange(events_.was_full, false);
    if (others_first) {
        count += emit_rest(events.subspan(count).first((events.size() - count + 1) / 2));
        // An event that error() explains ends the batch.
        if (count != 0 && events[count - 1].code != Code::ok) return count;
    }
    const std::size_t messages = poll_messages(events.subspan(count));
    if (messages != 0 && !transfers_.queue.is_idle()) transfers_.last_message_at = control_.now;
    count += messages;
    if (ending_ != 0) {
        finish_ending();
        if (!emit_pending(events, count)) return count;
    }
    if (!others_first) count += emit_rest(events.subspan(count));
    events_.was_full = count == events.size() && !others_first;
    const bool more = !events_.waiting.empty() || ending_ != 0 || sends_.waiters != 0 ||
                      !fences_.order.empty() || !transfers_.queue.is_idle();
    if (!more) control_.messages_only_until = control_.at;
    return count;
}

// Emits the events that are not messages.
std::size_t SmEndpoint::emit_rest(std::span<Event> events) noexcept {
    std::size_t count = emit_writable(events);
    count += emit_fenced(events.subspan(count));
    transfers_.budget = copy_bytes_per_turn();
    return count + emit_rma_done(events.subspan(count));
}

SmEndpoint::TakeResult SmEndpoint::take_records(Connection& connection,
                                                std::span<Event> events) noexcept {
    RingReader& reader = connection.reader;
    TakeResult taken;
    WEFT_DCHECK(received_.bytes <= received_bytes_max);
    reader.refresh();
    if (!connection.writer.acknowledge(reader.acknowledged())) {
        taken.is_broken = true;
        fail_broken(connection);
        return taken;
    }
    do {
        if (taken.events == events.size()) return taken;
        std::byte* to = received_.memory.get() + received_.bytes;
        std::size_t bytes = 0;
        const auto took = reader.take(Bytes(to, received_bytes_max - received_.bytes), &bytes);
        if (took != RingReader::Take::message) {
            taken.is_broken = took == RingReader::Take::broken;
            if (taken.is_broken) fail_broken(connection);
            return taken;
        }
        received_.bytes += aligned(bytes);
        emit_message(connection, events[taken.events++], ByteView(to, bytes));
        if (reader.free()) wake_if_asleep(connection);
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
    return events_.waiting.hand_out(events, count, events_.error, [this](const Event& event) {
        if (!peers_.find(event.peer)) return EventUse::drop;  // Closed meanwhile.
        if (event.kind == EventKind::peer_down) retire(peers_.remove_reported(event.peer));
        return EventUse::hand_out;
    });
}

// Starts with another connection each time.
std::size_t SmEndpoint::emit_writable(std::span<Event> events) noexcept {
    std::size_t count = 0;
    if (sends_.waiters == 0) return count;
    const std::size_t start = ++sends_.next_waiter;
    for (std::size_t i = 0; i < watched_.size() && count < events.size() && sends_.waiters != 0;
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
        --sends_.waiters;
        events[count++] = writable_event(connection.id);
    }
    return count;
}

// After the announcement, a full barrier, checks for everything that may have arrived before.
bool SmEndpoint::arm() {
    if (!events_.waiting.empty() || !transfers_.queue.is_idle() || ending_ != 0) return false;
    table_.begin_sleep();
    control_.armed = true;
    control_.at = TimePoint::min();
    request_full_poll();
    for (std::size_t i = 0; i < watched_.size(); ++i) {
        Connection& connection = watched_[i];
        if (connection.reader.has_records() ||
            (connection.wants_writable &&
             (connection.writer.has_space() || connection.writer.is_broken()))) {
            table_.end_sleep();
            control_.armed = false;
            watched_.activate(connection);
            return false;
        }
    }
    return true;
}

void SmEndpoint::unwatch(Connection& connection) {
    WEFT_ASSERT(connection.wants_writable <= sends_.waiters);
    watched_.remove(connection);
    for (Connection** at = &sends_.committed; *at; at = &(*at)->next_committed) {
        if (*at != &connection) continue;
        *at = connection.next_committed;
        break;
    }
    sends_.waiters -= connection.wants_writable;
    connection.wants_writable = false;
    if (sends_.claimed == &connection) sends_.claimed = nullptr;
}

}  // namespace weft::na::sm
