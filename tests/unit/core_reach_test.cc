// Which addresses of peers a program connects to.
#include "core/reach.h"

#include "support/catch.h"

using namespace weft;
using namespace weft::core;

static Reach reach_of(const std::vector<std::string>& own) {
    Reach reach;
    for (const std::string& uri : own) reach.add(na::parse_address(uri).value());
    return reach;
}

static bool covers(const Reach& reach, const std::string& uri) {
    return reach.covers(na::parse_address(uri).value());
}

TEST_CASE("reach: an address of a peer is covered by one's own of the same transport only") {
    const Reach reach = reach_of({"tcp://10.0.0.1:7400", "sm://store"});
    CHECK(covers(reach, "tcp://10.0.0.2:1"));
    CHECK(covers(reach, "tcp://node-7:1"));
    CHECK(covers(reach, "sm://other"));
    for (const char* uri : {"ofi+tcp://10.0.0.2:1", "ofi+verbs://10.0.0.2:1", "verbs://10.0.0.2:1",
                            "unix:///run/docker.sock", "sim://x"}) {
        INFO(uri);
        CHECK_FALSE(covers(reach, uri));
    }
    CHECK(reach.transports() == "tcp, sm");
    CHECK(Reach().transports() == "none");
}

TEST_CASE("reach: this host's loopback is covered only where an own address is there") {
    const Reach far = reach_of({"tcp://10.0.0.1:7400"});
    const Reach here = reach_of({"tcp://127.0.0.1:7400"});
    for (const char* uri : {"tcp://127.0.0.1:6379", "tcp://127.9.9.9:1", "tcp://localhost:1",
                            "tcp://:1", "tcp://0.0.0.0:1", "tcp://[::1]:1", "tcp://[::]:1",
                            "tcp://[::ffff:127.0.0.1]:1", "tcp://[::ffff:0.0.0.0]:1"}) {
        INFO(uri);
        CHECK_FALSE(covers(far, uri));
        CHECK(covers(here, uri));
    }
    CHECK(covers(here, "tcp://10.0.0.2:1"));
}

TEST_CASE("reach: an own address that listens everywhere does not cover this host's loopback") {
    for (const char* own : {"tcp://0.0.0.0:7400", "tcp://[::]:7400", "tcp://[::ffff:0.0.0.0]:1"}) {
        const Reach reach = reach_of({own});
        for (const char* uri : {"tcp://127.0.0.1:6379", "tcp://localhost:1", "tcp://:1",
                                "tcp://0.0.0.0:1", "tcp://[::1]:1", "tcp://[::]:1",
                                "tcp://[::ffff:127.0.0.1]:1", "tcp://[::ffff:0.0.0.0]:1"}) {
            INFO(own << ", " << uri);
            CHECK_FALSE(covers(reach, uri));
        }
        CHECK(covers(reach, "tcp://10.0.0.2:1"));
        CHECK(covers(reach, "tcp://[fe80::1%lo]:1"));
    }
    const Reach both = reach_of({"tcp://0.0.0.0:7400", "tcp://[::ffff:127.0.0.1]:7401"});
    CHECK(covers(both, "tcp://127.0.0.1:6379"));
}

TEST_CASE("reach: a socket's file is covered only beside an own one") {
    const Reach reach = reach_of({"unix:///run/store/a"});
    CHECK(covers(reach, "unix:///run/store/b"));
    CHECK_FALSE(covers(reach, "unix:///run/store/deeper/b"));
    CHECK_FALSE(covers(reach, "unix:///run/docker.sock"));
    CHECK_FALSE(covers(reach, "unix:///run/store/../docker.sock"));
}
