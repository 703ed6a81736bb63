#include "na/sm/endpoint.h"

#include <algorithm>

namespace weft::na::sm {
namespace {

// Copied out per poll: what keeps message bytes private until the next one.
constexpr std::size_t received_bytes_max = 256 * 1024;
constexpr std::size_t message_alignment = 16;

// A turn that commits much starts delivering before its flush.
constexpr std::uint32_t commits_per_publish = 8;

// Up to this many connections are all looked at with every poll; beyond, one that was silent for
// `idle_polls_max` polls is looked at in turn, this many of them per poll.
constexpr std::size_t always_active_max = 16;
constexpr std::size_t idle_looks_per_poll = 16;
constexpr std::uint32_t idle_polls_max = 1024;

constexpr Duration control_every = 5ms;
constexpr Duration idle_control_every = 50us;
constexpr std::uint32_t idle_control_polls = 256;
constexpr std::uint32_t handshake_control_polls = 16;

}  // namespace

Connection* SmEndpoint::find(PeerId peer) const {
    if (peer.index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[peer.index];
    return slot.generation == peer.generation ? slot.connection.get() : nullptr;
}

Connection* SmEndpoint::find_up(PeerId peer) const {
    Connection* connection = find(peer);
    return connection && connection->phase == Phase::up ? connection : nullptr;
}

std::byte* SmEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claimed_);
    Connection* connection = find_up(peer);
    if (!connection || bytes > connection->message_bytes_max) [[unlikely]]
        return nullptr;
    std::byte* room = connection->writer.claim(bytes);
    if (!room) [[unlikely]] {
        refused_ += !connection->wants_writable;
        connection->wants_writable = true;
        return nullptr;
    }
    claimed_ = connection;
    return room;
}

void SmEndpoint::commit(std::size_t bytes) noexcept {
    Connection* connection = std::exchange(claimed_, nullptr);
    if (!connection || bytes == 0) return;
    connection->writer.commit(bytes);
    if (connection->commits == 0) {
        // Room for every connection was made when it went up.
        committed_.push_back(connection);
        if (connection->place >= active_) make_active(*connection);  // An answer will come.
    }
    if (connection->commits++ % commits_per_publish == 0) {
        publish(*connection);
    } else {
        connection->unpublished = true;
    }
}

void SmEndpoint::flush() noexcept {
    for (Connection* connection : committed_) {
        if (connection->unpublished) publish(*connection);
        connection->commits = 0;
    }
    committed_.clear();
}

void SmEndpoint::publish(Connection& connection) noexcept {
    connection.unpublished = false;
    connection.writer.publish(connection.reader.taken());
    wake_if_dozing(connection);
}

// Requires: a full barrier after what the peer shall see.
inline void SmEndpoint::wake_if_dozing(Connection& connection) noexcept {
    const std::uint32_t doze = connection.regions.doze();
    if ((doze & 1) == 0 || doze == connection.doze_woken) [[likely]]
        return;
    connection.doze_woken = doze;
    send_wake(connection.socket.get());
}

std::size_t SmEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    received_bytes_ = 0;
    copy_budget_ = slice_bytes_max;
    std::size_t count = 0;
    if (armed_ || control_is_due(now)) [[unlikely]] {
        control(now);
    }
    if (!notices_.empty()) [[unlikely]] {
        bool full = false;
        count = give_notices(events, full);
        if (full) return count;
    }
    count += take_messages(events.subspan(count));
    if (ending_ != 0) [[unlikely]] {
        bool full = false;
        finish_ending();
        count += give_notices(events.subspan(count), full);
        if (full) return count;
    }
    if (refused_ != 0) [[unlikely]] {
        count += give_writable(events.subspan(count));
    }
    if (!fencing_.empty()) [[unlikely]] {
        count += give_fenced(events.subspan(count));
    }
    if (!transfers_.is_idle()) {
        bool full = false;
        count += give_transfers(events.subspan(count), full);
    }
    empty_polls_ = count == 0 ? empty_polls_ + 1 : 0;
    return count;
}

bool SmEndpoint::control_is_due(TimePoint now) const noexcept {
    const Duration since = now - last_control_;
    if (since >= control_every) return true;
    if (empty_polls_ >= idle_control_polls && since >= idle_control_every) return true;
    return handshakes_ != 0 && empty_polls_ % handshake_control_polls == 0;
}

