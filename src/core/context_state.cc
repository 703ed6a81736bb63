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
    for (const auto& slot : endpoints_) {
        const std::string address = slot->endpoint->address();
        text += " " + (address.empty() ? std::string(slot->endpoint->scheme()) : address);
    }
    text += "\npeers: " + std::to_string(peers_.taken()) + ", " +
            std::to_string(counters_.malformed_peers) + " broken, " +
            std::to_string(counters_.timed_out_peers) + " silent, " +
            std::to_string(waiting_bytes_) + " bytes of frames wait\n";
    std::size_t lines = 0;
    peers_.for_each([&](const auto& entry) {
        const Peer& peer = entry.value;
        if (++lines > lines_max) return;
        text += "  " + peer.uri + ": " + std::string(name_of(peer.state)) +
                (peer.incoming ? ", incoming" : "") + ", " + std::to_string(peer.interest) +
                " need it, " + std::to_string(peer.waiting_frames) + " frames wait, " +
                std::to_string(peer.traffic.posted) + " transfers posted";
        if (peer.missed_heartbeats != 0) {
            text += ", silent for " +
                    base::duration_text(peer.missed_heartbeats * options_.heartbeat_interval);
        }
        text += "\n";
    });
    if (lines > lines_max) text += "  and " + std::to_string(lines - lines_max) + " more\n";
    return text;
}

}  // namespace weft::core
