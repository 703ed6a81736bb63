// Copies of a body into a message.
#pragma once

#include <weft/channel.h>

#include "core/context.h"

namespace weft::rpc {

// Below this size, every transport copies a body as memcpy does.
inline constexpr std::size_t plain_body_bytes_max = 4096;

// Into memory of the caller, ahead of any message. A writer that throws in the middle of a message
// leaves it incomplete; one that throws here has no effect.
inline void copy_body(const BodyWriter& body, std::byte* to) {
    body.write ? body.write(body.object, to) : body(to);
}

// Writes a body of any size to the end of the message reserved for this peer, or into its
// rendezvous buffer.

[[gnu::noinline]] inline void write_out(core::Context& context, core::Peer& peer,
                                        const BodyWriter& body, std::byte* to) {
    const bool is_plain = body.write || body.bytes < plain_body_bytes_max;
    if (is_plain || peer.state != core::PeerState::up) return body(to);
    context.copy_out(peer, to, ByteView(static_cast<const std::byte*>(body.object), body.bytes));
}

}  // namespace weft::rpc
