// Opening a verbs endpoint: requirements that are not met, and the errors.
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "na/address.h"
#include "na/verbs/message_memory.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

static Status why_not_opened(VerbsRig& rig, OpenOptions options = {}) {
    const auto endpoint = rig->try_open(options, {1, 2});
    REQUIRE_FALSE(endpoint.ok());
    return endpoint.status();
}

// Limits the locked memory of this process to a common default.
class LittleLocked {
  public:
    LittleLocked() {
        REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before_) == 0);
        rlimit little = before_;
        little.rlim_cur = 65536;
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    }
    ~LittleLocked() { ::setrlimit(RLIMIT_MEMLOCK, &before_); }
    LittleLocked(const LittleLocked&) = delete;
    LittleLocked& operator=(const LittleLocked&) = delete;

  private:
    rlimit before_{};
};

TEST_CASE("verbs open: the error without a device names that") {
    VerbsRig rig({.devices = 0});
    CHECK_FALSE(rig->wire.provider->probe().usable);
    const Status why = why_not_opened(rig);
    CHECK(why.code() == Code::unavailable);
    says(std::string(why.text()), "no RDMA device");
}

TEST_CASE("verbs open: a client's open fails when the port of the device is down") {
    VerbsRig rig;
    rig.fake.set_port(false);
    const Status why = why_not_opened(rig, {.listens = false});
    CHECK(why.code() == Code::unavailable);
    says(std::string(why.text()), "no RDMA device with a port that is up");
}

TEST_CASE("verbs open: an address of no device is refused with the address and a remedy") {
    VerbsRig rig;
    const Status why = why_not_opened(rig, {.uri = "verbs://127.0.0.3:0"});
    CHECK(why.code() == Code::unavailable);
    says(std::string(why.text()), "127.0.0.3");
    says(std::string(why.text()), "rdma link");
}

TEST_CASE("verbs open: a locked memory limit that is too low is reported with its remedy") {
    const LittleLocked little;
    VerbsRig rig;
    for (int before = 0; before < 2; ++before) {  // First the send memory, then the receive memory.
        rig.fake.fail_registration(ENOMEM, before);
        const Status why = why_not_opened(rig);
        CHECK(why.code() == Code::resource_exhausted);
        says(std::string(why.text()), "Cannot allocate memory (12)");
        says(std::string(why.text()), "may lock 65536 bytes");
        says(std::string(why.text()), "ulimit -l unlimited");
        says(std::string(why.text()), "LimitMEMLOCK=infinity");
        CHECK(rig.fake.counts() == FakeCounts{});
    }
    FakeLimits limits;
    limits.locked_bytes_max = 65536;
    rig.fake.set_limits(limits);
    CHECK(why_not_opened(rig).code() == Code::resource_exhausted);
    CHECK(rig.fake.counts() == FakeCounts{});
}

TEST_CASE("verbs open: a device without queue pairs or with few completions is refused") {
    VerbsRig rig({.pairs_max = 0});
    Status why = why_not_opened(rig);
    CHECK(why.code() == Code::resource_exhausted);
    says(std::string(why.text()), "queue pairs");
    rig.fake.set_limits({.completions_max = 1000});
    why = why_not_opened(rig);
    CHECK(why.code() == Code::resource_exhausted);
    says(std::string(why.text()), "completions");
    rig.fake.set_limits({.shared_receives_max = 0});
    why = why_not_opened(rig);
    CHECK(why.code() == Code::resource_exhausted);
    says(std::string(why.text()), "shared receive queues");
}

TEST_CASE("verbs open: a device with small limits works") {
    // Fewer buffers than requested, no inline data, one read at a time, short transfers,
    // completions for few peers.
    FakeLimits limits;
    limits.shared_receives_max = 64;
    limits.inline_bytes_max = 0;
    limits.reads_max = 1;
    limits.message_bytes_max = 64 * 1024;
    limits.completions_max = 512 + 1024 + 32 * 5;
    VerbsRig rig(limits);
    NaPair pair(*rig);
    CHECK(pair.a->limits().rma_bytes_max == 64 * 1024);
    CHECK(pair.a->limits().peers_max >= 1);
    CHECK(pair.a->limits().peers_max <= 64);
    for (int i = 0; i < 100; ++i) {
        REQUIRE(rig->pump_until([&] { return pair.a.send(pair.ab, 10'000); }));
    }
    CHECK(rig->pump_until([&] { return pair.b.at(pair.ba).received == 100; }));
}

TEST_CASE("verbs open: an endpoint on all addresses accepts peers over its own device only") {
    VerbsRig rig({.devices = 2});
    NaNode& server = rig->open({.uri = "verbs://0.0.0.0:0"});
    const std::string port = std::to_string(parse_address(server->address())->port);
    NaNode& client = rig->open({.listens = false});
    const PeerId peer = rig->start_connect(client, "verbs://127.0.0.1:" + port);
    CHECK(rig->pump_until([&] { return client.at(peer).state == test::PeerState::up; }));
    NaNode& other = rig->open({.uri = "verbs://127.0.0.2:0"});
    rig->start_connect(other, "verbs://127.0.0.2:" + port);
    says(rig.wait_for_down(other).error, "not over the device that this endpoint has open");
}

TEST_CASE("verbs open: a server listens at an IPv6 address and is reached there") {
    VerbsRig rig;
    NaNode& server = rig->open({.uri = "verbs://[::1]:0"});
    CHECK(server->address().starts_with("verbs://[::1]:"));
    NaNode& client = rig->open({.listens = false});
    const PeerId peer = rig->connect(client, server);
    REQUIRE(client.send(peer, 64));
    client->flush();
    CHECK(rig->pump_until([&] { return server.count(test::PeerState::up) == 1; }));
}

TEST_CASE("verbs open: a device works when only its second port is active") {
    VerbsRig rig({.ports = 2});
    NaPair pair(*rig);
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs open: an iWARP device is refused with the reason") {
    FakeLimits limits;
    limits.is_iwarp = true;
    VerbsRig rig(limits);
    const Status why = why_not_opened(rig);
    CHECK(why.code() == Code::unimplemented);
    says(std::string(why.text()), "fake0 speaks iWARP");
}

TEST_CASE("verbs open: message memory never overlaps mappings of other threads") {
    // Another thread maps and unmaps memory at addresses that the kernel chooses.
    std::atomic<bool> ends{false};
    std::atomic<int> lost{0};
    std::thread other([&] {
        constexpr std::size_t bytes = 8u << 20;
        while (!ends) {
            void* const at =
                ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            auto* const words = static_cast<volatile int*>(at);
            for (std::size_t i = 0; i < bytes / sizeof(int); i += 4096) words[i] = 1;
            std::this_thread::yield();
            for (std::size_t i = 0; i < bytes / sizeof(int); i += 4096) lost += words[i] != 1;
            ::munmap(at, bytes);
        }
    });
    for (int i = 0; i < 300; ++i) {
        verbs::MessageMemory memory;
        REQUIRE(memory.make(512, 17 << 10, true));
        memory.at(0)[0] = memory.at(511)[0] = std::byte{1};
    }
    ends = true;
    other.join();
    CHECK(lost == 0);
}
