// The state of a context as readable text.
#include "base/duration_text.h"
#include "core/context.h"

namespace weft::core {

static std::string_view name_of(PeerState state) {
    switch (state) {
        case PeerState::idle: return "idle";
        case PeerState::connecting: return "connecting";
        case PeerState::up: return "up";
    }
    return "?";
}

std::string Context::state(std::size_t lines_max) {
    std::string text = "endpoints:";
    for (const auto& slot : endpoints()) {
        const std::string address = slot->endpoint->address();
        text += " " + (address.empty() ? std::string(slot->endpoint->scheme()) : address);
    }
    text += "\npeers: " + std::to_string(peers_.size()) + ", " + std::to_string(malformed_peers_) +
            " broken, " + std::to_string(peers_.liveness().timed_out()) + " silent, " +
            std::to_string(waiting_bytes()) + " bytes of frames wait\n";
    std::size_t lines = 0;
    peers_.for_each([&](const Peer& peer) {
        if (++lines > lines_max) return;
        text += "  " + peer.uri + ": " + std::string(name_of(peer.state)) +
                (peer.incoming ? ", incoming" : "") + ", " + std::to_string(peer.interest) +
                " need it, " + std::to_string(peer.queue.frames) + " frames wait, " +
                std::to_string(peer.traffic.posted) + " transfers posted";
        if (peer.pulse.missed_heartbeats != 0) {
            text += ", silent for " + base::duration_text(peers_.liveness().silence(peer));
        }
        text += "\n";
    });
    if (lines > lines_max) text += "  and " + std::to_string(lines - lines_max) + " more\n";
    return text;
}

base::Figures Context::figures() const {
    base::Figures figures;
    figures.add_line("peers", {{"peers", peers_.size()},
                               {"connected", connections()},
                               {"broken", malformed_peers_},
                               {"silent", peers_.liveness().timed_out()},
                               {"bytes of frames wait", waiting_bytes()}});
    return figures;
}

}  // namespace weft::core
