// Differences of ofi+verbs from ofi+tcp: over an RDMA device where the host has one (ofi+verbs: …),
// and over TCP that is treated like a device, with faults (ofi like a device: …).
#include <cstdlib>

#include "na/ofi/settings.h"
#include "support/ofi_faults.h"
#include "support/ofi_rig.h"
#include "support/rdma_host.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

static const na::ofi::FabricTraits& device_traits() {
    static const na::ofi::FabricTraits traits = [] {
        na::ofi::FabricTraits like_a_device = na::ofi::verbs_traits;
        like_a_device.scheme = na::ofi::tcp_traits.scheme;
        like_a_device.provider = na::ofi::tcp_traits.provider;
        return like_a_device;
    }();
    return traits;
}

// Sets a variable of the environment; the destructor restores its value.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name), before_(std::getenv(name)) {
        ::setenv(name, value, 1);
    }
    ~Variable() { ::setenv(name_, before_.c_str(), 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
    const std::string before_;
};

static na::Exposure expose_whole(std::vector<std::byte>& memory) {
    return {3, 1, 77, memory, na::Access::read_write};
}

static na::RmaItem get_item(na::PeerId peer, na::FabricKey key, Bytes local) {
    na::RmaItem get;
    get.kind = na::RmaKind::get;
    get.peer = peer;
    get.region = 3;
    get.generation = 1;
    get.fabric = key;
    get.local = local;
    get.cookie = 5;
    return get;
}

TEST_CASE("ofi like a device: a fence closes no connection") {
    Node owner(device_traits(), ofi_any_port), client(device_traits(), "");
    const na::PeerId first = join(client, owner), second = join(client, owner);
    std::vector<std::byte> memory(4096);
    REQUIRE(owner->expose(expose_whole(memory)).ok());
    client->close(first);  // Over TCP the connection, which `second` shares, may still write.
    REQUIRE(turn_until({&client, &owner}, [&] { return owner.find(EventKind::peer_down); }));
    owner->fence(3, na::Holders::lost);
    REQUIRE(turn_until({&owner}, [&] { return owner.find(EventKind::region_fenced); }));
    REQUIRE(client.send(second, "still here"));
    client->flush();
    CHECK(turn_until({&client, &owner}, [&] { return owner.find(EventKind::message); }));
    CHECK(owner.count(EventKind::peer_down) == 1);
}

TEST_CASE("ofi like a device: memory that the device does not release is not reported as fenced") {
    Node owner(device_traits(), ofi_any_port);
    std::vector<std::byte> memory(4096);
    REQUIRE(owner->expose(expose_whole(memory)).ok());
    ofi_release_error = EINVAL;
    owner->fence(3, na::Holders::lost);
    turn_for({&owner}, 100ms);
    CHECK(owner.seen.empty());
    CHECK(owner->expose(expose_whole(memory)).status().code() == Code::already_exists);
    ofi_release_error = 0;
    owner->fence(3, na::Holders::done);
    CHECK(turn_until({&owner}, [&] { return owner.find(EventKind::region_fenced); }));
    CHECK(owner->expose(expose_whole(memory)).ok());
}

TEST_CASE("ofi like a device: expose fails with the bytes and the remedy if registration fails") {
    Node owner(device_traits(), ofi_any_port);
    std::vector<std::byte> memory(4096);
    ofi_register_error = ENOMEM;
    const Status status = owner->expose(expose_whole(memory)).status();
    ofi_register_error = 0;
    CHECK(status.code() == Code::resource_exhausted);
    INFO(status.text());
    CHECK(status.text().find("4096 bytes") != std::string_view::npos);
    CHECK(status.text().find("ulimit -l") != std::string_view::npos);
    CHECK(owner->expose(expose_whole(memory)).ok());
}

TEST_CASE("ofi like a device: a connection that is full is not lost") {
    Node server(device_traits(), ofi_any_port), client(device_traits(), "");
    const na::PeerId peer = join(client, server);
    OfiRefuses refuses(std::numeric_limits<int>::max(), 1);
    {
        OfiHoldsCompletions holds;
        REQUIRE(client.send(peer, "under way"));
        client->flush();
        REQUIRE(client.send(peer, "refused"));
        client->flush();
        turn_for({&client}, 500ms);
        CHECK(client.seen.empty());
    }
    // No send is pending any more, and libfabric still refuses: the connection is a new one.
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::peer_down); }));
    CHECK(client.seen.back().event.code == Code::unavailable);
}

TEST_CASE("ofi like a device: a peer never posts more requests than its connection takes") {
    constexpr std::uint32_t requests_max = 128;  // RXM_MSG_RXTX_SIZE.
    constexpr std::uint32_t kept = 8;            // Control messages, which use no slot.
    CHECK(na::ofi::verbs_traits.slots_per_peer * na::ofi::pieces_max + na::ofi::transfers_per_peer +
              kept <=
          requests_max);
    Node server(device_traits(), ofi_any_port), client(device_traits(), "");
    const na::PeerId peer = join(client, server);
    std::uint32_t sent = 0;
    {
        OfiHoldsCompletions holds;
        // Small messages, too, which over TCP are sent without a completion.
        for (; sent < 1000 && client.send(peer, "small"); ++sent) client->flush();
        CHECK(sent == na::ofi::verbs_traits.slots_per_peer);
    }
    CHECK(turn_until({&client, &server}, [&] { return server.count(EventKind::message) == sent; }));
    CHECK(client.find(EventKind::writable));
}

