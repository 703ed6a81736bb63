// Which sockets are looked at, and when: the few that talk are read without asking, the others when
// epoll says so.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/own_descriptor.h"
#include "na/own_stall.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// More stay hot for as long only as each read brings all that it asks for.
constexpr std::uint32_t hot_max = 4;
// Reads without a byte after which a lane is left to epoll.
constexpr std::uint32_t misses_max = 1024;
// How often a full lane is written to again, once or twice a turn, before it is left to epoll.
constexpr std::uint32_t tries_max = 16;
constexpr std::uint32_t tries_spinning_max = 1024;
// Between two looks at the others while the hot ones are polled: as many empty polls, or so long.
constexpr std::uint32_t polls_per_look = 16;
constexpr Duration look_every = 100us;
constexpr Duration look_every_idle = 10ms;
constexpr int events_per_look = 64;
constexpr std::uint64_t listener_id = 0;

std::uint64_t id_of(base::SlotId id) { return std::uint64_t{id.slot} << 32 | id.generation; }
base::SlotId slot_of(std::uint64_t id) {
    return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

}  // namespace

// False: no memory for it.
bool TcpEndpoint::watch(Lane& lane, bool for_writing) {
    base::SlotTable<Lane*>::Entry* entry = lanes_.take();
    if (!entry) return false;
    entry->value = &lane;
    lane.watch = entry->id();
    lane.full = for_writing;
    epoll_event wanted{};
    wanted.events = for_writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
    wanted.data.u64 = id_of(lane.watch);
    if (base::check_open(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane.socket.get(), &wanted)) ==
        0) {
        return true;
    }
    lanes_.give_back(*entry);
    lane.watch = {};
    return false;
}

bool TcpEndpoint::watch_listener() {
    return admission_.open(epoll_.get(), listener(), listener_id, send_refusal);
}

void TcpEndpoint::unwatch(Lane& lane) {
    cool(lane);
    if (!lane.watch) return;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.socket.get(), nullptr);
    lanes_.give_back(*lanes_.find(lane.watch));
    lane.watch = {};
}

void TcpEndpoint::close_lane(Lane& lane) {
    unwatch(lane);
    lane.socket.reset();
    lane.full = false;
}

// The socket with its place in the epoll set: nothing that may fail, once the peer was answered.
void TcpEndpoint::hand_over(Lane& from, Lane& to) {
    WEFT_ASSERT(!to.watch && !from.full && !to.full);
    to.socket = std::move(from.socket);
    to.watch = std::exchange(from.watch, {});
    lanes_.find(to.watch)->value = &to;
}

void TcpEndpoint::want_room(Lane& lane, bool wanted) {
    if (lane.full == wanted) return;
    lane.full = wanted;
    epoll_event events{};
    events.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
    events.data.u64 = id_of(lane.watch);
    (void)base::check_open(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.socket.get(), &events));
}

// A full socket has room again long before epoll is asked.
bool TcpEndpoint::may_try_again(Lane& lane) const noexcept {
    if (++lane.tries <= (parts_.sleeps ? tries_max : tries_spinning_max)) return true;
    lane.tries = 0;
    return false;
}

// Something may come soon. A lane that is closed, or of a connection that is down, is not watched
// and stays cold.
void TcpEndpoint::heat(Lane& lane) {
    lane.misses = 0;
    if (lane.is_linked() || !lane.watch) return;
    if (hot_count_ < hot_max || cool_an_idle_one()) add_hot(lane);
}

void TcpEndpoint::add_hot(Lane& lane) {
    WEFT_ASSERT(lane.watch && lane.connection->phase == Phase::up);
    lane.misses = 0;
    (lane.kind == Lane::Kind::talk ? hot_talk_ : hot_bulk_).push_back(lane);
    ++hot_count_;
}

bool TcpEndpoint::cool_an_idle_one() {
    if (hot_count_ > hot_max) return false;
    Lane* idle = nullptr;
    for (HotLanes* lanes : {&hot_talk_, &hot_bulk_}) {
        lanes->for_each([&](Lane& lane) {
            if (lane.misses > polls_per_look) idle = &lane;
        });
    }
    if (idle) cool(*idle);
    return idle != nullptr;
}

void TcpEndpoint::cool(Lane& lane) {
    if (!lane.is_linked()) return;
    lane.unlink();
    --hot_count_;
}

