#include "na/ofi/fabric_traits.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace weft::na::ofi {

static std::string_view tcp_provider(std::uint32_t version) {
    // Before 1.18 `tcp` had connected endpoints only. `net`, which has datagram endpoints, stops
    // reading from a peer after an unexpected message, and fences only by closing its endpoint.
    return version < FI_VERSION(1, 18) ? "tcp;ofi_rxm" : "tcp";
}

static std::string_view verbs_provider(std::uint32_t) { return "verbs;ofi_rxm"; }

const FabricTraits tcp_traits{.scheme = "ofi+tcp",
                              .provider = tcp_provider,
                              .remedy = "install libfabric1 1.17 or later",
                              .probes_by_socket = true,
                              .binds_to_resolve = false,
                              .deregistration_fences = false,
                              .keys_from_device = false,
                              .copies_in_library = true,
                              .close_breaks_gets = true,
                              .slots_per_peer = 64,
                              .injects = true};

// A queue pair of rxm takes 128 work requests: 24 messages of up to 4 pieces, 16 transfers and a
// few control messages.
const FabricTraits verbs_traits{
    .scheme = "ofi+verbs",
    .provider = verbs_provider,
    .remedy =
        "it needs libfabric1 1.17 or later and an address that an RDMA device "
        "is on (`ibv_devinfo`, `rdma link`)",
    .probes_by_socket = false,
    .binds_to_resolve = true,
    .deregistration_fences = true,
    .keys_from_device = true,
    .copies_in_library = false,
    .close_breaks_gets = false,
    .slots_per_peer = 24,
    .injects = false};

bool is_rxm(const fi_info& info) {
    return std::strstr(info.fabric_attr->prov_name, ";ofi_rxm") != nullptr;
}

std::string version_text() {
    const std::uint32_t version = library().version();
    return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

std::string describe(int error) {
    const int code = std::abs(error);
    return std::string(library().strerror(code)) + " (" + std::to_string(code) + ")";
}

static InfoPtr make_hints(const FabricTraits& traits) {
    InfoPtr hints(library().dupinfo(nullptr));
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
    const std::string provider(traits.provider(library().version()));
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    return hints;
}

// All providers that libfabric offers. `error`: libfabric's. Errors: UNAVAILABLE (no libfabric).
static Result<InfoPtr> query_info(const FabricTraits& traits, const SocketName* source,
                                  int& error) {
    if (const Status status = load_library(); !status.ok()) {
        return fail(Code::unavailable,
                    std::string(traits.scheme) + ": " + std::string(status.text()));
    }
    const InfoPtr hints = make_hints(traits);
    fi_info* found = nullptr;
    error = FI_ENOMEM;
    if (!hints) return InfoPtr();
    const std::uint32_t version =
        library().version() < FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)
            ? library().version()
            : FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    if (source) {
        const std::string host = source->host();
        // With a port that is taken libfabric finds no device at the address.
        const std::string port = traits.binds_to_resolve ? "0" : std::to_string(source->port());
        error = library().getinfo(version, host.c_str(), port.c_str(), FI_SOURCE | FI_NUMERICHOST,
                                  hints.get(), &found);
    } else {
        error = library().getinfo(version, nullptr, nullptr, 0, hints.get(), &found);
    }
    return InfoPtr(found);
}

static Status not_offered(const FabricTraits& traits, const SocketName* source, int error) {
    return fail(Code::unavailable,
                std::string(traits.scheme) + ": libfabric " + version_text() +
                    " offers no provider '" + std::string(traits.provider(library().version())) +
                    "'" + (source ? " at " + source->text() : "") +
                    (error ? ": " + describe(error) : "") + "; " + std::string(traits.remedy));
}

Result<InfoPtr> find_info(const FabricTraits& traits, const SocketName* source) {
    int error = 0;
    const auto all = query_info(traits, source, error);
    if (!all) return all.status();
    // A hint of `tcp` also matches providers layered over tcp, so the name is compared.
    for (const fi_info* info = all->get(); info; info = info->next) {
        if (traits.provider(library().version()) != info->fabric_attr->prov_name) continue;
        if (source && (!info->src_addr || static_cast<const sockaddr*>(info->src_addr)->sa_family !=
                                              source->family())) {
            continue;
        }
        InfoPtr copy(library().dupinfo(info));
        if (!copy)
            return fail(Code::resource_exhausted, "libfabric has no memory for its settings");
        // For all addresses libfabric returns that of one interface, such as loopback.
        const bool is_other = source && (traits.binds_to_resolve || source->is_any());
        if (is_other && copy->src_addrlen == source->size()) {
            std::memcpy(copy->src_addr, source->get(), source->size());
        }
        return copy;
    }
    return not_offered(traits, source, error);
}

Result<SocketName> find_source(const FabricTraits& traits) {
    int error = 0;
    const auto all = query_info(traits, nullptr, error);
    if (!all) return all.status();
    for (const int family : {AF_INET, AF_INET6}) {
        for (const fi_info* info = all->get(); info; info = info->next) {
            if (traits.provider(library().version()) != info->fabric_attr->prov_name ||
                !info->src_addr) {
                continue;
            }
            const auto name = SocketName::from_kernel(static_cast<const sockaddr*>(info->src_addr),
                                                      info->src_addrlen);
            if (name && name->family() == family && !name->is_loopback()) return name->with_port(0);
        }
    }
    return not_offered(traits, nullptr, error);
}

}  // namespace weft::na::ofi
