// The sessions of a server, by the ids that their clients chose. Their number is bounded: the least
// useful session is evicted. The bound is that of all contexts of a runtime together.
//
// Evictable sessions have no connection and no call in a handler. Sessions without an outcome are
// evicted first, then those that were connected for the shortest time, by powers of two. Within a
// class the one that is evictable for the longest time is evicted. So peers that connect and
// disconnect quickly evict each other's sessions and not those that were in use. No operation of a
// client walks over all sessions or over the slots of other sessions.
//
// A context evicts its own sessions only. So that brief ones do not take what others need, it
// evicts those before it takes more than half of what the contexts have in common.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <unordered_map>

#include "base/assert.h"
#include "core/budget.h"
#include "rpc/server_session.h"

namespace weft::rpc {

class ServerSessions {
  public:
    static constexpr std::size_t sessions_max = 4096;
    // In excess of each session's initial slots.
    static constexpr std::uint32_t slots_pool = 65536;

    // Clients choose the ids: a random factor keeps them from hitting one bucket on purpose.
    // `context`: the number of the server's context, so that those of a runtime number their
    // clients differently. `budgets`: of these contexts; nullptr: there is one.
    ServerSessions(std::uint64_t random, std::uint16_t context,
                   const std::shared_ptr<core::Budgets>& budgets = nullptr)
        : sessions_(64, Hash{random | 1}),
          limit_(core::budget_of(budgets, &core::Budgets::sessions), sessions_max),
          slots_limit_(core::budget_of(budgets, &core::Budgets::session_slots), slots_pool),
          last_client_id_(std::uint64_t{context} << 48) {}
    ~ServerSessions() {
        while (ServerSession* session = any()) erase(*session);
        WEFT_DCHECK(pooled_ == 0);
    }

    // nullptr: unknown.
    ServerSession* find(const SessionId& id);
    // Adds a session with its initial slots. nullptr: there is no room, and no session can be
    // evicted. Requires: find(id) is nullptr. `evict(session)` ends the session that is evicted.
    template <class Evict>
    ServerSession* begin(SessionOwner& owner, const SessionId& id, Evict&& evict) {
        if (!has_room()) {
            const std::size_t before = sessions_.size();
            ServerSession* const victim = eviction_candidate();
            if (!victim) return nullptr;
            evict(*victim);
            WEFT_ASSERT(sessions_.size() < before);
        }
        return insert(owner, id);
    }
    void erase(ServerSession& session);
    // Adds slots from the pool.
    void widen(ServerSession& session);
    // The start and the end of its connection.
    void connect(ServerSession& session, core::Peer& peer, TimePoint now);
    void disconnect(ServerSession& session, TimePoint now);
    // A call of a session without a connection leaves its handler.
    void on_call_done(ServerSession& session) {
        WEFT_DCHECK(!session.peer && session.held != 0);
        if (--session.held == 0) add_evictable(session);
    }

    // The requests of all sessions so far, for figures of load. Each call of this counts the new
    // ones of a few sessions: with thousands it is to be called in several turns, until `is_whole`
    // is true. Requests of the others count later.
    struct Requests {
        std::uint64_t all = 0;
        bool is_whole = false;  // All sessions have been visited; the next call begins again.
    };
    Requests count_requests();
    // The session with most of the requests of the last such round over all sessions, and its share
    // of them. nullptr: there was no request, or it has ended.
    struct Busiest {
        ServerSession* session = nullptr;
        double share = 0;
    };
    Busiest busiest() { return {find(last_round_.id), last_round_.share()}; }

    template <class Visit>
    void for_each(Visit&& visit) {
        for (auto& [id, session] : sessions_) visit(*session);
    }
    // nullptr: there is none.
    ServerSession* any() { return sessions_.empty() ? nullptr : sessions_.begin()->second.get(); }
    std::size_t size() const { return sessions_.size(); }

  private:
    struct Hash {
        std::uint64_t factor;
        std::size_t operator()(const SessionId& id) const {
            std::uint64_t mixed = (id.high ^ id.low * 0x9e3779b97f4a7c15) * factor;
            mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
            mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
            return mixed ^ mixed >> 31;
        }
    };

    // Of a call of count_requests(), and the rest of the last session: tens of microseconds with
    // cold caches.
    static constexpr std::uint32_t visited_slots_max = 128;
    // By the logarithm of the milliseconds connected.
    static constexpr std::size_t evictable_classes = 32;
    // Brief: those without an outcome, and those that were connected for less than this. Others are
    // kept for 10 s at most, so that to fill the limit with them takes about half as many
    // connections at once as to fill it with sessions that stay connected.
    static constexpr Duration brief_below = std::chrono::milliseconds(8192);
    static constexpr std::size_t brief_classes = std::bit_width(8191u) + 2;

    // Whether one more may begin without an eviction.
    bool has_room() {
        if (sessions_.size() < limit_.limit()) return true;
        if (limit_.is_scarce() && eviction_candidate(brief_classes)) return false;
        return limit_.reach(sessions_.size(), 1);
    }
    // Of so many classes, the first ones.
    ServerSession* eviction_candidate(std::size_t classes = evictable_classes);
    static std::size_t class_of(ServerSession& session);
    void add_evictable(ServerSession& session);
    ServerSession* insert(SessionOwner& owner, const SessionId& id);

    std::unordered_map<SessionId, std::unique_ptr<ServerSession>, Hash> sessions_;
    std::array<base::IntrusiveList<ServerSession, EvictableSession>, evictable_classes> evictable_;
    std::uint32_t pooled_ = 0;  // Slots of the pool that are in use.
    core::Budget::Share limit_, slots_limit_;
    // Sessions are in one of these: counted in this round, or not yet.
    base::IntrusiveList<ServerSession, CountedSession> counted_, uncounted_;
    std::uint64_t requests_ = 0;  // Counted so far.
    struct Round {
        std::uint64_t all = 0, most = 0;
        SessionId id;  // Of the session with most.
        double share() const {
            return all == 0 ? 0 : static_cast<double>(most) / static_cast<double>(all);
        }
    } round_, last_round_;
    std::uint64_t last_client_id_;
};

}  // namespace weft::rpc