// Whether this turn has room for what a lane brings.
bool TcpEndpoint::may_read(Lane::Kind kind, std::span<Event> events,
                           std::size_t count) const noexcept {
    if (kind == Lane::Kind::bulk) return bulk_left_ != 0;
    return count < events.size() && slab_.has_room();
}

// Each at most once.
void TcpEndpoint::read_hot(Lane::Kind kind, std::span<Event> events, std::size_t& count) noexcept {
    const bool is_talk = kind == Lane::Kind::talk;
    HotLanes& waiting = is_talk ? hot_talk_ : hot_bulk_;
    HotLanes served;
    while (Lane* lane = waiting.front()) {
        if (!may_read(kind, events, count)) {
            (is_talk ? talk_share_ : bulk_share_).left_out();
            break;
        }
        lane->unlink();
        served.push_back(*lane);
        read(*lane, events, count);
    }
    waiting.splice_back(served);
}

void TcpEndpoint::read(Lane& lane, std::span<Event> events, std::size_t& count) noexcept {
    if (lane.kind == Lane::Kind::talk) {
        read_talk(*lane.connection, events, count);
    } else {
        read_bulk(*lane.connection);
    }
}

// It had something; `all`: and has no more.
void TcpEndpoint::brought(Lane& lane, bool all) noexcept {
    lane.misses = 0;
    if (all) cool_in_crowd(lane);
}

void TcpEndpoint::missed(Lane& lane) noexcept {
    if (++lane.misses > misses_max) return cool(lane);
    cool_in_crowd(lane);
}

void TcpEndpoint::cool_in_crowd(Lane& lane) noexcept {
    if (hot_count_ <= hot_max) return;
    cool(lane);
    look_now_ = true;
}

bool TcpEndpoint::is_time_to_look(bool busy) noexcept {
    if (look_now_ || hot_count_ == 0) return true;
    if (busy) return now_ - looked_at_ >= look_every;
    return ++polls_unlooked_ >= polls_per_look || now_ - looked_at_ >= look_every_idle;
}

void TcpEndpoint::look(std::span<Event> events, std::size_t& count) noexcept {
    look_now_ = false;
    polls_unlooked_ = 0;
    const Duration stall = own_stall(now_ - std::exchange(looked_at_, now_));
    if (stall > Duration::zero()) forgive(stall);
    epoll_event ready[events_per_look];
    const int found = base::check_open(::epoll_wait(epoll_.get(), ready, events_per_look, 0));
    for (int i = 0; i < found; ++i) {
        if (ready[i].data.u64 == listener_id) {
            accept_some();
            continue;
        }
        // Gone when an event before this one ended it.
        if (auto* entry = lanes_.find(slot_of(ready[i].data.u64))) {
            handle(*entry->value, ready[i].events, events, count);
        }
    }
    if (handshakes_ != 0 || !strangers_.empty()) serve_handshakes();
    admission_.serve(now_);
}

void TcpEndpoint::handle(Lane& lane, std::uint32_t ready, std::span<Event> events,
                         std::size_t& count) noexcept {
    const bool readable = (ready & ~std::uint32_t{EPOLLOUT}) != 0;
    const bool writable = (ready & EPOLLOUT) != 0;
    if (lane.kind == Lane::Kind::stranger) return read_stranger(*lane.stranger);
    Connection& connection = *lane.connection;
    if (lane.kind == Lane::Kind::talk) {
        if (connection.phase == Phase::connecting) return on_connected(connection);
        if (connection.phase == Phase::greeting) return read_welcome(connection);
        if (writable && lane.full) send_now(connection);
        if (!connection.announced) {
            look_now_ = true;
            return;
        }
    } else {
        const BulkPhase phase = connection.bulk->phase;
        if (phase == BulkPhase::connecting) return on_bulk_connected(connection);
        if (phase == BulkPhase::joining) return read_joined(connection);
        if (writable && lane.full) {
            want_room(lane, false);
            pump(connection);
        }
    }
    if (!readable || lane.is_linked() || connection.phase != Phase::up) return;
    // More than the hot ones talk: look again soon.
    look_now_ = true;
    heat(lane);
    if (!lane.is_linked()) add_hot(lane);
    if (may_read(lane.kind, events, count)) {
        read(lane, events, count);
    } else {
        (lane.kind == Lane::Kind::talk ? talk_share_ : bulk_share_).left_out();
    }
}

}  // namespace weft::na::tcp
