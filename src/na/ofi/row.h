// The transports of ours that libfabric carries: what it calls them, and in what their connections
// differ for us.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <string_view>

#include "na/ofi/library.h"
#include "na/provider.h"
#include "na/socket_name.h"

namespace weft::na::ofi {

struct Row {
    std::string_view scheme;
    // The exact prov_name for a libfabric of this version.
    std::string_view (*provider)(std::uint32_t version);
    std::string_view mend;  // What its absence asks for.
    // It listens at a TCP port, so a plain socket tells whether anybody does.
    bool asks_by_socket;
    // To be asked about an address it takes it for a moment, port and all.
    bool binds_to_answer;
    // The end of a registration is the end of all access; otherwise connections must be cut.
    bool closing_fences;
    // Keys of memory are given by a card, so that there is none before libfabric is open.
    bool keys_of_card;
    // libfabric moves the bytes, not a card that has them pinned: where one can't be touched it, or
    // its connection, ends.
    bool copies_itself;
    // libfabric breaks when a connection is closed in the middle of an answer to a get.
    bool breaks_answers;
    // So that one slow peer can't take them all, and none asks more of its connection than that
    // takes: what is refused so for long counts as a connection that is lost.
    std::uint32_t slots_per_peer;
    // Messages without a completion: a slot is free at once, however many are under way.
    bool injects;
};
extern const Row tcp_row;
extern const Row verbs_row;

// Of the libfabric at run time, which is loaded: "1.17".
std::string version_text();
std::string describe(int error);  // "Connection refused (111)"; takes either sign.

struct InfoDeleter {
    void operator()(fi_info* info) const { library().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

// What `row` offers; with `source`, for an endpoint that listens there. Loads libfabric.
// Errors: UNAVAILABLE (not offered here, or no libfabric).
Result<InfoPtr> find_info(const Row& row, const SocketName* source);
// Where an endpoint is when nobody said where: the first address of a device, IPv4 before IPv6.
Result<SocketName> find_source(const Row& row);

bool is_rxm(const fi_info& info);

}  // namespace weft::na::ofi
