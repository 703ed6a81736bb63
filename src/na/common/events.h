// Events with the fields that their kind names.
#pragma once

#include <string>

#include "base/assert.h"
#include "na/provider.h"

namespace weft::na {

inline Event message_event(PeerId peer, ByteView bytes) {
    WEFT_DCHECK(peer);
    Event event;
    event.peer = peer;
    event.bytes = bytes;
    return event;
}

inline Event up_event(PeerId peer, bool incoming) {
    WEFT_ASSERT(peer);
    Event event;
    event.kind = EventKind::peer_up;
    event.incoming = incoming;
    event.peer = peer;
    return event;
}

inline Event down_event(PeerId peer, Code code) {
    WEFT_ASSERT(peer && code != Code::ok);
    Event event;
    event.kind = EventKind::peer_down;
    event.code = code;
    event.peer = peer;
    return event;
}

inline Event writable_event(PeerId peer) {
    WEFT_DCHECK(peer);
    Event event;
    event.kind = EventKind::writable;
    event.peer = peer;
    return event;
}

inline Event fenced_event(std::uint32_t region) {
    WEFT_DCHECK(region < regions_max);
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    return event;
}

inline Event done_event(const RmaItem& item, Code code) {
    Event event;
    event.kind = EventKind::rma_done;
    event.code = code;
    event.peer = item.peer;
    event.cookie = item.cookie;
    return event;
}

// For error(): why a transfer failed. `peer`: nullptr if it is not connected.
inline std::string transfer_text(const RmaItem& item, const PeerInfo* peer, std::string_view why) {
    std::string text = item.kind == RmaKind::get ? "get from" : "put to";
    text += " region " + std::to_string(item.region);
    if (peer) text += " of " + peer->uri;
    return text.append(": ").append(why);
}

}  // namespace weft::na
