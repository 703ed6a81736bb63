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
                      "lost " + connection.info.uri + ": " + connection.end.reason);
        } else {
            ++i;
        }
    }
}

// Removes the connection from every list except its slot.
void SmEndpoint::end(Connection& connection) {
    if (connection.phase < PeerPhase::up) return end_handshake(connection);
    if (connection.phase > PeerPhase::ending) return;
    ending_ -= connection.phase == PeerPhase::ending;
    unwatch(connection);
}

void SmEndpoint::take_down(Connection& connection, Code code, std::string text) {
    WEFT_ASSERT(peers_.find(connection.id) == &connection);
    transfers_.queue.drop(connection, code, "the connection was lost");
    end(connection);
    connection.move_to(PeerPhase::down);
    events_.waiting.push(down_event(connection.id, code), std::move(text));
    request_full_poll();
}

// Whether a poll, a flush or a transfer still refers to the connection.
bool SmEndpoint::refers_to(const Connection& connection) const noexcept {
    for (const Connection* at = sends_.committed; at; at = at->next_committed) {
        if (at == &connection) return true;
    }
    return watched_.contains(connection) || sends_.claimed == &connection ||
           transfers_.queue.has(connection);
}

// Frees a closed connection. One that shares memory with its peer is kept as retired until the peer
// hangs up: the socket stays half open, and fences check the peer's `accessing` word.
void SmEndpoint::retire(std::unique_ptr<Connection> connection) {
    WEFT_ASSERT(!refers_to(*connection));
    const bool shared = connection->segment && !connection->end.peer_gone;
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
    WEFT_ASSERT(place < retired_.size() && retired_[place].get() == &connection);
    std::swap(retired_[place], retired_.back());  // Destroys the connection:
    retired_.pop_back();
    if (place < retired_.size()) retired_[place]->watch_index = place;
}

// Retired connections count: peers that do not hang up can't exceed peers_max.
bool SmEndpoint::has_slot() const { return peers_.size() + retired_.size() < parts_.peers_max; }

}  // namespace weft::na::sm
