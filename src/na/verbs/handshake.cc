// The first messages of a connection: each side's hello, and then it is up.
#include <algorithm>

#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

void VerbsEndpoint::send_hello(ConnectionEntry& entry) {
    Hello hello;
    hello.incarnation = parts_.incarnation;
    hello.message_bytes_max = static_cast<std::uint32_t>(limits_.message_bytes_max);
    hello.eager_bytes_max = static_cast<std::uint32_t>(limits_.eager_bytes_max);
    hello.uri = parts_.public_uri.empty() ? address() : parts_.public_uri;
    std::byte words[hello_bytes_max];
    const std::size_t bytes = encode(hello, words);
    queue_control(entry, Kind::hello, {words, bytes});
}

// The accepting side replies; the connecting side has sent its hello first.
void VerbsEndpoint::on_hello(ConnectionEntry& entry, ByteView body) {
    Connection& peer = entry.value;
    if (peer.phase != PeerPhase::handshaking) {
        return take_down(entry, Code::data_loss, "the peer sent a second hello");
    }
    const Result<Hello> hello = decode_hello(body);
    if (!hello) return take_down(entry, hello.status().code(), std::string(hello.status().text()));
    if (hello->incarnation != peer.info.incarnation) {
        return take_down(entry, Code::data_loss, "the peer sent the hello of another process");
    }
    if (peer.incoming) peer.info.uri = hello->uri;
    apply_hello(peer.info, *hello, limits_);
    if (peer.incoming) {
        send_hello(entry);
        --pending_incoming_;
    }
    bring_up(entry);
}

void VerbsEndpoint::bring_up(ConnectionEntry& entry) {
    Connection& peer = entry.value;
    peer.phase = PeerPhase::up;
    --handshakes_;
    if (peer.broken.empty() && peer.ScheduledNode::is_linked()) peer.ScheduledNode::unlink();
    Event event;
    event.kind = EventKind::peer_up;
    event.incoming = peer.incoming;
    event.peer = id_of(entry);
    events_.push(event);
}

}  // namespace weft::na::verbs