TEST_CASE("ofi like a device: listening at a port in use fails with the address") {
    Node server(device_traits(), ofi_any_port);
    base::KernelRandom random;
    base::Log log;
    NoArena arena;
    na::ofi::OfiEndpoint second(device_traits(), {random, log, arena, {1, 2}, ""}, real_now());
    const Status status = second.listen(*na::parse_address(server->address()));
    CHECK(status.code() == Code::already_exists);
    INFO(status.text());
    CHECK(status.text().find(server->address()) != std::string_view::npos);
    Node client(device_traits(), "");
    join(client, server);
}

TEST_CASE("ofi: regions can't be fenced over a device while libfabric caches registrations") {
    using na::ofi::can_fence;
    CHECK(can_fence(na::ofi::verbs_traits));
    {
        const Variable cache("FI_MR_CACHE_MAX_COUNT", "1024");
        CHECK_FALSE(can_fence(na::ofi::verbs_traits));
        CHECK(can_fence(na::ofi::tcp_traits));  // Over TCP no memory is registered.
    }
    const Variable cleanup("FI_AV_REMOVE_CLEANUP", "0");
    CHECK_FALSE(can_fence(na::ofi::verbs_traits));
    CHECK_FALSE(can_fence(na::ofi::tcp_traits));
}

TEST_CASE("ofi+verbs: the error without an RDMA device names the device") {
    base::KernelRandom random;
    base::Log log;
    NoArena arena;
    const auto provider = na::make_ofi_verbs_provider();
    if (provider->probe().usable) return;  // In the lab (docs/softroce.md).
    const na::Address loopback = *na::parse_address("ofi+verbs://127.0.0.1:0");
    const auto opened =
        provider->open(&loopback, {random, log, arena, {1, 2}, std::string()}, real_now());
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.status().code() == Code::unavailable);
    INFO(opened.status().text());
    CHECK(opened.status().text().find("RDMA device") != std::string_view::npos);
    // No peer has a key of a device that does not exist.
    na::ofi::OfiEndpoint nowhere(na::ofi::verbs_traits, {random, log, arena, {1, 2}, ""},
                                 real_now());
    std::vector<std::byte> memory(4096);
    CHECK(nowhere.expose(expose_whole(memory)).status().code() == Code::unavailable);
}

TEST_CASE("ofi+verbs: memory that is exposed before any peer connects can be read") {
    const auto uri = rdma_uri("ofi+verbs");
    if (!uri) return;
    const na::ofi::FabricTraits& traits = na::ofi::verbs_traits;
    Node server(traits, *uri), client(traits, "");
    std::vector<std::byte> owned(8192, std::byte{7}), local(8192);
    const na::FabricKey key = client->expose(expose_whole(owned)).value();
    na::PeerId incoming;
    join(client, server, &incoming);
    const na::RmaItem get = get_item(incoming, key, local);
    REQUIRE(server->post({&get, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::rma_done); }));
    CHECK(server.seen[0].event.code == Code::ok);
    CHECK(local == owned);
}

TEST_CASE("ofi+verbs: an access with a wrong key is refused and costs at most one connection") {
    const auto uri = rdma_uri("ofi+verbs");
    if (!uri) return;
    const na::ofi::FabricTraits& traits = na::ofi::verbs_traits;
    Node server(traits, *uri), client(traits, ""), bystander(traits, "");
    const na::PeerId peer = join(client, server), other = join(bystander, server);
    std::vector<std::byte> owned(8192, std::byte{7}), local(8192);
    na::FabricKey key = server->expose(expose_whole(owned)).value();
    key.key ^= 1;
    const na::RmaItem get = get_item(peer, key, local);
    REQUIRE(client->post({&get, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::rma_done); }));
    CHECK(client.find(EventKind::rma_done)->event.code != Code::ok);
    CHECK(local == std::vector<std::byte>(8192));
    REQUIRE(bystander.send(other, "still here"));
    bystander->flush();
    CHECK(turn_until({&bystander, &client, &server},
                     [&] { return server.find(EventKind::message); }));
    CHECK(bystander.seen.empty());
}

TEST_CASE("ofi+verbs: a revoked region can't be read and its memory is not written") {
    const auto uri = rdma_uri("ofi+verbs");
    if (!uri) return;
    const na::ofi::FabricTraits& traits = na::ofi::verbs_traits;
    Node server(traits, *uri), client(traits, "");
    const na::PeerId peer = join(client, server);
    std::vector<std::byte> owned(8192, std::byte{7}), local(8192, std::byte{9});
    const na::FabricKey key = server->expose(expose_whole(owned)).value();
    server->fence(3, na::Holders::lost);
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::region_fenced); }));
    na::RmaItem put = get_item(peer, key, local);
    put.kind = na::RmaKind::put;
    REQUIRE(client->post({&put, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::rma_done); }));
    CHECK(client.find(EventKind::rma_done)->event.code != Code::ok);
    CHECK(owned == std::vector<std::byte>(8192, std::byte{7}));
}
