#include "rpc/server_sessions.h"

#include <algorithm>

namespace weft::rpc {

ServerSession* ServerSessions::find(const SessionId& id) {
    const auto at = sessions_.find(id);
    return at == sessions_.end() ? nullptr : at->second.get();
}

ServerSession* ServerSessions::insert(Server& server, const SessionId& id) {
    try {
        auto session = std::make_unique<ServerSession>(server, id);
        session->grow(slots_at_first);
        if (session->slots() < slots_at_first) return nullptr;
        return sessions_.emplace(id, std::move(session)).first->second.get();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void ServerSessions::erase(ServerSession& session) {
    pooled_ -= session.slots() - slots_at_first;
    sessions_.erase(SessionId(session.id));
}

void ServerSessions::widen(ServerSession& session) {
    const std::uint32_t had = session.slots();
    const std::uint32_t room = slots_pool - pooled_;
    if (slots_max - had > room) return;
    session.grow(slots_max);
    pooled_ += session.slots() - had;
}

// One without a connection and without calls: first whose outcomes nobody can ask for, then the one
// that was lost longest ago.
ServerSession* ServerSessions::least_useful() {
    ServerSession* best = nullptr;
    bool best_is_empty = false;
    for (auto& [id, session] : sessions_) {
        if (session->peer || session->has_calls()) continue;
        const bool is_empty = !session->has_outcomes();
        if (!best || (is_empty && !best_is_empty) ||
            (is_empty == best_is_empty && session->lost_at < best->lost_at)) {
            best = session.get();
            best_is_empty = is_empty;
        }
    }
    return best;
}

}  // namespace weft::rpc
