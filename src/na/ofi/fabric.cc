#include "na/ofi/fabric.h"

#include <cstdlib>
#include <cstring>

#include "na/ofi/wire.h"

namespace weft::na::ofi {

static constexpr const char* cleanup_setting = "FI_AV_REMOVE_CLEANUP";
// A piece of ours must stay below rxm's rendezvous. Peers must agree on it: rxm refuses a
// connection to one with another value.
static constexpr const char* rxm_buffer_setting = "FI_OFI_RXM_BUFFER_SIZE";
static std::string rxm_buffer_bytes() { return std::to_string(fabric_bytes_max); }
// Such buffers of an endpoint, all resident: rxm's pools grow by 1024, its default is 4096.
static constexpr const char* rxm_buffers_setting = "FI_OFI_RXM_MSG_RX_SIZE";
static constexpr const char* rxm_buffers = "1024";

static constexpr std::uint32_t native_rdm_since = FI_VERSION(1, 18);

static std::string_view tcp_provider(std::uint32_t version) {
    // Before 1.18 `tcp` had connected endpoints only, and `net`, which has the others, reads no
    // further from a peer whose message nobody expects and fences nothing short of its endpoint.
    return version < native_rdm_since ? "tcp;ofi_rxm" : "tcp";
}

const Row tcp_row{"ofi+tcp", tcp_provider, "install libfabric1 1.17 or later"};

static bool is_rxm(const fi_info& info) {
    return std::strstr(info.fabric_attr->prov_name, ";ofi_rxm") != nullptr;
}

std::string version_text() {
    return std::to_string(FI_MAJOR(fi_version())) + "." + std::to_string(FI_MINOR(fi_version()));
}

std::string describe(int error) {
    const int code = std::abs(error);
    return std::string(fi_strerror(code)) + " (" + std::to_string(code) + ")";
}

void prepare_environment() {
    // There is no call for these: fi_av_remove() has no flags, and rxm takes its eager limit when
    // it starts.
    ::setenv(cleanup_setting, "1", 0);
    ::setenv(rxm_buffer_setting, rxm_buffer_bytes().c_str(), 0);
    ::setenv(rxm_buffers_setting, rxm_buffers, 0);
}

std::string required_settings() {
    return std::string(cleanup_setting) + "=1 and " + rxm_buffer_setting + "=" + rxm_buffer_bytes();
}

bool removal_is_fence() {
    const char* value = std::getenv(cleanup_setting);
    if (!value) return false;
    const std::string_view text = value;
    const bool on = text == "1" || text == "on" || text == "true" || text == "yes";
    return on && fi_version() < native_rdm_since;  // The native provider ignores the setting.
}

bool started_before_us(const Fabric& fabric) {
    // The one setting of ours that can be read back.
    const char* wanted = std::getenv(rxm_buffer_setting);
    return wanted && is_rxm(fabric.info()) &&
           std::strtoull(wanted, nullptr, 10) != fabric.eager_bytes_max();
}

static InfoPtr make_hints(const Row& row) {
    InfoPtr hints(fi_allocinfo());
    if (!hints) return nullptr;
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_UNSPEC;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->op_flags = FI_COMPLETION;
    const std::string provider(row.provider(fi_version()));
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    return hints;
}

Result<InfoPtr> find_info(const Row& row, const SocketName* source) {
    const InfoPtr hints = make_hints(row);
    if (!hints) return fail(Code::resource_exhausted, "no memory for libfabric");
    const std::uint32_t version = fi_version() < FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)
                                      ? fi_version()
                                      : FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    fi_info* found = nullptr;
    int error = 0;
    if (source) {
        const std::string host = source->host();
        const std::string port = std::to_string(source->port());
        error = fi_getinfo(version, host.c_str(), port.c_str(), FI_SOURCE | FI_NUMERICHOST,
                           hints.get(), &found);
    } else {
        error = fi_getinfo(version, nullptr, nullptr, 0, hints.get(), &found);
    }
    const InfoPtr all(found);
    const std::string wanted(row.provider(fi_version()));
    // A hint of `tcp` is answered by layers over tcp as well: compare what came back.
    for (const fi_info* info = all.get(); info; info = info->next) {
        if (wanted != info->fabric_attr->prov_name) continue;
        if (source && (!info->src_addr || static_cast<const sockaddr*>(info->src_addr)->sa_family !=
                                              source->family())) {
            continue;
        }
        InfoPtr copy(fi_dupinfo(info));
        if (!copy) return fail(Code::resource_exhausted, "no memory for libfabric");
        return copy;
    }
    return fail(Code::unavailable, std::string(row.scheme) + ": libfabric " + version_text() +
                                       " offers no provider '" + wanted + "'" +
                                       (source ? " at " + source->text() : "") +
                                       (error ? ": " + describe(error) : "") + "; " +
                                       std::string(row.package_hint));
}

