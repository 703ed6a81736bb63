#include "na/sm/endpoint.h"

#include <algorithm>

namespace weft::na::sm {
namespace {

constexpr std::size_t message_alignment = 16;

// A turn that commits much starts delivering before its flush.
constexpr std::uint32_t commits_per_publish = 8;

// Between two looks at the sockets: while messages flow, and when none came for that many polls.
// Handshakes are looked after at every sixteenth of these.
constexpr Duration idle_control_every = 50us;
constexpr std::uint32_t idle_control_polls = 256;
constexpr std::uint32_t handshake_control_polls = 16;

}  // namespace

inline Connection* SmEndpoint::find_up(PeerId peer) const {
    Connection* connection = find(peer);
    return connection && connection->phase == Phase::up ? connection : nullptr;
}

std::byte* SmEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claimed_);
    Connection* connection = find_up(peer);
    if (!connection || bytes > connection->message_bytes_max) [[unlikely]] {
        return nullptr;
    }
    std::byte* room = connection->writer.claim(bytes);
    if (!room) [[unlikely]] {
        want_writable(*connection);
        return nullptr;
    }
    claimed_ = connection;
    return room;
}

void SmEndpoint::want_writable(Connection& connection) noexcept {
    refused_ += !connection.wants_writable;
    connection.wants_writable = true;
    more_than_messages_ = true;
}

void SmEndpoint::commit(std::size_t bytes) noexcept {
    Connection* connection = std::exchange(claimed_, nullptr);
    if (!connection || bytes == 0) return;
    connection->writer.commit(bytes);
    const std::uint32_t before = connection->commits++;
    if (before == 0) {
        connection->next_committed = committed_;
        committed_ = connection;
        watched_.touch(*connection);  // An answer will come.
    }
    if (before % commits_per_publish == 0) {
        publish(*connection);
    } else {
        connection->unpublished = true;
    }
}

void SmEndpoint::flush() noexcept {
    while (Connection* connection = committed_) {
        committed_ = connection->next_committed;
        connection->commits = 0;
        if (connection->unpublished) publish(*connection);
    }
}

inline void SmEndpoint::publish(Connection& connection) noexcept {
    connection.unpublished = false;
    connection.writer.publish(connection.reader.taken());
    wake_if_dozing(connection);
}

// Requires: a full barrier after what the peer shall see.
inline void SmEndpoint::wake_if_dozing(Connection& connection) noexcept {
    const std::uint32_t doze = connection.regions.doze();
    if ((doze & 1) == 0 || doze == connection.doze_woken) [[likely]] {
        return;
    }
    connection.doze_woken = doze;
    send_wake(connection.socket.get());
}

std::size_t SmEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    received_bytes_ = 0;
    if (now >= control_at_) [[unlikely]] {
        control(now);
    }
    const std::size_t count = more_than_messages_ ? poll_everything(events) : take_messages(events);
    if (count != 0) {
        empty_polls_ = 0;
    } else if (++empty_polls_ % handshake_control_polls == 0) {
        plan_control();
    }
    return count;
}

// Nothing came for a while: the sockets may have something.
void SmEndpoint::plan_control() noexcept {
    if (handshakes_ != 0) {
        control_at_ = now_;
    } else if (empty_polls_ >= idle_control_polls) {
        control_at_ = std::min(control_at_, last_control_ + idle_control_every);
    }
}

std::size_t SmEndpoint::poll_everything(std::span<Event> events) noexcept {
    copy_budget_ = slice_bytes_max;
    bool full = false;
    std::size_t count = give_notices(events, full);
    if (full) return count;
    count += take_messages(events.subspan(count));
    if (ending_ != 0) {
        finish_ending();
        count += give_notices(events.subspan(count), full);
        if (full) return count;
    }
    count += give_writable(events.subspan(count));
    count += give_fenced(events.subspan(count));
    count += give_transfers(events.subspan(count));
    more_than_messages_ = !notices_.empty() || ending_ != 0 || refused_ != 0 || !fencing_.empty() ||
                          !transfers_.is_idle();
    return count;
}

std::size_t SmEndpoint::take_messages(std::span<Event> events) noexcept {
    std::size_t count = 0;
    watched_.visit_ready(
        [&](Connection& connection) { return take_from(connection, events, count); });
    return count;
}

// False: no more events or bytes fit into this poll.
bool SmEndpoint::take_from(Connection& connection, std::span<Event> events,
                           std::size_t& count) noexcept {
    RingReader& reader = connection.reader;
    RingReader::Take took = RingReader::Take::no_room;
    do {
        if (count == events.size()) break;
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        took = reader.take(Bytes(to, received_bytes_max - received_bytes_), &bytes);
        if (took != RingReader::Take::message) break;
        Event& event = events[count++];
        event = Event{};
        event.peer = connection.id;
        event.bytes = ByteView(to, bytes);
        received_bytes_ += (bytes + message_alignment - 1) & ~(message_alignment - 1);
        if (reader.free()) [[unlikely]] {
            wake_if_dozing(connection);
        }
    } while (reader.has_seen_more());
    if (took == RingReader::Take::broken || !connection.writer.acknowledge(reader.acknowledged()))
        [[unlikely]] {
        take_down(connection, Code::data_loss,
                  connection.info.uri + " broke the rules of the ring (bad record)");
        return true;
    }
    return took != RingReader::Take::no_room && count < events.size();
}

// Events that wait, up to and including the first that error() explains.
std::size_t SmEndpoint::give_notices(std::span<Event> events, bool& full) noexcept {
    std::size_t count = 0;
    while (!notices_.empty()) {
        if (count == events.size()) {
            full = true;
            return count;
        }
        Notice notice = std::move(notices_.front());
        notices_.pop_front();
        if (!find(notice.event.peer)) continue;  // Closed meanwhile.
        events[count++] = notice.event;
        if (notice.event.kind == EventKind::peer_down) {
            retire(release(notice.event.peer));
            error_ = std::move(notice.text);
            full = true;
            return count;
        }
    }
    return count;
}

std::size_t SmEndpoint::give_writable(std::span<Event> events) noexcept {
    std::size_t count = 0;
    for (std::size_t i = 0; i < watched_.size() && count < events.size() && refused_ != 0; ++i) {
        Connection& connection = watched_[i];
        if (!connection.wants_writable) continue;
        const bool writable = connection.phase == Phase::up && connection.writer.has_space();
        if (connection.writer.is_broken()) {
            take_down(connection, Code::data_loss,
                      connection.info.uri + " broke the rules of the ring (bad head)");
            --i;  // The last watched one took its place.
            continue;
        }
        if (!writable) continue;
        connection.wants_writable = false;
        --refused_;
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::writable;
        event.peer = connection.id;
    }
    return count;
}

// After the doze word, a full barrier, everything that could have come before it is looked for.
bool SmEndpoint::arm() {
    if (!notices_.empty() || !transfers_.is_idle() || ending_ != 0) return false;
    table_.doze();
    armed_ = true;
    control_at_ = TimePoint::min();
    for (std::size_t i = 0; i < watched_.size(); ++i) {
        Connection& connection = watched_[i];
        if (connection.reader.has_records() ||
            (connection.wants_writable &&
             (connection.writer.has_space() || connection.writer.is_broken()))) {
            table_.wake();
            armed_ = false;
            watched_.touch(connection);
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
    refused_ -= connection.wants_writable;
    connection.wants_writable = false;
    if (claimed_ == &connection) claimed_ = nullptr;
}

}  // namespace weft::na::sm
