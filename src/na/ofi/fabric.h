// The libfabric objects of one endpoint, and the order of their creation and destruction.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>

#include "base/assert.h"
#include "na/ofi/fabric_traits.h"

namespace weft::na::ofi {

template <class T>
struct FidCloser {
    void operator()(T* object) const {
        [[maybe_unused]] const int error = fi_close(&object->fid);
        WEFT_DCHECK(error != -FI_EBUSY);  // Otherwise an object in it is still open.
    }
};
template <class T>
using FidPtr = std::unique_ptr<T, FidCloser<T>>;

// Thread: its endpoint's owner. Members are declared in the order of their creation. Destruction
// closes them in reverse, the endpoint first, which flushes operations in flight.
class Fabric {
  public:
    // Opens all objects and listens at `source` (libfabric's connectionless endpoints always do).
    // A descriptor to sleep on makes libfabric poll by epoll: 1.5 us more per round trip.
    // Errors: ALREADY_EXISTS (port taken), UNAVAILABLE, RESOURCE_EXHAUSTED.
    static Result<std::unique_ptr<Fabric>> open(const FabricTraits& traits,
                                                const SocketName& source, std::size_t peers_max,
                                                bool sleeps);

    fid_ep* ep() const { return ep_.get(); }
    fid_cq* cq() const { return cq_.get(); }
    fid_av* av() const { return av_.get(); }
    fid_domain* domain() const { return domain_.get(); }
    const fi_info& info() const { return *info_; }
    const SocketName& name() const { return name_; }

    // Largest message without a rendezvous: a rendezvous in flight to a peer that dies never
    // completes (libfabric 1.17 and 2.6).
    std::size_t eager_bytes_max() const { return eager_bytes_max_; }
    // Ends all connections and flushes operations in flight; the destructor closes the rest.
    void close_endpoint() { ep_.reset(); }
    int wait_fd() const { return wait_fd_; }  // -1 unless opened with `sleeps`.
    // True: nothing to read; the thread may sleep on wait_fd().
    bool may_sleep();

  private:
    Fabric() = default;
    Status open_objects(const FabricTraits& traits, const SocketName& source, std::size_t peers_max,
                        bool sleeps);
    Status open_endpoint(const FabricTraits& traits, const SocketName& source);

    InfoPtr info_;
    FidPtr<fid_fabric> fabric_;
    FidPtr<fid_domain> domain_;
    FidPtr<fid_cq> cq_;
    FidPtr<fid_av> av_;
    FidPtr<fid_ep> ep_;
    SocketName name_;
    std::size_t eager_bytes_max_ = 0;
    int wait_fd_ = -1;  // Owned by libfabric, closed with the queue.
};

}  // namespace weft::na::ofi
