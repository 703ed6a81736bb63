// What a server answers when no handler runs.
#include "rpc/server.h"

namespace weft::rpc {

void Server::refuse_request(core::Peer& peer, const RequestHeader& header, const Method* method) {
    Status why = fail(Code::resource_exhausted, "too many calls in handlers");
    if (draining_) {
        why = fail(Code::unavailable, "the server is shutting down");
    } else if (!method) {
        ++counters_.unknown_methods;
        why = fail(Code::unimplemented, "no such method here");
    } else if (header.remaining_us == 0) {
        ++counters_.expired;
        why = fail(Code::deadline_exceeded, "expired before it reached its handler");
    } else if (peer.interest >= calls_of_a_peer_max) {
        why = fail(Code::resource_exhausted, "too many calls of this client in handlers");
    }
    refuse(peer, header.call, why);
}

void Server::refuse(core::Peer& peer, WireCallId wire, const Status& status) {
    const std::string_view text = status.text().substr(0, error_text_bytes_max);
    const std::size_t bytes = sizeof(ReplyHeader) + text.size();
    const core::Context::Claim claim = context_.claim(peer, bytes);
    if (!claim.data) {
        context_.remove_peer(peer, fail(Code::unavailable, "the peer does not read its replies"));
        return;
    }
    store_reply(claim.data, bytes, pack(status.code(), status.effect(), status.stage()), wire);
    if (!text.empty()) {
        std::memcpy(claim.data + sizeof(ReplyHeader), text.data(), text.size());
    }
    context_.commit(peer, claim, bytes);
}

}  // namespace weft::rpc
