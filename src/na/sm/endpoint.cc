#include "na/sm/endpoint.h"

#include <algorithm>
#include <cstring>

#include "na/sm/stream_copy.h"

namespace weft::na::sm {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 15) & ~std::size_t{15}; }
constexpr std::size_t letter_room = aligned(letter_bytes_max);

// A turn that commits much starts delivering before its flush.
constexpr std::uint32_t commits_per_publish = 8;

// Between two looks at the sockets when none came for that many polls. Handshakes are looked after
// at every sixteenth of these.
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
    if (std::byte* letter = connection->writer.claim_letter(bytes)) return letter;
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
    refused_ += !connection.wants_writable;
    connection.wants_writable = true;
    attend();
}

// A letter is on its way at once: everything before it was taken, so that nothing is joined by
// waiting.
bool SmEndpoint::commit(std::size_t bytes) noexcept {
    Connection* connection = std::exchange(claimed_, nullptr);
    if (!connection || bytes == 0) [[unlikely]] {
        return false;
    }
    RingWriter& writer = connection->writer;
    if (!writer.is_letter()) return commit_record(*connection, bytes);
    writer.send_letter(bytes, connection->reader.taken());
    if (connection->regions.is_dozing() || !watched_.is_active(*connection)) [[unlikely]] {
        return expect_answer(*connection);
    }
    return false;
}

// Delivers the first of a turn and then now and then, so that the reader need not wait for it all.
bool SmEndpoint::commit_record(Connection& connection, std::size_t bytes) noexcept {
    if (streamed_to_) stream_copy(streamed_to_, draft_.get(), std::min(bytes, drafted_bytes_));
    connection.writer.commit(bytes);
    const std::uint32_t before = connection.commits++;
    if (before == 0) {
        connection.next_committed = committed_;
        committed_ = &connection;
        watched_.touch(connection);
    }
    connection.unpublished = before % commits_per_publish != 0;
    if (!connection.unpublished) publish(connection);
    return true;
}

// Ends a commit that needs no flush.
[[gnu::noinline, gnu::cold]] bool SmEndpoint::expect_answer(Connection& connection) noexcept {
    watched_.touch(connection);
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

// What is published lies in memory that the peer shares.
std::size_t SmEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = find(peer);
    return connection && connection->unpublished ? 1 : 0;
}

void SmEndpoint::publish(Connection& connection) noexcept {
    connection.writer.publish(connection.reader.taken());
    wake_if_dozing(connection);
}

// Requires: a full barrier after what the peer shall see.
void SmEndpoint::wake_if_dozing(Connection& connection) noexcept {
    const std::uint32_t doze = connection.regions.doze();
    if ((doze & 1) == 0 || doze == connection.doze_woken) return;
    connection.doze_woken = doze;
    send_wake(connection.socket.get());
}

std::size_t SmEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    received_bytes_ = 0;
    return now < attend_at_ ? poll_messages(events) : poll_everything(events);
}

[[gnu::noinline]] std::size_t SmEndpoint::poll_messages(std::span<Event> events) noexcept {
    using Visited = Watchlist::Visited;
    std::size_t count = 0;
    watched_.visit_ready([&](Connection& connection, std::uint64_t published) {
        RingReader& reader = connection.reader;
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        std::uint64_t acknowledged = 0;
        if (count == events.size() || received_bytes_ > received_bytes_max - letter_room ||
            !reader.take_lone_letter(published, to, &bytes, &acknowledged)) {
            const Taken taken = take_records(connection, events.subspan(count));
            count += taken.events;
            if (taken.room_left) return Visited::go_on;
            return taken.events != 0 || taken.broke_off ? Visited::end_here : Visited::end_before;
        }
        received_bytes_ += letter_room;
        give_message(connection, events[count++], ByteView(to, bytes));
        if (connection.writer.acknowledge(acknowledged)) [[likely]] {
            return Visited::go_on;
        }
        break_off(connection);
        return Visited::end_here;
    });
    if (count != 0) {
        empty_polls_ = 0;
    } else if (++empty_polls_ % handshake_control_polls == 0) [[unlikely]] {
        plan_control();
    }
    return count;
}