static Status failed(const Row& row, const char* what, int error) {
    const Code code = std::abs(error) == FI_ENOMEM || std::abs(error) == FI_EMFILE
                          ? Code::resource_exhausted
                          : Code::unavailable;
    return fail(code,
                std::string(row.scheme) + ": libfabric's " + what + " failed: " + describe(error));
}

Result<std::unique_ptr<Fabric>> Fabric::open(const Row& row, const SocketName& source,
                                             std::size_t peers_max, bool sleeps) {
    std::unique_ptr<Fabric> fabric(new Fabric);
    Status status = fabric->open_objects(row, source, peers_max, sleeps);
    if (status.ok()) status = fabric->open_endpoint(row, source);
    if (!status.ok()) return status;
    return fabric;
}

Status Fabric::open_objects(const Row& row, const SocketName& source, std::size_t peers_max,
                            bool sleeps) {
    auto info = find_info(row, &source);
    if (!info) return std::move(info).status();
    info_ = std::move(*info);

    fid_fabric* fabric = nullptr;
    if (int error = fi_fabric(info_->fabric_attr, &fabric, nullptr)) {
        return failed(row, "fi_fabric", error);
    }
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    if (int error = fi_domain(fabric, info_.get(), &domain, nullptr)) {
        return failed(row, "fi_domain", error);
    }
    domain_.reset(domain);

    fi_cq_attr cq_attr{};
    cq_attr.size = 4096;  // Sends, receives and transfers of ours together stay well below.
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE;
    fid_cq* cq = nullptr;
    if (int error = fi_cq_open(domain, &cq_attr, &cq, nullptr)) {
        return failed(row, "fi_cq_open", error);
    }
    cq_.reset(cq);
    if (sleeps) {
        if (int error = fi_control(&cq->fid, FI_GETWAIT, &wait_fd_)) {
            return failed(row, "FI_GETWAIT", error);
        }
    }

    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    av_attr.count = peers_max;
    fid_av* av = nullptr;
    if (int error = fi_av_open(domain, &av_attr, &av, nullptr)) {
        return failed(row, "fi_av_open", error);
    }
    av_.reset(av);
    return {};
}

Status Fabric::open_endpoint(const Row& row, const SocketName& source) {
    fid_ep* ep = nullptr;
    int error = fi_endpoint(domain_.get(), info_.get(), &ep, nullptr);
    if (!error) {
        ep_.reset(ep);
        error = fi_ep_bind(ep, &av_->fid, 0);
    }
    if (!error) error = fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV);
    if (!error) error = fi_enable(ep);
    if (error) {
        if (std::abs(error) == FI_EADDRINUSE) {
            return fail(Code::already_exists, std::string(row.scheme) + "://" + source.text() +
                                                  " is taken by another process");
        }
        return failed(row, "fi_enable", error);
    }

    sockaddr_storage name{};
    std::size_t bytes = sizeof name;
    if ((error = fi_getname(&ep->fid, &name, &bytes))) return failed(row, "fi_getname", error);
    const auto known = SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes);
    if (!known) return fail(Code::unavailable, "libfabric gave an address that is no socket name");
    name_ = *known;

    eager_bytes_max_ = info_->ep_attr->max_msg_size;
    if (is_rxm(*info_)) {
        // rxm tells its limit only as the default of this option.
        std::size_t limit = 0;
        bytes = sizeof limit;
        error = fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &limit, &bytes);
        eager_bytes_max_ = error ? 16384 : limit;
    }
    if (eager_bytes_max_ < fabric_bytes_min) {
        return fail(Code::failed_precondition,
                    std::string(row.scheme) + ": libfabric's messages have " +
                        std::to_string(eager_bytes_max_) + " bytes, weft needs " +
                        std::to_string(fabric_bytes_min) + ": raise " + rxm_buffer_setting);
    }
    return {};
}

bool Fabric::may_sleep() {
    fid* objects[] = {&cq_->fid};
    return fi_trywait(fabric_.get(), objects, 1) == 0;
}

}  // namespace weft::na::ofi
