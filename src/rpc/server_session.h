// The server's state of one client's session. Each slot holds the running call or the outcome of
// the last call, until the client's next number in that slot acknowledges the outcome.
//
// Slots, as in NFS 4.1 (RFC 8881, 2.10.6); docs/adr/0006-sessions.md.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/state.h"
#include "base/timer_wheel.h"
#include "core/peer.h"
#include "rpc/session_wire.h"

namespace weft::rpc {

struct ServerCall;
class ServerSession;

// Receives the timers of sessions.
class SessionOwner {
  public:
    virtual void on_time(ServerSession& session, TimePoint now) = 0;

  protected:
    ~SessionOwner() = default;
};

// In one of the lists of sessions that may be evicted (ServerSessions).
struct EvictableSession : base::ListNode {};
// In one of the two lists for counting the requests of each session in turn.
struct CountedSession : base::ListNode {};

class ServerSession : public core::ServerState,
                      public base::Timer,
                      public EvictableSession,
                      public CountedSession {
  public:
    static constexpr std::size_t kept_bytes_max = 96;
    static constexpr std::uint8_t nothing_kept = 255;

    enum class Retention : std::uint8_t {
        reply,         // If it is small.
        outcome,       // Without the reply, which is useless without the inline puts ahead of it.
        nothing,       // Idempotent: after a query the call runs again.
        not_received,  // Likewise, and reported as not received: its number may arrive once more.
    };

    friend constexpr bool can_move(Retention from, Retention to) {
        switch (to) {
            case Retention::reply:
            case Retention::nothing: return false;
            case Retention::outcome: return from != Retention::not_received;
            case Retention::not_received: return from != Retention::outcome;
        }
        return false;
    }
    struct Slot {
        ServerCall* call = nullptr;  // The running call.
        std::uint32_t sequence = 0;  // Of the last call received; 0: none.
        std::uint16_t outcome = 0;   // Of a completed call, as in a reply's head.
        std::uint8_t bytes = 0;      // Of the kept reply or text; or nothing_kept.
        base::State<Retention> retention{Retention::reply};  // Each request starts it anew.
        std::array<std::byte, kept_bytes_max> reply;
    };
    static_assert(sizeof(Slot) <= 128);

    ServerSession(SessionOwner& of, const SessionId& as) : owner(of), id(as) {
        fire = [](base::Timer& timer, TimePoint now) {
            auto& session = static_cast<ServerSession&>(timer);
            session.owner.on_time(session, now);
        };
    }

    // Allocates slots for `wanted` calls; fewer if memory is short.
    void grow(std::uint32_t wanted) {
        WEFT_ASSERT(wanted <= slots_max);
        while (slots_ < wanted) {
            auto& block = blocks_[slots_ / block_slots];
            block.reset(new (std::nothrow) Slot[block_slots]);
            if (!block) return;
            slots_ += block_slots;
        }
    }
    std::uint32_t slots() const { return slots_; }
    Slot& slot(std::uint32_t index) {
        WEFT_DCHECK(index < slots_);
        return blocks_[index / block_slots][index % block_slots];
    }

    // keep() stores the outcome of a slot's call, with its reply or text. Requires: `body` is a
    // valid pointer, also for 0 bytes.
    static bool is_kept(const Slot& slot, std::size_t bytes) {
        return slot.retention == Retention::reply && bytes <= kept_bytes_max;
    }
    static void keep(Slot& slot, std::uint16_t outcome, const std::byte* body, std::size_t bytes) {
        if (!is_kept(slot, bytes)) [[unlikely]] {
            return keep_nothing(slot, outcome);
        }
        keep_small(slot, outcome, body, bytes);
    }
    // The same as keep(). Requires: is_kept().
    static void keep_small(Slot& slot, std::uint16_t outcome, const std::byte* body,
                           std::size_t bytes) {
        WEFT_DCHECK(is_kept(slot, bytes) && body);
        slot.call = nullptr;
        slot.outcome = outcome;
        slot.bytes = static_cast<std::uint8_t>(bytes);
        std::memcpy(slot.reply.data(), body, bytes);
    }

    static void keep_nothing(Slot& slot, std::uint16_t outcome) {
        slot.call = nullptr;
        slot.outcome = outcome;
        slot.bytes = nothing_kept;
    }

    template <class Visit>
    void for_each_call(Visit&& visit) {
        for (std::uint32_t i = 0; i < slots_; ++i) {
            if (ServerCall* call = slot(i).call) visit(*call);
        }
    }
    // The requests received since the last call of this. Clients use the lowest slots first: those
    // behind the first unused one are not counted. Adds the slots that it reads to `visited`.
    std::uint32_t count_new_requests(std::uint32_t& visited) {
        std::uint32_t all = 0, i = 0;
        for (; i < slots_ && slot(i).sequence != 0; ++i) all += slot(i).sequence;
        visited += i + 1;
        return all - std::exchange(counted_requests_, all);
    }
    // Whether it holds an outcome that the client may query.
    bool has_outcomes() {
        for (std::uint32_t i = 0; i < slots_; ++i) {
            if (slot(i).sequence != 0) return true;
        }
        return false;
    }

    // ---- the client
    SessionOwner& owner;
    const SessionId id;
    core::Peer* peer = nullptr;    // nullptr: its connection is lost.
    std::string client;            // The client's own name, for users.
    std::uint64_t client_id = 0;   // Call::client().
    std::uint32_t window = 0;      // Of the last grant.
    std::size_t parsed_bytes = 0;  // Held by its calls.

    // ---- its connections and its end
    TimePoint connected_at{};  // Start of its current or last connection.
    Duration connected{};      // All its lost connections together.
    std::uint32_t held = 0;    // Without a connection: its calls in handlers.
    TimePoint lost_at{};
    TimePoint awaited_until{};        // Until then the client may reconnect or query lost replies.
    bool handlers_cancelled = false;  // Its handlers were cancelled because the client is lost.
    bool is_ended = false;  // SessionReply::ended was sent: later requests are not executed.
    // The latest end of a wait, however often the session is lost and resumed while the server
    // ends.
    TimePoint awaited_end = never;

  private:
    static constexpr std::uint32_t block_slots = 64;
    static_assert(initial_slots % block_slots == 0 && slots_max % block_slots == 0);

    std::array<std::unique_ptr<Slot[]>, slots_max / block_slots> blocks_;
    std::uint32_t slots_ = 0;
    std::uint32_t counted_requests_ = 0;  // Modulo 2^32.
};

inline ServerSession* server_session(const core::Peer& peer) {
    return static_cast<ServerSession*>(peer.server);
}

}  // namespace weft::rpc
