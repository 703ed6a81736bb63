// The sessions of a server, by the names that their clients gave them: bounded, the least useful
// one makes room.
//
// Spare sessions have no connection and no call in a handler. Those without an outcome make room
// first, then those that were connected for the shortest time, by powers of two; of these the one
// that is spare for the longest. So peers that connect and disconnect quickly push out each other's
// sessions and not those that were in use. No operation walks over sessions or over the slots of
// other sessions.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "rpc/server_session.h"

namespace weft::rpc {

class ServerSessions {
  public:
    static constexpr std::size_t sessions_max = 4096;
    // Beyond each session's first ones.
    static constexpr std::uint32_t slots_pool = 65536;

    // A random factor keeps strangers, who choose the names, from aiming at one bucket.
    explicit ServerSessions(std::uint64_t random) : sessions_(64, Hash{random | 1}) {}
    ~ServerSessions() {
        while (ServerSession* session = any()) erase(*session);
    }

    // nullptr: unknown.
    ServerSession* find(const SessionId& id);
    // With its first slots. nullptr: there is no room, nor anything that could make it.
    // Requires: find() has none. `evict(session)` is told who goes to make room.
    template <class Evict>
    ServerSession* begin(Server& server, const SessionId& id, Evict&& evict) {
        if (sessions_.size() >= sessions_max) {
            ServerSession* const victim = least_useful();
            if (!victim) return nullptr;
            evict(*victim);
        }
        return insert(server, id);
    }
    void erase(ServerSession& session);
    // More slots, of the pool.
    void widen(ServerSession& session);
    // Its connection begins, and ends.
    void connect(ServerSession& session, core::Peer& peer, TimePoint now);
    void lose(ServerSession& session, TimePoint now);
    // A call of a session without a connection leaves its handler.
    void on_call_over(ServerSession& session) {
        WEFT_DCHECK(!session.peer && session.held != 0);
        if (--session.held == 0) spare(session);
    }

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

    // By the milliseconds of its connections.
    static constexpr std::size_t spare_classes = 32;

    ServerSession* least_useful();
    void spare(ServerSession& session);
    ServerSession* insert(Server& server, const SessionId& id);

    std::unordered_map<SessionId, std::unique_ptr<ServerSession>, Hash> sessions_;
    std::array<base::IntrusiveList<ServerSession, SpareSession>, spare_classes> spare_;
    std::uint32_t pooled_ = 0;  // Slots of the pool that are in use.
};

}  // namespace weft::rpc