// Nothing came for a while: the sockets may have something.
void SmEndpoint::plan_control() noexcept {
    TimePoint at = never;
    if (handshakes_ != 0) {
        at = now_;
    } else if (empty_polls_ >= idle_control_polls) {
        at = last_control_ + idle_control_every;
    }
    control_at_ = std::min(control_at_, at);
    attend_at_ = std::min(attend_at_, at);
}

std::size_t SmEndpoint::poll_everything(std::span<Event> events) noexcept {
    if (now_ >= control_at_) control(now_);
    attend();  // Unless it all gets done.
    std::size_t count = 0;
    if (!give_notices(events, count)) return count;
    const bool rest_first = std::exchange(was_full_, false);
    if (rest_first) {
        count += give_rest(events.subspan(count).first((events.size() - count + 1) / 2));
        // One that error() explains ends the batch.
        if (count != 0 && events[count - 1].code != Code::ok) return count;
    }
    const std::size_t messages = poll_messages(events.subspan(count));
    if (messages != 0 && !transfers_.is_idle()) talked_at_ = now_;
    count += messages;
    if (ending_ != 0) {
        finish_ending();
        if (!give_notices(events, count)) return count;
    }
    if (!rest_first) count += give_rest(events.subspan(count));
    was_full_ = count == events.size() && !rest_first;
    const bool more = !notices_.empty() || ending_ != 0 || refused_ != 0 || !fencing_.empty() ||
                      !transfers_.is_idle();
    if (!more) attend_at_ = control_at_;
    return count;
}

// What is not a message.
std::size_t SmEndpoint::give_rest(std::span<Event> events) noexcept {
    std::size_t count = give_writable(events);
    count += give_fenced(events.subspan(count));
    copy_budget_ = copy_bytes_per_turn();
    return count + give_transfers(events.subspan(count));
}

SmEndpoint::Taken SmEndpoint::take_records(Connection& connection,
                                           std::span<Event> events) noexcept {
    RingReader& reader = connection.reader;
    Taken taken;
    reader.look();
    if (!connection.writer.acknowledge(reader.acknowledged())) {
        taken.broke_off = true;
        break_off(connection);
        return taken;
    }
    do {
        if (taken.events == events.size()) return taken;
        std::byte* to = received_.get() + received_bytes_;
        std::size_t bytes = 0;
        const auto took = reader.take(Bytes(to, received_bytes_max - received_bytes_), &bytes);
        if (took != RingReader::Take::message) {
            taken.broke_off = took == RingReader::Take::broken;
            if (taken.broke_off) break_off(connection);
            return taken;
        }
        received_bytes_ += aligned(bytes);
        give_message(connection, events[taken.events++], ByteView(to, bytes));
        if (reader.free()) wake_if_dozing(connection);
    } while (reader.has_seen_more());
    taken.room_left = true;
    return taken;
}

inline void SmEndpoint::give_message(Connection& connection, Event& event,
                                     ByteView message) noexcept {
    event.kind = EventKind::message;
    event.peer = connection.id;
    event.bytes = message;
}

// The walk over the connections must end here, for this changes them; the next poll goes on.
void SmEndpoint::break_off(Connection& connection) noexcept {
    take_down(connection, Code::data_loss,
              connection.info.uri + " broke the rules of the ring (bad record)");
}

// Events that wait, up to and including the first that error() explains. False: the batch of events
// ends here.
bool SmEndpoint::give_notices(std::span<Event> events, std::size_t& count) noexcept {
    while (!notices_.empty()) {
        if (count == events.size()) return false;
        Notice notice = std::move(notices_.front());
        notices_.pop_front();
        if (!find(notice.event.peer)) continue;  // Closed meanwhile.
        events[count++] = notice.event;
        if (notice.event.kind == EventKind::peer_down) {
            retire(release(notice.event.peer));
            error_ = std::move(notice.text);
            return false;
        }
    }
    return true;
}

// Begins with another one each time.
std::size_t SmEndpoint::give_writable(std::span<Event> events) noexcept {
    std::size_t count = 0;
    if (refused_ == 0) return count;
    const std::size_t start = ++writable_turn_;
    for (std::size_t i = 0; i < watched_.size() && count < events.size() && refused_ != 0; ++i) {
        Connection& connection = watched_[(start + i) % watched_.size()];
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
    attend();
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
