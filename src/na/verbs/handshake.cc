// The first messages of a connection: each side's hello, and then it is up.
#include <algorithm>

#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

void VerbsEndpoint::send_hello(Connection& peer) {
    std::byte words[hello_bytes_max];
    const std::size_t bytes = encode(own_hello(parts_, limits_, address()), words);
    queue_control(peer, Kind::hello, {words, bytes});
}

// The accepting side replies; the connecting side has sent its hello first.
void VerbsEndpoint::on_hello(Connection& peer, ByteView body) {
    if (peer.phase != PeerPhase::handshaking) {
        return take_down(peer, Code::data_loss, "the peer sent a second hello");
    }
    const Result<Hello> hello = decode_hello(body);
    if (!hello) return take_down(peer, hello.status().code(), std::string(hello.status().text()));
    if (hello->incarnation != peer.info.incarnation) {
        return take_down(peer, Code::data_loss, "the peer sent the hello of another process");
    }
    if (peer.incoming) peer.info.uri = hello->uri;
    apply_hello(peer.info, *hello, limits_);
    if (peer.incoming) {
        send_hello(peer);
        WEFT_ASSERT(handshakes_.incoming != 0);
        --handshakes_.incoming;
    }
    bring_up(peer);
}

void VerbsEndpoint::bring_up(Connection& peer) {
    WEFT_ASSERT(handshakes_.all != 0 && peer.message_queue_pair);
    peer.phase.move_to(PeerPhase::up);
    --handshakes_.all;
    if (peer.broken.empty()) schedule_.remove(peer);
    events_.push(up_event(peer.id, peer.incoming));
}

}  // namespace weft::na::verbs
