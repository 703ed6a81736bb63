// Transports that weft runs over libfabric: libfabric's names for them, and the differences of
// their connections.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <string_view>

#include "na/ofi/library.h"
#include "na/provider.h"
#include "na/socket_name.h"

namespace weft::na::ofi {

struct FabricTraits {
    std::string_view scheme;
    // The exact prov_name for a libfabric of this version.
    std::string_view (*provider)(std::uint32_t version);
    std::string_view remedy;  // What to do if the provider is missing.
    // It listens at a TCP port, so a plain socket shows whether a listener exists.
    bool probes_by_socket;
    // Resolving an address binds it for a moment, including the port.
    bool binds_to_resolve;
    // Deregistration ends all access; otherwise connections must be cut.
    bool deregistration_fences;
    // A device assigns memory keys, so that none exists before libfabric is open.
    bool keys_from_device;
    // libfabric copies the bytes itself, rather than a device that has them pinned: memory that
    // can't be touched ends the process, or its connection.
    bool copies_in_library;
    // libfabric fails when a connection is closed in the middle of a reply to a get (av_entry.cc).
    bool close_breaks_gets;
    // Keeps one slow peer from taking all slots, and each peer within the work requests of its
    // connection: a connection that refuses a send for long counts as lost.
    std::uint32_t slots_per_peer;
    // Small messages have no completion: their slot is free at once, however many are in flight.
    bool injects;
};
extern const FabricTraits tcp_traits;
extern const FabricTraits verbs_traits;

// The version of the loaded libfabric: "1.17".
std::string version_text();
std::string describe(int error);  // "Connection refused (111)"; takes either sign.

struct InfoDeleter {
    void operator()(fi_info* info) const { library().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

// The provider of `traits`; with `source`, for an endpoint that listens there. Loads libfabric.
// Errors: UNAVAILABLE (not offered on this machine, or no libfabric).
Result<InfoPtr> find_info(const FabricTraits& traits, const SocketName* source);
// The default address of an endpoint: the first one of a device, IPv4 before IPv6.
Result<SocketName> find_source(const FabricTraits& traits);

bool is_rxm(const fi_info& info);

}  // namespace weft::na::ofi
