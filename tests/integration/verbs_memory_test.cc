// Memory that verbs needs: the error when it may not be locked, and the cost of a connection.
#include <malloc.h>
#include <sys/resource.h>

#include <weft/runtime.h>

#include "support/child.h"
#include "support/na_rig.h"
#include "support/rdma_host.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr uid_t other_user = 65534;  // Root has no limit.

// Runs in a process that may lock `lockable` bytes; returns the step that failed, or 0.
int try_with(std::size_t lockable, const std::string& uri, std::size_t exposed) {
    const rlimit limit{lockable, lockable};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(other_user) != 0 ||
        ::setuid(other_user) != 0) {
        return 10;
    }
    const auto names_remedy = [&](const Status& status) {
        const std::string text(status.text());
        return status.code() == Code::resource_exhausted &&
               text.find("may lock " + std::to_string(lockable) + " bytes") != text.npos &&
               text.find("`ulimit -l unlimited`") != text.npos &&
               text.find("LimitMEMLOCK=infinity") != text.npos;
    };
    Runtime runtime = Runtime::create({.manual = true}).value();
    const Status listening = runtime.listen(uri);
    if (!listening.ok()) return names_remedy(listening) ? 1 : 11;
    const Result<Region> region =
        runtime.expose(runtime.allocate(exposed).value(), {.access = Access::read});
    if (!region) return names_remedy(region.status()) ? 2 : 12;
    return 0;
}

}  // namespace

TEST_CASE("verbs: the error names the remedy when the process may not lock memory", "[verbs]") {
    const auto uri = rdma_uri_or_note();
    if (!uri) return;
    CHECK(end_of_child([&] { return try_with(64 << 10, *uri, 4096); }) == 1);
    CHECK(end_of_child([&] { return try_with(32 << 20, *uri, 64 << 20); }) == 2);
    CHECK(end_of_child([&] { return try_with(256 << 20, *uri, 64 << 20); }) == 0);
}

TEST_CASE("verbs: a connected queue pair costs at most 16 KiB of memory", "[verbs]") {
    if (!rdma_uri_or_note()) return;
    constexpr std::size_t connections = 200;
    auto rig = NaRig::on<wires::Verbs>();
    NaNode& server = rig.open({.peers_max = connections});
    NaNode& client = rig.open({.listens = false, .peers_max = connections});
    const auto bytes = [] {
        const struct mallinfo2 heap = ::mallinfo2();
        return heap.uordblks + heap.hblkhd;
    };
    const std::size_t before = bytes();
    std::vector<na::PeerId> peers;
    for (std::size_t i = 0; i < connections; ++i) {
        peers.push_back(rig.start_connect(client, server->address()));
        REQUIRE(rig.pump_until([&] {
            return client.count(PeerState::up) == i + 1 && server.count(PeerState::up) == i + 1;
        }));
    }
    // Both ends are in this process, with the memory that the libraries keep for them.
    const std::size_t each = (bytes() - before) / (2 * connections);
    std::printf("verbs: %zu connected queue pairs, %zu bytes each\n", 2 * connections, each);
    CHECK(each <= 16 << 10);
    CHECK(each > 0);
    for (const na::PeerId peer : peers) {
        REQUIRE(client.send(peer, 64));
        client->flush();
    }
    CHECK(rig.pump_until([&] { return server.received() == connections; }));
}
