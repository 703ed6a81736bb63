// The report of `weft info` on RDMA devices, from the fake device.
#include "na/verbs/device_report.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

static std::uint64_t limit_of(const RdmaDevice& device, std::string_view name) {
    for (const RdmaLimit& limit : device.limits) {
        if (limit.name == name) return limit.value;
    }
    FAIL("no limit is called " << name);
    return 0;
}

static std::string mends_of(const RdmaDevice& device) {
    std::string all;
    for (const std::string& heal : device.remedies) all += heal + "\n";
    return all;
}

TEST_CASE("verbs report: each device has its name, ports and limits") {
    FakeVerbs fake({.devices = 2, .pairs_max = 77});
    const std::vector<RdmaDevice> devices = report_rdma_devices();
    REQUIRE(devices.size() == 2);
    CHECK(devices[0].name == "fake0");
    CHECK(devices[1].name == "fake1");
    REQUIRE(devices[0].ports.size() == 1);
    CHECK(devices[0].ports[0].state == "active");
    CHECK(limit_of(devices[0], "max_qp") == 77);
    CHECK(fake.counts() == FakeCounts{});
    CHECK(fake.complaints().empty());
}

TEST_CASE("verbs report: without a device there is a reason") {
    const FakeVerbs fake({.devices = 0});
    CHECK(report_rdma_devices().empty());
    CHECK_FALSE(why_no_rdma_device().empty());
}

TEST_CASE("verbs report: a port that is down is listed among the remedies") {
    FakeVerbs fake;
    CHECK(mends_of(report_rdma_devices().at(0)).find("is down") == std::string::npos);
    fake.set_port(false);
    const RdmaDevice device = report_rdma_devices().at(0);
    CHECK(device.ports.at(0).state == "down");
    says(mends_of(device), "port 1 is down");
}

TEST_CASE("verbs report: the largest inline_bytes is found by creating queue pairs") {
    for (const std::uint32_t granted : {0u, 64u, 100u, 1024u}) {
        const FakeVerbs fake({.inline_bytes_max = granted});
        const std::uint64_t told = limit_of(report_rdma_devices().at(0), "inline_bytes");
        INFO(granted);
        CHECK(told <= granted);
        CHECK((told > 0) == (granted > 0));
        CHECK(fake.counts() == FakeCounts{});
    }
    const FakeVerbs fake({.pairs_max = 0});
    CHECK(limit_of(report_rdma_devices().at(0), "inline_bytes") == 0);
}
