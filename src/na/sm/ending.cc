// How connections end, and the slots that they leave.
#include <sys/socket.h>

#include "na/sm/endpoint.h"

namespace weft::na::sm {

// Peers that are gone and whose last messages have been handed out.
void SmEndpoint::finish_ending() {
    for (std::size_t i = 0; i < watched_.size() && ending_ != 0;) {
        Connection& connection = watched_[i];
        if (connection.phase == Phase::ending && !connection.reader.has_records()) {
            take_down(connection, Code::unavailable,
                      "lost " + connection.info.uri + ": " + connection.last_words);
        } else {
            ++i;
        }
    }
}

void SmEndpoint::notify(Notice notice) {
    notices_.push_back(std::move(notice));
    attend();
}

// Takes the connection out of every list but its slot.
void SmEndpoint::end(Connection& connection) {
    switch (connection.phase) {
        case Phase::calling:
        case Phase::greeting: end_handshake(connection); break;
        case Phase::ending: --ending_; [[fallthrough]];
        case Phase::up: unwatch(connection); break;
        case Phase::down:
        case Phase::retired: break;
    }
}

void SmEndpoint::take_down(Connection& connection, Code code, std::string text) {
    transfers_.drop(connection, code, "the connection was lost");
    end(connection);
    connection.move_to(Phase::down);
    Notice notice;
    notice.event.kind = EventKind::peer_down;
    notice.event.code = code;
    notice.event.peer = connection.id;
    notice.text = std::move(text);
    notify(std::move(notice));
}

// Whether a poll, a flush or a transfer would come upon it.
bool SmEndpoint::leads_to(const Connection& connection) const noexcept {
    for (const Connection* at = committed_; at; at = at->next_committed) {
        if (at == &connection) return true;
    }
    return watched_.holds(connection) || claimed_ == &connection || transfers_.has(connection);
}

// A peer that is not known to be gone may still be in our memory: the socket stays half open until
// it hangs up, and fences look at its word until then.
void SmEndpoint::retire(std::unique_ptr<Connection> connection) {
    WEFT_ASSERT(!leads_to(*connection));
    const bool shared = connection->segment && !connection->peer_gone;
    if (!shared) return stop_listening_to(*connection);
    WEFT_ASSERT(connection->serial != 0);  // Or its end is never seen.
    ::shutdown(connection->socket.get(), SHUT_WR);
    connection->regions = RegionView();
    connection->arena.reset();
    if (connection->phase != Phase::retired) connection->move_to(Phase::retired);
    connection->place = static_cast<std::uint32_t>(retired_.size());
    retired_.push_back(std::move(connection));
}

void SmEndpoint::forget_retired(const Connection& connection) {
    const std::uint32_t place = connection.place;
    std::swap(retired_[place], retired_.back());  // This ends it:
    retired_.pop_back();
    if (place < retired_.size()) retired_[place]->place = place;
}

// Retired ones count: a peer can't make us keep more than peers_max.
SmEndpoint::Slot* SmEndpoint::take_slot() {
    const std::size_t used = slots_.size() - free_slots_.size();
    if (used + retired_.size() >= parts_.peers_max) return nullptr;
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
        slots_.emplace_back();
        slots_made_ = static_cast<std::uint32_t>(slots_.size());
        free_slots_.reserve(slots_.size());
    }
    const std::uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[index];
    slot.connection = std::make_unique<Connection>();
    slot.connection->id = {index, slot.generation};
    return &slot;
}

std::unique_ptr<Connection> SmEndpoint::release(PeerId peer) {
    Slot& slot = slots_[peer.index];
    if (++slot.generation == 0) slot.generation = 1;
    free_slots_.push_back(peer.index);
    return std::move(slot.connection);
}

}  // namespace weft::na::sm
