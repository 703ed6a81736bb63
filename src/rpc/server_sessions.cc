#include "rpc/server_sessions.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace weft::rpc {

ServerSession* ServerSessions::find(const SessionId& id) {
    const auto at = sessions_.find(id);
    return at == sessions_.end() ? nullptr : at->second.get();
}

ServerSession* ServerSessions::insert(SessionOwner& owner, const SessionId& id) {
    try {
        auto session = std::make_unique<ServerSession>(owner, id);
        session->grow(initial_slots);
        if (session->slots() < initial_slots) return nullptr;
        ServerSession* const added = sessions_.emplace(id, std::move(session)).first->second.get();
        uncounted_.push_back(*added);
        return added;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void ServerSessions::erase(ServerSession& session) {
    WEFT_ASSERT(session.slots() >= initial_slots && pooled_ >= session.slots() - initial_slots);
    pooled_ -= session.slots() - initial_slots;
    std::uint32_t visited = 0;
    requests_ += session.count_new_requests(visited);
    static_cast<CountedSession&>(session).unlink();
    EvictableSession& node = session;
    if (node.is_linked()) node.unlink();
    sessions_.erase(SessionId(session.id));
    limit_.trim(sessions_.size());
    slots_limit_.trim(pooled_);
}

void ServerSessions::widen(ServerSession& session) {
    WEFT_ASSERT(pooled_ <= slots_pool && session.slots() >= initial_slots);
    const std::uint32_t had = session.slots();
    if (!slots_limit_.extend(pooled_, slots_max - had)) return;
    session.grow(slots_max);
    pooled_ += session.slots() - had;
    slots_limit_.trim(pooled_);  // If there was no memory for all of them.
}

ServerSessions::Requests ServerSessions::count_requests() {
    std::uint32_t visited = 0;
    while (ServerSession* const session = uncounted_.pop_front()) {
        counted_.push_back(*session);
        const std::uint32_t requests = session->count_new_requests(visited);
        requests_ += requests;
        round_.all += requests;
        if (requests > round_.most) {
            round_.most = requests;
            round_.id = session->id;
        }
        if (visited >= visited_slots_max) break;
    }
    if (!uncounted_.empty()) return {requests_, false};
    uncounted_.splice_back(counted_);
    last_round_ = std::exchange(round_, {});
    return {requests_, true};
}

void ServerSessions::connect(ServerSession& session, core::Peer& peer, TimePoint now) {
    WEFT_ASSERT(!session.peer);
    EvictableSession& node = session;
    if (node.is_linked()) node.unlink();
    session.peer = &peer;
    session.connected_at = now;
    if (session.client_id == 0) session.client_id = ++last_client_id_;
}

void ServerSessions::disconnect(ServerSession& session, TimePoint now) {
    WEFT_ASSERT(session.peer && !static_cast<EvictableSession&>(session).is_linked());
    session.peer = nullptr;
    session.lost_at = now;
    session.connected += now - session.connected_at;
    session.held = 0;
    session.for_each_call([&](ServerCall&) { ++session.held; });
    if (session.held == 0) add_evictable(session);
}

std::size_t ServerSessions::class_of(ServerSession& session) {
    const auto by_time = [](Duration connected) {
        return std::bit_width(static_cast<std::uint64_t>(connected / 1ms)) + std::size_t{1};
    };
    WEFT_DCHECK(by_time(brief_below) == brief_classes);
    if (!session.has_outcomes()) return 0;
    return std::min(by_time(session.connected), evictable_classes - 1);
}

void ServerSessions::add_evictable(ServerSession& session) {
    WEFT_ASSERT(!session.peer && session.held == 0);
    evictable_[class_of(session)].push_back(session);
}

// nullptr: each session of these classes has a connection or calls in handlers.
ServerSession* ServerSessions::eviction_candidate(std::size_t classes) {
    for (std::size_t i = 0; i < classes; ++i) {
        ServerSession* const first = evictable_[i].front();
        WEFT_ASSERT(!first || (!first->peer && first->held == 0));
        if (first) return first;
    }
    return nullptr;
}

}  // namespace weft::rpc
