// Transfers of a handler that are served from inline bulk.
#include <bit>

#include "rpc/server.h"

namespace weft::rpc {

// The outcome of the transfer; nullopt: it is performed as bulk. Bytes of an inline put reach the
// client with the reply and not before, so no overlapping transfer may overtake them.
std::optional<Status> Server::transfer_inline(ServerCall& call, bool put, const RegionRef& remote,
                                              std::uint64_t offset, const Buffer& local) {
    InlineBulk& inline_bulk = *call.inline_bulk;
    if (!put && inline_bulk.get(*bulk_.arena, remote, offset, local.bytes())) return Status();
    core::Peer* const peer = call.peer();
    const bool may_put = put && peer && inline_bulk.may_put(remote, offset, local.size());
    InlineBulkCopy copy;
    const ByteView bytes = may_put ? copy.readable(*bulk_.arena, local.bytes()) : ByteView();
    const auto wire = std::bit_cast<std::uint64_t>(call.wire);
    if (!bytes.empty() && bulk_.transfers.send_data(*peer, wire, remote, offset, bytes)) {
        inline_bulk.put(remote, offset, bytes);
        call.slot->retention.move_to(ServerSession::Retention::outcome);  // The reply lacks them.
        return Status();
    }
    if (!inline_bulk.overlaps(remote, offset, local.size())) return std::nullopt;
    if (inline_bulk.has_put() && !bytes.empty()) {
        return fail(
            Code::resource_exhausted,
            "a put that overlaps an inline put: the queue of replies to this client is full");
    }
    if (inline_bulk.has_put()) {
        return fail(Code::failed_precondition,
                    "the range overlaps an inline put: offer all of it by "
                    "CallOptions::inline_bulk, or none");
    }
    if (put) memory_.release_inline(call);  // Its bytes become stale.
    return std::nullopt;
}

}  // namespace weft::rpc
