// Memory that is reused for another peer exposes no byte of the first one: memory of rendezvous
// bodies, and memory that the program gets from the arena.
#include <algorithm>

#include "bulk/bulk.h"
#include "support/catch.h"
#include "support/hold_server.h"
#include "support/raw_echo.h"
#include "support/sim_rig.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::byte foreign{0xee};

bool has_foreign(ByteView memory) {
    return std::find(memory.begin(), memory.end(), foreign) != memory.end();
}

struct RendezvousRig {
    RendezvousRig() : server(rig.add("server")) {
        REQUIRE(server.add(service).ok());
        channel = rig.add("").connect("sim://server").value();
        call(8);
    }
    // Echoes `bytes` foreign bytes.
    void call(std::size_t bytes) {
        CallOutcome outcome;
        channel.call(HoldServer::echo, std::vector<std::byte>(bytes, foreign), {.timeout = 10s},
                     outcome.done());
        REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
        REQUIRE(outcome.status.ok());
    }
    // Returns all memory that a peer other than the client can read with a body of `bytes` bytes.
    ByteView exposed_with(std::size_t bytes) {
        api::Node& node = node_of(server);
        const bulk::RendezvousBuffer rendezvous =
            node.bulk.rendezvous.prepare(other(), bytes).value();
        std::fill(rendezvous.memory.begin(), rendezvous.memory.end(), std::byte{1});
        RegionRef range =
            RegionRef::decode(
                {reinterpret_cast<const std::byte*>(rendezvous.where.ref), RegionRef::wire_bytes})
                .value();
        range.offset = 0;
        Bytes most;
        for (range.length = bytes; range.length <= 2 * bytes + (64 << 10); ++range.length) {
            const Bytes memory = node.bulk.regions->memory_of(range);
            if (memory.empty()) break;
            most = memory;
        }
        REQUIRE(most.size() >= bytes);
        return most;
    }

    // A connected peer that is not the client; a connected peer keeps its rendezvous memory.
    core::Peer& other() {
        if (other_) return *other_;
        second = rig.add("").connect("sim://server").value();
        CallOutcome outcome;
        second.call(HoldServer::echo, {}, {.timeout = 10s}, outcome.done());
        REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
        for (core::Peer* one : node_of(server).context.endpoints()[0]->peers) {
            if (one) other_ = one;
        }
        return *other_;
    }

    HoldServer service;  // Outlives the runtime that serves it.
    SimRig rig;
    Runtime& server;
    Channel channel, second;
    core::Peer* other_ = nullptr;
};

}  // namespace

TEST_CASE("a rendezvous body exposes no bytes of another peer in a reused block") {
    for (const std::size_t bytes : {70'000, 100'000, 300'001}) {
        RendezvousRig rendezvous;
        rendezvous.call(bytes + bytes / 8);  // Uses a block of this size, which is idle afterwards.
        CHECK_FALSE(has_foreign(rendezvous.exposed_with(bytes)));
    }
}

TEST_CASE("a rendezvous body exposes no bytes of another peer after a refused rendezvous") {
    RendezvousRig rendezvous;
    rendezvous.call(780'000);
    core::Peer& other = rendezvous.other();
    const auto granted = std::exchange(other.traffic.granted, 1u << 16);  // More than its share.
    const Status refused =
        node_of(rendezvous.server).bulk.rendezvous.prepare(other, 770'000).status();
    CHECK(refused.code() == Code::resource_exhausted);
    CHECK(refused.text().find("no grant") != std::string_view::npos);
    other.traffic.granted = granted;
    CHECK_FALSE(has_foreign(rendezvous.exposed_with(660'000)));
}

TEST_CASE("a rendezvous body exposes no bytes of the program in a new block") {
    RendezvousRig rendezvous;
    for (int i = 0; i < 4; ++i) {
        const Buffer own = rendezvous.server.allocate(std::size_t{1} << 20).value();
        std::fill(own.bytes().begin(), own.bytes().end(), foreign);
    }
    CHECK_FALSE(has_foreign(rendezvous.exposed_with(300'001)));
}

TEST_CASE("memory for the program holds no bytes of a peer's earlier body") {
    const auto arena = na::Arena::make(std::size_t{16} << 20);
    constexpr std::size_t bytes = std::size_t{1} << 20;
    {
        const Buffer body = arena->allocate(bytes, na::Arena::Use::peers).value();
        std::fill(body.bytes().begin(), body.bytes().end(), foreign);
    }
    {
        const Buffer again = arena->allocate(bytes / 2, na::Arena::Use::peers).value();
        // The same memory: it is not cleared for a use by peers.
        CHECK(has_foreign(again.bytes()));
    }
    const Buffer half = arena->allocate(bytes / 2).value();
    const Buffer rest = arena->allocate(bytes).value();
    CHECK_FALSE(has_foreign(half.bytes()));
    CHECK_FALSE(has_foreign(rest.bytes()));
}
