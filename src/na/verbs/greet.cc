// The first words behind a connection: each side's hello, and then it is up.
#include <algorithm>

#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

void VerbsEndpoint::say_hello(PeerEntry& entry) {
    Hello hello;
    hello.incarnation = parts_.incarnation;
    hello.message_bytes_max = static_cast<std::uint32_t>(limits_.message_bytes_max);
    hello.eager_bytes_max = static_cast<std::uint32_t>(limits_.eager_bytes_max);
    hello.uri = parts_.public_uri.empty() ? address() : parts_.public_uri;
    std::byte words[hello_bytes_max];
    const std::size_t bytes = encode(hello, words);
    queue_control(entry, Kind::hello, {words, bytes});
}

// The one who was called answers; the caller has spoken first.
void VerbsEndpoint::on_hello(PeerEntry& entry, ByteView body) {
    Peer& peer = entry.value;
    if (peer.state != PeerState::greeting) {
        return bring_down(entry, Code::data_loss, "a second hello");
    }
    const Result<Hello> hello = decode_hello(body);
    if (!hello) return bring_down(entry, hello.status().code(), std::string(hello.status().text()));
    if (hello->incarnation != peer.info.incarnation) {
        return bring_down(entry, Code::data_loss, "a hello of another process");
    }
    if (peer.incoming) peer.info.uri = hello->uri;
    take_hello(peer.info, *hello, limits_);
    if (peer.incoming) {
        say_hello(entry);
        --strangers_;
    }
    go_up(entry);
}

void VerbsEndpoint::go_up(PeerEntry& entry) {
    Peer& peer = entry.value;
    peer.state = PeerState::up;
    --handshakes_;
    if (peer.broken.empty() && peer.AttentionNode::is_linked()) peer.AttentionNode::unlink();
    Event event;
    event.kind = EventKind::peer_up;
    event.incoming = peer.incoming;
    event.peer = id_of(entry);
    events_.give(event);
}

}  // namespace weft::na::verbs
