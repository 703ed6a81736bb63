#include "na/ofi/row.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace weft::na::ofi {

static std::string_view tcp_provider(std::uint32_t version) {
    // Before 1.18 `tcp` had connected endpoints only, and `net`, which has the others, reads no
    // further from a peer whose message nobody expects and fences nothing short of its endpoint.
    return version < FI_VERSION(1, 18) ? "tcp;ofi_rxm" : "tcp";
}

static std::string_view verbs_provider(std::uint32_t) { return "verbs;ofi_rxm"; }

const Row tcp_row{.scheme = "ofi+tcp",
                  .provider = tcp_provider,
                  .mend = "install libfabric1 1.17 or later",
                  .asks_by_socket = true,
                  .binds_to_answer = false,
                  .closing_fences = false,
                  .keys_of_card = false,
                  .copies_itself = true,
                  .breaks_answers = true,
                  .slots_per_peer = 64,
                  .injects = true};

// A queue pair of rxm takes 128 work requests: 24 messages of up to 4 pieces, 16 transfers and a
// few words of ours.
const Row verbs_row{.scheme = "ofi+verbs",
                    .provider = verbs_provider,
                    .mend =
                        "it needs libfabric1 1.17 or later and an address that an RDMA device "
                        "is on (`ibv_devinfo`, `rdma link`)",
                    .asks_by_socket = false,
                    .binds_to_answer = true,
                    .closing_fences = true,
                    .keys_of_card = true,
                    .copies_itself = false,
                    .breaks_answers = false,
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

static InfoPtr make_hints(const Row& row) {
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
    const std::string provider(row.provider(library().version()));
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    return hints;
}

// All that libfabric answers. `error`: its own. Errors: UNAVAILABLE (no libfabric).
static Result<InfoPtr> ask(const Row& row, const SocketName* source, int& error) {
    if (const Status status = load_library(); !status.ok()) {
        return fail(Code::unavailable, std::string(row.scheme) + ": " + std::string(status.text()));
    }
    const InfoPtr hints = make_hints(row);
    fi_info* found = nullptr;
    error = FI_ENOMEM;
    if (!hints) return InfoPtr();
    const std::uint32_t version =
        library().version() < FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)
            ? library().version()
            : FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    if (source) {
        const std::string host = source->host();
        // A port that is taken would be an address without a device.
        const std::string port = row.binds_to_answer ? "0" : std::to_string(source->port());
        error = library().getinfo(version, host.c_str(), port.c_str(), FI_SOURCE | FI_NUMERICHOST,
                                  hints.get(), &found);
    } else {
        error = library().getinfo(version, nullptr, nullptr, 0, hints.get(), &found);
    }
    return InfoPtr(found);
}

static Status not_offered(const Row& row, const SocketName* source, int error) {
    return fail(Code::unavailable,
                std::string(row.scheme) + ": libfabric " + version_text() +
                    " offers no provider '" + std::string(row.provider(library().version())) + "'" +
                    (source ? " at " + source->text() : "") +
                    (error ? ": " + describe(error) : "") + "; " + std::string(row.mend));
}

Result<InfoPtr> find_info(const Row& row, const SocketName* source) {
    int error = 0;
    const auto all = ask(row, source, error);
    if (!all) return all.status();
    // A hint of `tcp` is answered by layers over tcp as well: compare what came back.
    for (const fi_info* info = all->get(); info; info = info->next) {
        if (row.provider(library().version()) != info->fabric_attr->prov_name) continue;
        if (source && (!info->src_addr || static_cast<const sockaddr*>(info->src_addr)->sa_family !=
                                              source->family())) {
            continue;
        }
        InfoPtr copy(library().dupinfo(info));
        if (!copy) return fail(Code::resource_exhausted, "no memory for libfabric");
        // Asked about all addresses, libfabric answers with one of an interface: of loopback, here.
        const bool is_other = source && (row.binds_to_answer || source->is_any());
        if (is_other && copy->src_addrlen == source->size()) {
            std::memcpy(copy->src_addr, source->get(), source->size());
        }
        return copy;
    }
    return not_offered(row, source, error);
}

Result<SocketName> find_source(const Row& row) {
    int error = 0;
    const auto all = ask(row, nullptr, error);
    if (!all) return all.status();
    for (const int family : {AF_INET, AF_INET6}) {
        for (const fi_info* info = all->get(); info; info = info->next) {
            if (row.provider(library().version()) != info->fabric_attr->prov_name ||
                !info->src_addr) {
                continue;
            }
            const auto name = SocketName::from_kernel(static_cast<const sockaddr*>(info->src_addr),
                                                      info->src_addrlen);
            if (name && name->family() == family && !name->is_loopback()) return name->with_port(0);
        }
    }
    return not_offered(row, nullptr, error);
}

}  // namespace weft::na::ofi
