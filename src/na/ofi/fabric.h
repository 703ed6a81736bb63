// The libfabric objects of one endpoint and the order in which they live and die.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>

#include "base/assert.h"
#include "na/ofi/row.h"

namespace weft::na::ofi {

template <class T>
struct FidCloser {
    void operator()(T* object) const {
        [[maybe_unused]] const int error = fi_close(&object->fid);
        WEFT_DCHECK(error != -FI_EBUSY);  // We left something open that lives in it.
    }
};
template <class T>
using FidPtr = std::unique_ptr<T, FidCloser<T>>;

// Thread: its endpoint's owner. Members are declared in the order they are opened; destruction
// closes them the other way round, the endpoint first, which flushes what is under way.
class Fabric {
  public:
    // Opens everything and listens at `source` (libfabric's connectionless endpoints always do).
    // A descriptor to sleep on makes libfabric poll by epoll: 1.5 us more per round trip.
    // Errors: ALREADY_EXISTS (port taken), UNAVAILABLE, RESOURCE_EXHAUSTED.
    static Result<std::unique_ptr<Fabric>> open(const Row& row, const SocketName& source,
                                                std::size_t peers_max, bool sleeps);

    fid_ep* ep() const { return ep_.get(); }
    fid_cq* cq() const { return cq_.get(); }
    fid_av* av() const { return av_.get(); }
    fid_domain* domain() const { return domain_.get(); }
    const fi_info& info() const { return *info_; }
    const SocketName& name() const { return name_; }

    // Largest message that goes without a rendezvous: one under way to a peer that dies never
    // completes (libfabric 1.17 and 2.6).
    std::size_t eager_bytes_max() const { return eager_bytes_max_; }
    // Ends all connections and flushes what is under way; the rest is closed by the destructor.
    void close_endpoint() { ep_.reset(); }
    int wait_fd() const { return wait_fd_; }  // -1 unless it sleeps.
    // True: nothing to read; the thread may sleep on wait_fd().
    bool may_sleep();

  private:
    Fabric() = default;
    Status open_objects(const Row& row, const SocketName& source, std::size_t peers_max,
                        bool sleeps);
    Status open_endpoint(const Row& row, const SocketName& source);

    InfoPtr info_;
    FidPtr<fid_fabric> fabric_;
    FidPtr<fid_domain> domain_;
    FidPtr<fid_cq> cq_;
    FidPtr<fid_av> av_;
    FidPtr<fid_ep> ep_;
    SocketName name_;
    std::size_t eager_bytes_max_ = 0;
    int wait_fd_ = -1;  // libfabric's, closed with the queue.
};

}  // namespace weft::na::ofi
