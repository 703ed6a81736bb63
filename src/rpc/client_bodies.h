// The large bodies of a client's calls: requests that the server fetches, replies that the client
// fetches.
#pragma once

#include <vector>

#include "base/assert.h"
#include "bulk/bulk.h"
#include "rpc/client_call.h"

namespace weft::rpc {

class ClientBodies {
  public:
    explicit ClientBodies(bulk::Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
    bulk::Rendezvous& rendezvous() { return rendezvous_; }
    const bulk::Rendezvous& rendezvous() const { return rendezvous_; }

    // A request that holds where the body is. nullptr: no memory.
    WaitingRequest::Ptr take_request(std::uint64_t method, std::uint8_t flags) {
        if (!spare_) return WaitingRequest::make(method, flags, sizeof(bulk::RendezvousBody));
        WEFT_ASSERT(spare_->bytes == sizeof(bulk::RendezvousBody));
        spare_->reset(method, flags);
        return std::move(spare_);
    }
    void give_back(WaitingRequest::Ptr request) { spare_ = std::move(request); }
    // Requires: the request is not sent.
    void withdraw(core::Peer& peer, WaitingRequest& request) {
        if ((request.flags & rendezvous_flag) == 0) return;
        WEFT_ASSERT(request.bytes == sizeof(bulk::RendezvousBody));
        rendezvous_.withdraw(peer, base::load<bulk::RendezvousBody>(request.body()));
    }

    // The fetch of a reply, by the slot of its call.
    void on_fetch(CallId call, bulk::FetchId fetch) {
        const std::size_t at = core::OperationTag::index(call.slot);
        if (fetches_.size() <= at) fetches_.resize(at + 1);
        fetches_[at] = fetch;
    }
    void cancel_fetch(CallId call) {
        const std::size_t at = core::OperationTag::index(call.slot);
        if (at < fetches_.size()) rendezvous_.cancel(fetches_[at]);
    }

  private:
    bulk::Rendezvous& rendezvous_;
    std::vector<bulk::FetchId> fetches_;
    WaitingRequest::Ptr spare_;  // Kept: avoids an allocation.
};

}  // namespace weft::rpc
