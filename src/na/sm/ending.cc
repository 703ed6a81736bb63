// How connections end, and the slots that they leave.
#include <sys/socket.h>

#include "na/sm/endpoint.h"

namespace weft::na::sm {

// Takes down disconnected peers after their last messages were delivered.
void SmEndpoint::finish_ending() {
    for (std::size_t i = 0; i < watched_.size() && ending_ != 0;) {
        Connection& connection = watched_[i];
        if (connection.phase == PeerPhase::ending && !connection.reader.has_records()) {
            take_down(connection, Code::unavailable,
                      "lost " + connection.info.uri + ": " + connection.socket_end_reason);
        } else {
            ++i;
        }
    }
}

void SmEndpoint::notify(PendingEvent pending) {
    pending_events_.push_back(std::move(pending));
    request_full_poll();
}

// Removes the connection from every list except its slot.
void SmEndpoint::end(Connection& connection) {
    switch (connection.phase) {
        case PeerPhase::connecting:
        case PeerPhase::handshaking: end_handshake(connection); break;
        case PeerPhase::ending: --ending_; [[fallthrough]];
        case PeerPhase::up: unwatch(connection); break;
        case PeerPhase::down:
        case PeerPhase::retired: break;
    }
}

void SmEndpoint::take_down(Connection& connection, Code code, std::string text) {
    rma_queue_.drop(connection, code, "the connection was lost");
    end(connection);
    connection.move_to(PeerPhase::down);
    PendingEvent pending;
    pending.event.kind = EventKind::peer_down;
    pending.event.code = code;
    pending.event.peer = connection.id;
    pending.text = std::move(text);
    notify(std::move(pending));
}

// Whether a poll, a flush or a transfer still refers to the connection.
bool SmEndpoint::refers_to(const Connection& connection) const noexcept {
    for (const Connection* at = committed_; at; at = at->next_committed) {
        if (at == &connection) return true;
    }
    return watched_.contains(connection) || claimed_ == &connection || rma_queue_.has(connection);
}

// A peer that has not disconnected may still access local memory: the socket stays half open until
// the peer hangs up, and fences check its `accessing` word until then.
void SmEndpoint::retire(std::unique_ptr<Connection> connection) {
    WEFT_ASSERT(!refers_to(*connection));
    const bool shared = connection->segment && !connection->peer_gone;
    if (!shared) return unwatch_socket(*connection);
    WEFT_ASSERT(connection->serial != 0);  // Else its end is never noticed.
    ::shutdown(connection->socket.get(), SHUT_WR);
    connection->regions = RegionView();
    connection->arena.reset();
    if (connection->phase != PeerPhase::retired) connection->move_to(PeerPhase::retired);
    connection->watch_index = static_cast<std::uint32_t>(retired_.size());
    retired_.push_back(std::move(connection));
}

void SmEndpoint::erase_retired(const Connection& connection) {
    const std::uint32_t place = connection.watch_index;
    std::swap(retired_[place], retired_.back());  // Destroys the connection:
    retired_.pop_back();
    if (place < retired_.size()) retired_[place]->watch_index = place;
}

// Retired connections count, so that peers can't exceed peers_max.
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
