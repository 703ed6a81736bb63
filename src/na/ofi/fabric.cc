#include "na/ofi/fabric.h"

#include <cstdlib>

#include "base/internal_thread.h"
#include "na/ofi/settings.h"
#include "na/ofi/wire.h"

namespace weft::na::ofi {

static Status failed(const FabricTraits& traits, const char* what, int error) {
    const Code code = std::abs(error) == FI_ENOMEM || std::abs(error) == FI_EMFILE
                          ? Code::resource_exhausted
                          : Code::unavailable;
    const bool may_lack_room = traits.keys_from_device && std::abs(error) != FI_EMFILE;
    return fail(code, std::string(traits.scheme) + ": libfabric's " + what + " failed: " +
                          describe(error) + (may_lack_room ? "; " + room_needed() : ""));
}

// The error of a call in which rxm resolves the address again, which finds no data when the port is
// taken.
static Status failed_at(const FabricTraits& traits, const SocketName& source, const char* what,
                        int error) {
    const bool answers_no =
        traits.binds_to_resolve && source.port() != 0 && std::abs(error) == FI_ENODATA;
    if (answers_no || std::abs(error) == FI_EADDRINUSE) {
        return fail(Code::already_exists,
                    std::string(traits.scheme) + "://" + source.text() + " is taken already");
    }
    return failed(traits, what, error);
}

Result<std::unique_ptr<Fabric>> Fabric::open(const FabricTraits& traits, const SocketName& source,
                                             std::size_t peers_max, bool sleeps) {
    const base::InternalThreadStart start;  // A provider may start a thread.
    std::unique_ptr<Fabric> fabric(new Fabric);
    Status status = fabric->open_objects(traits, source, peers_max, sleeps);
    if (status.ok()) status = fabric->open_endpoint(traits, source);
    if (!status.ok()) return status;
    return fabric;
}

Status Fabric::open_objects(const FabricTraits& traits, const SocketName& source,
                            std::size_t peers_max, bool sleeps) {
    auto info = find_info(traits, &source);
    if (!info) return std::move(info).status();
    info_ = std::move(*info);

    fid_fabric* fabric = nullptr;
    if (int error = library().fabric(info_->fabric_attr, &fabric, nullptr)) {
        return failed(traits, "fi_fabric", error);
    }
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    if (int error = fi_domain(fabric, info_.get(), &domain, nullptr)) {
        return failed_at(traits, source, "fi_domain", error);
    }
    domain_.reset(domain);

    fi_cq_attr cq_attr{};
    cq_attr.size = 4096;  // Sends, receives and transfers of the endpoint stay well below.
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE;
    fid_cq* cq = nullptr;
    if (int error = fi_cq_open(domain, &cq_attr, &cq, nullptr)) {
        return failed(traits, "fi_cq_open", error);
    }
    cq_.reset(cq);
    if (sleeps) {
        if (int error = fi_control(&cq->fid, FI_GETWAIT, &wait_fd_)) {
            return failed(traits, "FI_GETWAIT", error);
        }
    }

    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    av_attr.count = peers_max;
    fid_av* av = nullptr;
    if (int error = fi_av_open(domain, &av_attr, &av, nullptr)) {
        return failed(traits, "fi_av_open", error);
    }
    av_.reset(av);
    return {};
}

Status Fabric::open_endpoint(const FabricTraits& traits, const SocketName& source) {
    fid_ep* ep = nullptr;
    int error = fi_endpoint(domain_.get(), info_.get(), &ep, nullptr);
    if (!error) {
        ep_.reset(ep);
        error = fi_ep_bind(ep, &av_->fid, 0);
    }
    if (!error) error = fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV);
    if (!error) error = fi_enable(ep);
    if (error) return failed_at(traits, source, "fi_enable", error);

    sockaddr_storage name{};
    std::size_t bytes = sizeof name;
    if ((error = fi_getname(&ep->fid, &name, &bytes))) return failed(traits, "fi_getname", error);
    const auto known = SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes);
    if (!known) return fail(Code::unavailable, "libfabric gave an address that is no socket name");
    name_ = *known;

    eager_bytes_max_ = info_->ep_attr->max_msg_size;
    if (is_rxm(*info_)) {
        // rxm reports its limit only as the default of this option.
        std::size_t limit = 0;
        bytes = sizeof limit;
        error = fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &limit, &bytes);
        eager_bytes_max_ = error ? 16384 : limit;
    }
    if (eager_bytes_max_ < fabric_bytes_min) {
        return fail(Code::failed_precondition,
                    std::string(traits.scheme) + ": libfabric's messages have " +
                        std::to_string(eager_bytes_max_) + " bytes, weft needs " +
                        std::to_string(fabric_bytes_min) + ": raise " + buffer_setting);
    }
    return {};
}

bool Fabric::may_sleep() {
    fid* objects[] = {&cq_->fid};
    return fi_trywait(fabric_.get(), objects, 1) == 0;
}

}  // namespace weft::na::ofi
