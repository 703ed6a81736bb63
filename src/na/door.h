// An address that the contexts of a runtime listen on together.
//
// Each context has an endpoint that belongs to the door. Once all of them are polled, some accept
// connections, read the hello, and pass the connection on to the endpoint of the context that it is
// meant for, before they have answered: the only moment at which a connection has no state.
// docs/adr/0014.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <weft/function.h>

#include "na/common/placement.h"

namespace weft::na {

struct DoorParts {
    std::uint16_t contexts = 1;
    Incarnation incarnation;  // Of the endpoints.
    std::uint32_t peers_max = 1024;
    // Runs `work` in a turn of the context. Thread: any. With one context it is not used.
    std::function<void(std::uint16_t context, Function<void()> work)> post;
    Placement::LoadOf load_of;
};

// Thread: any, unless stated otherwise. Owned by its endpoints.
class Door : public std::enable_shared_from_this<Door> {
  public:
    explicit Door(DoorParts parts);
    virtual ~Door() = default;

    std::uint16_t contexts() const { return placement_.contexts(); }
    // From now on connections are accepted. Before, each context polls its endpoint and asks it for
    // fences, as each may get a connection. Of one context: from the beginning.
    void start() { has_started_ = true; }
    bool has_started() const { return has_started_; }
    Placement& placement() { return placement_; }
    // The contexts are in groups, four at most, and one of each accepts connections: more than one
    // in all, because one may be blocked; not all, because each connection wakes all that do. The
    // first one of its group accepts, unless that is blocked or no thread turns it; then the next.
    bool is_first(std::uint16_t context) const { return context % stride() == 0; }
    // The context of this one's group that accepts; this one, if all before it are blocked.
    std::uint16_t acceptor_before(std::uint16_t context, TimePoint now) const;
    // Of `all` places for unfinished handshakes at the address, those of each that accepts.
    std::size_t accepting_share(std::size_t all) const {
        return all / ((contexts() + stride() - 1u) / stride());
    }

    // The endpoint of a context, from its opening to its end. Thread: that of the context.
    void enter(std::uint16_t context, Endpoint& endpoint);
    void leave(std::uint16_t context);

    // Runs `work` with the endpoint of another context in a turn of that; with nullptr, if it has
    // ended. `now`: of the caller. False: too many connections wait for that context already, or
    // there is no memory; `work` is destroyed.
    bool pass(std::uint16_t context, TimePoint now, Function<void(Endpoint*)> work);
    // Whether pass() has room; another thread may take it before.
    bool has_room(std::uint16_t context) const { return member(context).passing < passing_max; }
    // Passes nothing, from time to time, so that it shows whether the context is blocked.
    void probe(std::uint16_t context, TimePoint now);

  private:
    static constexpr unsigned acceptors_max = 4;
    static constexpr std::uint32_t passing_max = 64;  // To one context.
    // A context that has not taken a connection for so long is blocked.
    static constexpr Duration blocked_after = 1s;
    static constexpr Duration probe_interval = 500ms;
    struct alignas(128) Member {
        Endpoint* endpoint = nullptr;  // Of the context's thread.
        std::atomic<std::uint32_t> passing{0};
        std::atomic<TimePoint> taken_at{
            TimePoint::min()};  // At least until then it was not blocked.
    };
    // From one context that accepts to the next one.
    unsigned stride() const { return (contexts() + acceptors_max - 1) / acceptors_max; }
    Member& member(std::uint16_t context) const;
    ContextLoad load_of(std::uint16_t context, TimePoint now) const;

    const DoorParts parts_;
    std::atomic<bool> has_started_;
    const std::unique_ptr<Member[]> members_;
    Placement placement_;
};

// Moves from `part`, for work that is passed on: a context that has no room for it leaves it there.
// nullptr: no memory; then `part` is unchanged.
template <class Part>
std::shared_ptr<Part> share_part(Part& part) noexcept {
    try {
        return std::make_shared<Part>(std::move(part));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

// Whether the endpoint of one context accepts connections at its door. Thread: the context's.
class AcceptDuty {
  public:
    AcceptDuty() = default;  // It is alone: always.
    // The door outlives it.
    AcceptDuty(Door& door, std::uint16_t context)
        : door_(&door), context_(context), is_on_(door.has_started() && door.is_first(context)) {
        if (!is_on_) look_at_ = TimePoint::min();
    }

    bool is_on() const { return is_on_; }
    // True: is_on() has changed. Call when next_deadline() has passed; earlier calls cost one
    // comparison.
    bool serve(TimePoint now) { return now >= look_at_ && look(now); }
    TimePoint next_deadline() const { return look_at_; }

  private:
    static constexpr Duration look_interval = 500ms;
    static constexpr Duration start_interval = 1ms;  // Of looks at a door that has not started.
    bool look(TimePoint now);

    Door* door_ = nullptr;
    std::uint16_t context_ = 0;
    bool is_on_ = true;
    TimePoint look_at_ = never;  // The first of a group has none to stand in for.
};

}  // namespace weft::na
