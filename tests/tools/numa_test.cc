// `weft info`: NUMA nodes as the kernel describes them, or fails to, and the cpus of contexts.
#include "info/numa.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "cli/cpus.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

namespace {

using Cpus = std::vector<int>;

Cpus range(int first, int end) {
    Cpus cpus(static_cast<std::size_t>(end - first));
    std::iota(cpus.begin(), cpus.end(), first);
    return cpus;
}

// A folder like /sys.
struct FakeSys {
    FakeSys() {
        char name[] = "/tmp/weft-numa-XXXXXX";
        REQUIRE(::mkdtemp(name));
        root = name;
    }
    ~FakeSys() { std::filesystem::remove_all(root); }
    void write(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = root + "/" + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    void node(int number, const std::string& cpus) const {
        write("devices/system/node/node" + std::to_string(number) + "/cpulist", cpus + "\n");
    }
    void device(const std::string& path, const std::string& node) const {
        write("class/" + path + "/device/numa_node", node + "\n");
    }
    std::string root;
};

// Two nodes with four cpus each, and a card at the second one.
struct TwoNodes : FakeSys {
    TwoNodes() {
        write("devices/system/node/online", "0-1\n");
        node(0, "0-3");
        node(1, "4-7");
        device("infiniband/mlx5_0", "1");
        device("net/ib0", "1");
        device("net/lo0", "-1");
        write("class/net/lo/mtu", "65536\n");
    }
};

bool mentions(const ContextPlan& plan, const std::string& text) {
    for (const std::string& remedy : plan.remedies) {
        UNSCOPED_INFO(remedy);
        if (remedy.find(text) != std::string::npos) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("numa: nodes have their cpus, those of this process, and their devices") {
    const TwoNodes sys;
    const NumaMachine machine = read_numa(sys.root, {6, 0, 1, 5, 4});
    REQUIRE(machine.nodes.size() == 2);
    CHECK(machine.missing.empty());
    CHECK(machine.nodes[0].cpus == range(0, 4));
    CHECK(machine.nodes[0].allowed == Cpus{0, 1});
    CHECK(machine.nodes[0].devices.empty());
    CHECK(machine.nodes[1].allowed == Cpus{4, 5, 6});
    CHECK(machine.nodes[1].devices == std::vector<std::string>{"ib0", "mlx5_0"});
    CHECK(machine.node_of(3) == 0);
    CHECK(machine.node_of(7) == 1);
    CHECK(machine.node_of(8) == -1);
    const std::string text = numa_to_text(machine, plan_contexts(machine, 1, {}));
    CHECK_THAT(text, Catch::Contains("  node 0: cpus 0-3, for this process 0-1\n"));
    CHECK_THAT(text, Catch::Contains("  node 1: cpus 4-7, for this process 4-6; ib0, mlx5_0\n"));
}

TEST_CASE("numa: contexts without cpus are not bound, and those close to the card are suggested") {
    const TwoNodes sys;
    const NumaMachine machine = read_numa(sys.root, range(0, 8));
    const ContextPlan all = plan_contexts(machine, 0, {});
    CHECK(all.places.size() == 8);
    for (const ContextPlan::Place& place : all.places) CHECK(place.cpu == -1);
    CHECK(all.suggested == Cpus{4, 5, 6, 7, 0, 1, 2, 3});
    CHECK(mentions(all, "WEFT_CPUS=4-7,0-3"));
    CHECK_THAT(numa_to_text(machine, all),
               Catch::Contains("  contexts 0-7: not bound (WEFT_CPUS), on any of cpus 0-7\n"));
    CHECK(plan_contexts(machine, 3, {}).suggested == Cpus{4, 5, 6});
}

TEST_CASE("numa: each context has the cpu that a runtime binds it to") {
    const TwoNodes sys;
    const NumaMachine machine = read_numa(sys.root, range(0, 8));
    const ContextPlan plan = plan_contexts(machine, 6, {6, 7, 0, 1, 2, 3});
    REQUIRE(plan.places.size() == 6);
    CHECK(plan.places[1].cpu == 7);
    CHECK(plan.places[1].node == 1);
    CHECK(plan.places[2].cpu == 0);
    CHECK(plan.places[2].node == 0);
    CHECK(mentions(plan, "contexts are on other nodes than ib0, mlx5_0: WEFT_CPUS=4-7,0-1"));
    const std::string text = numa_to_text(machine, plan);
    CHECK_THAT(text, Catch::Contains("  contexts 0-1: cpus 6-7, node 1\n"));
    CHECK_THAT(text, Catch::Contains("  contexts 2-5: cpus 0-3, node 0\n"));
    CHECK(plan_contexts(machine, 4, {4, 5, 6, 7}).remedies.empty());
    const Json json = numa_to_json(machine, plan);
    CHECK(json["contexts"][1] == Json{{"context", 1}, {"cpu", 7}, {"node", 1}});
    CHECK(json["nodes"][1]["cpus"] == "4-7");
    CHECK(json["suggested_cpus"] == "4-7,0-1");
    CHECK(json["missing"].is_null());
}

TEST_CASE("numa: cpus that are shared or not allowed are named once") {
    const TwoNodes sys;
    const NumaMachine machine = read_numa(sys.root, range(4, 8));
    const ContextPlan plan = plan_contexts(machine, 6, {4, 9, 3});
    CHECK(plan.places[3].cpu == 4);
    CHECK(mentions(plan, "contexts 0 and 3 are both on cpu 4"));
    CHECK(mentions(plan, "this process can't use cpu 9 of WEFT_CPUS"));
    CHECK(mentions(plan,
                   "this process can't use cpu 3 of WEFT_CPUS, so that no runtime starts: "
                   "name some of 4-7"));
    CHECK(mentions(plan, "6 contexts take turns on 4 cpus"));
    CHECK(plan.remedies.size() == 5);  // And the nodes.
}

TEST_CASE("numa: a machine without nodes in /sys has contexts all the same") {
    const FakeSys sys;
    const NumaMachine machine = read_numa(sys.root, {0, 1});
    CHECK(machine.nodes.empty());
    CHECK_THAT(machine.missing, Catch::Contains("the kernel names no NUMA node"));
    const ContextPlan plan = plan_contexts(machine, 2, {0, 1});
    CHECK(plan.places[1].cpu == 1);
    CHECK(plan.places[1].node == -1);
    CHECK(plan.remedies.empty());
    CHECK_THAT(numa_to_text(machine, plan), Catch::Contains("  contexts 0-1: cpus 0-1\n"));
    CHECK(numa_to_json(machine, plan)["contexts"][0]["node"].is_null());
    // The kernel does not report the cpus either.
    const NumaMachine unknown = read_numa(sys.root + "/none", {});
    const ContextPlan single = plan_contexts(unknown, 0, {});
    CHECK(single.places.size() == 1);
    CHECK(single.suggested.empty());
    CHECK_THAT(numa_to_text(unknown, single), Catch::Contains("on any of cpus unknown"));
}

TEST_CASE("numa: contexts are no more than the quota of the cgroup") {
    const TwoNodes sys;
    const NumaMachine machine = read_numa(sys.root, range(0, 8), 3);
    const ContextPlan plan = plan_contexts(machine, 0, {});
    CHECK(plan.places.size() == 3);
    CHECK(plan.suggested == Cpus{4, 5, 6});
    CHECK(mentions(plan_contexts(machine, 4, {}), "4 contexts take turns on 3 cpus"));
    CHECK(plan_contexts(read_numa(sys.root, range(0, 2), 64), 0, {}).places.size() == 2);
    CHECK(plan_contexts(read_numa(sys.root, {}, 1), 0, {}).places.size() == 1);
}

TEST_CASE("numa: malformed, empty and offline nodes hide no other one") {
    const FakeSys sys;
    sys.write("devices/system/node/online", "0,2-3,5\n");
    sys.node(0, "0-1,0");
    sys.node(1, "2-3");  // Offline.
    sys.node(2, "");     // Memory alone.
    sys.node(3, "5-4");
    sys.write("devices/system/node/node5/numastat", "0\n");
    sys.node(70000, "6");
    sys.write("devices/system/node/nodeX/cpulist", "7\n");
    sys.write("devices/system/node/node/cpulist", "7\n");
    sys.write("devices/system/node/node-1/cpulist", "7\n");
    sys.device("net/eth0", "0");
    sys.device("net/eth1", "1");
    sys.device("net/eth2", "99999999999");
    sys.device("net/eth3", "zero");
    sys.device("net/eth4", "");
    const NumaMachine machine = read_numa(sys.root, range(0, 8));
    REQUIRE(machine.nodes.size() == 4);
    CHECK(machine.nodes[0].cpus == Cpus{0, 1});
    CHECK(machine.nodes[0].devices == std::vector<std::string>{"eth0"});
    for (std::size_t i = 1; i < 4; ++i) {
        CHECK(machine.nodes[i].cpus.empty());
        CHECK(machine.nodes[i].devices.empty());
    }
    CHECK(machine.nodes[3].number == 5);
    CHECK_THAT(numa_to_text(machine, plan_contexts(machine, 1, {})),
               Catch::Contains("  node 2: no cpu\n"));
    // An online list that is malformed hides nothing.
    sys.write("devices/system/node/online", "all\n");
    CHECK(read_numa(sys.root, {}).nodes.size() == 5);
}

TEST_CASE("numa: machines with thousands of cpus, and files without an end, are bounded") {
    const FakeSys sys;
    sys.node(0, "0-4095");
    sys.node(1, cpu_list_text(range(4096, 8192)));
    std::string odd;
    for (int i = 1; i < 8192; i += 2) odd += (odd.empty() ? "" : ",") + std::to_string(i);
    sys.node(2, odd);
    sys.node(3, "0-8191,0-8191");
    sys.node(4, std::string(1 << 20, '1'));
    for (int i = 0; i < 40; ++i) sys.device("net/eth" + std::to_string(i), "1");
    const NumaMachine machine = read_numa(sys.root, range(0, 8192));
    CHECK(machine.nodes[0].cpus.size() == 4096);
    CHECK(machine.nodes[1].allowed.back() == 8191);
    CHECK(machine.nodes[2].cpus.size() == 4096);
    CHECK(machine.nodes[3].cpus.empty());
    CHECK(machine.nodes[4].cpus.empty());
    CHECK(machine.nodes[1].devices.size() == 40);
    const ContextPlan plan = plan_contexts(machine, 0, {});
    CHECK(plan.places.size() == 64);
    CHECK(plan.suggested == range(4096, 4160));
    CHECK_THAT(numa_to_text(machine, plan), Catch::Contains(" and 24 more\n"));
}

TEST_CASE("numa: a list of cpus is written as it is read") {
    for (const char* text : {"", "0", "0-1", "0-3,8", "1,3,5-7,8191"})
        CHECK(cpu_list_text(parse_cpu_list(text)) == text);
}
