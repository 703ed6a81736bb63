// What a handler transfers of the bulk that rides with its call.
#include <bit>

#include "rpc/server.h"

namespace weft::rpc {

// How the transfer ended; nullopt: it goes as bulk. What has ridden is at the client with the reply
// and not before, so nothing that overlaps it may overtake it.
std::optional<Status> Server::ride(ServerCall& call, bool put, const RegionRef& remote,
                                   std::uint64_t offset, const Buffer& local) {
    Rider& rider = *call.rider;
    if (!put && rider.get(*bulk_.arena, remote, offset, local.bytes())) return Status();
    core::Peer* const peer = call.peer();
    const bool may_put = put && peer && rider.may_put(remote, offset, local.size());
    RidingCopy copy;
    const ByteView bytes = may_put ? copy.readable(*bulk_.arena, local.bytes()) : ByteView();
    const auto wire = std::bit_cast<std::uint64_t>(call.wire);
    if (!bytes.empty() && bulk_.transfers.send_data(*peer, wire, remote, offset, bytes)) {
        rider.put(remote, offset, bytes);
        call.slot->keeps = ServerSession::Keeps::outcome;  // On another connection it is missing.
        return Status();
    }
    if (!rider.overlaps(remote, offset, local.size())) return std::nullopt;
    if (rider.has_put() && !bytes.empty()) {
        return fail(Code::resource_exhausted,
                    "a put that overlaps one which rides with the reply: as much waits for this "
                    "client as may");
    }
    if (rider.has_put()) {
        return fail(Code::failed_precondition,
                    "the range overlaps one that was put to ride with the reply: offer all of it "
                    "by CallOptions::rides, or none");
    }
    if (put) drop_rider(call);  // What it has is old from now on.
    return std::nullopt;
}

void Server::drop_rider(ServerCall& call) {
    riding_bytes_ -= call.rider->bytes();
    call.rider = nullptr;
}

}  // namespace weft::rpc