// The active ones in turn, starting after the one that came last, so that none starves the others.
std::size_t SmEndpoint::take_messages(std::span<Event> events) noexcept {
    std::size_t count = 0;
    const bool all_active = watched_.size() <= always_active_max;
    if (!all_active) look_at_idle_ones();
    for (std::size_t looks = active_; looks != 0 && active_ != 0; --looks) {
        if (++turn_ >= active_) turn_ = 0;
        Connection& connection = *watched_[turn_];
        if (connection.reader.has_records()) {
            connection.idle_polls = 0;
            if (!take_from(connection, events, count)) break;
        } else if (!all_active && ++connection.idle_polls > idle_polls_max) {
            make_idle(connection);
        }
    }
    return count;
}

// False: no more events or bytes fit into this poll.
bool SmEndpoint::take_from(Connection& connection, std::span<Event> events,
                           std::size_t& count) noexcept {
    RingReader::Take took = RingReader::Take::no_room;
    while (count < events.size()) {
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        took = connection.reader.take(Bytes(to, received_bytes_max - received_bytes_), &bytes);
        if (took != RingReader::Take::message) break;
        Event& event = events[count++];
        event = Event{};
        event.peer = connection.id;
        event.bytes = ByteView(to, bytes);
        received_bytes_ += (bytes + message_alignment - 1) / message_alignment * message_alignment;
        if (received_bytes_ > received_bytes_max) received_bytes_ = received_bytes_max;
        if (connection.reader.free()) [[unlikely]] {
            wake_if_dozing(connection);
        }
    }
    if (took == RingReader::Take::broken ||
        !connection.writer.acknowledge(connection.reader.acknowledged())) [[unlikely]] {
        take_down(connection, Code::data_loss,
                  connection.info.uri + " broke the rules of the ring (bad record)");
        return true;
    }
    return took == RingReader::Take::empty;
}

void SmEndpoint::look_at_idle_ones() noexcept {
    const std::size_t idle = watched_.size() - active_;
    for (std::size_t looks = std::min(idle, idle_looks_per_poll); looks != 0; --looks) {
        if (++idle_turn_ < active_ || idle_turn_ >= watched_.size()) idle_turn_ = active_;
        if (idle_turn_ >= watched_.size()) return;
        Connection& connection = *watched_[idle_turn_];
        if (connection.reader.has_records()) make_active(connection);
    }
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
        Connection& connection = *watched_[i];
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
    for (Connection* connection : watched_) {
        if (connection->reader.has_records() ||
            (connection->wants_writable &&
             (connection->writer.has_space() || connection->writer.is_broken()))) {
            table_.wake();
            armed_ = false;
            if (connection->place >= active_) make_active(*connection);
            return false;
        }
    }
    return true;
}

void SmEndpoint::watch(Connection& connection) {
    watched_.push_back(&connection);
    connection.place = static_cast<std::uint32_t>(watched_.size() - 1);
    make_active(connection);
    committed_.reserve(watched_.size());
}

void SmEndpoint::unwatch(Connection& connection) {
    make_idle(connection);
    place(*watched_.back(), connection.place);
    watched_.pop_back();
    std::erase(committed_, &connection);
    if (connection.wants_writable) --refused_;
    connection.wants_writable = false;
    if (claimed_ == &connection) claimed_ = nullptr;
    // Few enough for all to be active again.
    if (watched_.size() <= always_active_max) active_ = watched_.size();
}

void SmEndpoint::place(Connection& connection, std::size_t at) {
    watched_[at] = &connection;
    connection.place = static_cast<std::uint32_t>(at);
}

void SmEndpoint::make_active(Connection& connection) noexcept {
    connection.idle_polls = 0;
    if (connection.place < active_) return;
    Connection& other = *watched_[active_];
    place(other, connection.place);
    place(connection, active_++);
}

void SmEndpoint::make_idle(Connection& connection) noexcept {
    if (connection.place >= active_) return;
    Connection& other = *watched_[--active_];
    place(other, connection.place);
    place(connection, active_);
}

}  // namespace weft::na::sm
