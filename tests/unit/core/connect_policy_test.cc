// The addresses of peers that a program connects to.
#include "core/connect_policy.h"

#include "support/catch.h"

using namespace weft;
using namespace weft::core;

static ConnectPolicy reach_of(const std::vector<std::string>& own) {
    ConnectPolicy reach;
    for (const std::string& uri : own) reach.add(na::parse_address(uri).value());
    return reach;
}

static bool allows(const ConnectPolicy& reach, const std::string& uri) {
    return reach.allows(na::parse_address(uri).value());
}

TEST_CASE("connect policy: an own address allows peers' addresses of the same transport only") {
    const ConnectPolicy reach = reach_of({"tcp://10.0.0.1:7400", "sm://store"});
    CHECK(allows(reach, "tcp://10.0.0.2:1"));
    CHECK(allows(reach, "tcp://node-7:1"));
    CHECK(allows(reach, "sm://other"));
    for (const char* uri : {"ofi+tcp://10.0.0.2:1", "ofi+verbs://10.0.0.2:1", "verbs://10.0.0.2:1",
                            "unix:///run/docker.sock", "sim://x"}) {
        INFO(uri);
        CHECK_FALSE(allows(reach, uri));
    }
    CHECK(reach.transports() == "tcp, sm");
    CHECK(ConnectPolicy().transports() == "none");
}

TEST_CASE("connect policy: loopback is allowed only when an own address is on loopback") {
    const ConnectPolicy far = reach_of({"tcp://10.0.0.1:7400"});
    const ConnectPolicy here = reach_of({"tcp://127.0.0.1:7400"});
    for (const char* uri : {"tcp://127.0.0.1:6379", "tcp://127.9.9.9:1", "tcp://localhost:1",
                            "tcp://:1", "tcp://0.0.0.0:1", "tcp://[::1]:1", "tcp://[::]:1",
                            "tcp://[::ffff:127.0.0.1]:1", "tcp://[::ffff:0.0.0.0]:1"}) {
        INFO(uri);
        CHECK_FALSE(allows(far, uri));
        CHECK(allows(here, uri));
    }
    CHECK(allows(here, "tcp://10.0.0.2:1"));
}

TEST_CASE("connect policy: an own address on all interfaces does not allow loopback") {
    for (const char* own : {"tcp://0.0.0.0:7400", "tcp://[::]:7400", "tcp://[::ffff:0.0.0.0]:1"}) {
        const ConnectPolicy reach = reach_of({own});
        for (const char* uri : {"tcp://127.0.0.1:6379", "tcp://localhost:1", "tcp://:1",
                                "tcp://0.0.0.0:1", "tcp://[::1]:1", "tcp://[::]:1",
                                "tcp://[::ffff:127.0.0.1]:1", "tcp://[::ffff:0.0.0.0]:1"}) {
            INFO(own << ", " << uri);
            CHECK_FALSE(allows(reach, uri));
        }
        CHECK(allows(reach, "tcp://10.0.0.2:1"));
        CHECK(allows(reach, "tcp://[fe80::1%lo]:1"));
    }
    const ConnectPolicy both = reach_of({"tcp://0.0.0.0:7400", "tcp://[::ffff:127.0.0.1]:7401"});
    CHECK(allows(both, "tcp://127.0.0.1:6379"));
}

TEST_CASE("connect policy: a socket file is allowed only in the folder of an own one") {
    const ConnectPolicy reach = reach_of({"unix:///run/store/a"});
    CHECK(allows(reach, "unix:///run/store/b"));
    CHECK_FALSE(allows(reach, "unix:///run/store/deeper/b"));
    CHECK_FALSE(allows(reach, "unix:///run/docker.sock"));
    CHECK_FALSE(allows(reach, "unix:///run/store/../docker.sock"));
}
