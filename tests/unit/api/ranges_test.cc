// Arguments out of range: each is refused before any effect, with a text that names the argument,
// its value and the valid values. Calls that return no Status end the program, here a child
// process.
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <weft/group_result.h>
#include <weft/sim.h>
#include <weft/subgroup.h>

#include "support/child.h"
#include "support/group_rig.h"
#include "support/raw_echo.h"

namespace weft::ranges_test {
namespace {

using namespace weft::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

// Standard error of a child process that `mistake` ends by SIGABRT.
std::string sentence_of(const std::function<void()>& mistake) {
    const ChildOutput output = output_of_child([&mistake] {
        mistake();
        return 0;
    });
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("assertion") == output.text.npos);
    return output.text;
}

std::byte memory_of_64[64];

struct Part {
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

Buffer buffer_of_64() { return Buffer::adopt(memory_of_64, nullptr); }

TEST_CASE("a slice beyond its buffer ends the program with a message, also when its end wraps") {
    const Buffer buffer = buffer_of_64();
    CHECK(buffer.slice(0, 64).size() == 64);
    CHECK(buffer.slice(64, 0).size() == 0);
    CHECK(buffer.slice(63, 1).data() == buffer.data() + 63);
    for (const Part& part : std::vector<Part>{
             {0, 65}, {65, 0}, {64, 1}, {1, huge}, {huge, 1}, {huge, huge}, {huge - 63, 64}}) {
        const std::string text = sentence_of([&] { (void)buffer.slice(part.offset, part.bytes); });
        CHECK_THAT(text, StartsWith("weft: Buffer::slice(): " + std::to_string(part.bytes) +
                                    " bytes from offset " + std::to_string(part.offset)) &&
                             Contains("64 bytes"));
    }
    CHECK_THAT(sentence_of([] { (void)Buffer().slice(0, 1); }), Contains("0 bytes"));
}

TEST_CASE("a reference to a part beyond its region ends the program with a message") {
    SimRig rig;
    const Region region = rig.add("server").expose(buffer_of_64(), {}).value();
    CHECK(region.ref(60, 4).offset == 60);
    CHECK(region.ref(64, 0).length == 0);
    for (const Part& part : std::vector<Part>{{0, 65}, {65, 0}, {8, huge - 7}, {huge, 2}}) {
        const std::string text = sentence_of([&] { (void)region.ref(part.offset, part.bytes); });
        CHECK_THAT(text, StartsWith("weft: Region::ref(): " + std::to_string(part.bytes) +
                                    " bytes from offset " + std::to_string(part.offset)));
    }
    CHECK_THAT(sentence_of([] { (void)Region().ref(0, 1); }), Contains("Region::ref()"));
}

TEST_CASE("expose fails with the reason when the memory, the access or the lease is invalid") {
    SimRig rig;
    Runtime& server = rig.add("server");
    const auto refusal = [&](Buffer memory, const ExposeOptions& options) {
        const Result<Region> region = server.expose(std::move(memory), options);
        REQUIRE_FALSE(region.ok());
        CHECK(region.status().code() == Code::invalid_argument);
        return std::string(region.status().text());
    };
    CHECK_THAT(refusal(Buffer(), {}), Contains("0 bytes") && Contains("Runtime::allocate()"));
    CHECK_THAT(refusal(buffer_of_64().slice(64, 0), {}), Contains("0 bytes"));
    CHECK_THAT(refusal(Buffer::adopt(Bytes(memory_of_64, huge), nullptr), {}),
               Contains(std::to_string(huge)));
    CHECK_THAT(refusal(buffer_of_64(), {.access = Access::none}), Contains("access is 0"));
    CHECK_THAT(refusal(buffer_of_64(), {.access = static_cast<Access>(12)}),
               Contains("access is 12") && Contains("read_write"));
    CHECK_THAT(refusal(buffer_of_64(), {.lease = -1ms}), Contains("lease is -1 ms"));
}

TEST_CASE("a get is refused when offset and length of its reference overflow") {
    for (const bool is_checked : {true, false}) {
        SimRig rig(1, {.rma_checked = is_checked});
        Runtime& server = rig.add("server");
        const Region region = server.expose(buffer_of_64(), {.access = Access::read}).value();
        const Channel channel = rig.add("").connect("sim://server").value();
        RegionRef ref = region.ref();
        ref.offset = huge - 7;  // 16 bytes from this offset wrap around: the last 8 are the
                                // region's first.
        ref.length = huge;
        static std::byte local[64];
        Status status;
        bool is_done = false;
        channel.get(ref, 8, Buffer::adopt(Bytes(local, 8), nullptr), {}, [&](const Status& with) {
            status = with;
            is_done = true;
        });
        REQUIRE(rig.run_until([&] { return is_done; }));
        CHECK(status.code() == Code::permission_denied);
        CHECK_THAT(std::string(status.text()), Contains("impossible range"));
    }
}

TEST_CASE("an unknown rank or index ends the program with a message") {
    const GroupView view = GroupView::make("g", 1, {{7, {"sim://a"}}}).value();
    const GroupView other = GroupView::make("h", 2, {{7, {"sim://a"}}}).value();
    CHECK(view.at(0).rank == 7);
    CHECK_THAT(sentence_of([&] { (void)view.at(1); }),
               StartsWith("weft: GroupView::at(): 1 is not below its size of 1"));
    CHECK_THAT(sentence_of([] { (void)GroupView().at(0); }), Contains("size of 0"));
    CHECK_THAT(sentence_of([&] { (void)changes_between(view, other); }),
               StartsWith("weft: changes_between()") && Contains("'g' and 'h'"));
    CHECK_THAT(sentence_of([] { RankSet().add(5, 3); }),
               StartsWith("weft: RankSet::add(): from rank 5 to rank 3"));
    const GroupResult<int> none;
    CHECK_THAT(sentence_of([&] { (void)none[0]; }), Contains("0 is not below its size of 0"));
    GroupRig rig(3);
    const Subgroup some = Subgroup::make(rig.group(-1), {1, 2}).value();
    CHECK_THAT(sentence_of([&] { (void)some.rank_in_group(2); }),
               StartsWith("weft: Subgroup::rank_in_group(): 2 is not below its size of 2"));
}

TEST_CASE("serve fails and serves nothing when it is given no address") {
    SimRig rig;
    Echo service;
    const Status status = rig.add("server").serve(service, std::vector<std::string>());
    CHECK(status.code() == Code::invalid_argument);
    CHECK_THAT(std::string(status.text()), Contains("no address") && Contains("Runtime::add()"));
}

// Calls `to` from its handler, inside the scope of the handler's call.
struct Relays final : Service {
    Channel to;
    CallOptions options;
    Status came;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("test.Relay/Pass"), [this](Call call) {
            auto kept = std::make_shared<Call>(std::move(call));
            to.call(echo_method, {}, options, [this, kept](const Status& status, ByteView) {
                came = status;
                kept->reply({});
            });
        });
    }
};

TEST_CASE("a priority out of range is refused in a later turn, wherever the call is made") {
    Relays relays;
    Pair pair;
    const auto refused = [&](const CallOutcome& outcome) {
        CHECK(outcome.completions == 0);
        REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
        CHECK(outcome.completions == 1);
        CHECK(outcome.status.code() == Code::invalid_argument);
        CHECK(outcome.status.effect() == Effect::none);
        CHECK_THAT(std::string(outcome.status.text()),
                   Contains("CallOptions::priority is 8: expected a number from 0 to 7"));
    };
    CallOutcome here;
    pair.channel.call(echo_method, {}, {.priority = 8}, here.done());
    refused(here);
    CallOutcome elsewhere;
    pair.rig.run_until_idle();
    std::thread([&] {
        pair.channel.call(echo_method, {}, {.priority = 8}, elsewhere.done());
    }).join();
    refused(elsewhere);
    CallOutcome abandoned;
    const OperationId id = pair.channel.call(echo_method, {}, {.priority = 8}, abandoned.done());
    pair.channel.abandon_call(id);
    pair.rig.run_until_idle();
    CHECK(abandoned.completions == 0);
    Runtime& relay = pair.rig.add("relay");
    relays.to = relay.connect("sim://server").value();
    relays.options.priority = 200;
    REQUIRE(relay.add(relays).ok());
    CallOutcome passed;
    const Channel to_relay = pair.client.connect("sim://relay").value();
    to_relay.call(MethodId("test.Relay/Pass"), {}, {}, passed.done());
    REQUIRE(pair.rig.run_until([&] { return passed.completions > 0; }));
    CHECK(passed.status.ok());
    CHECK_THAT(std::string(relays.came.text()), Contains("priority is 200"));
    CHECK(pair.service.handled == 0);
    CallOutcome good;
    pair.channel.call(echo_method, {}, {.priority = 7}, good.done());
    REQUIRE(pair.rig.run_until([&] { return good.completions > 0; }));
    CHECK(good.status.ok());
    relays.to = {};
}

TEST_CASE("a call with a negative timeout expires at once and is not sent") {
    Pair pair;
    CallOutcome outcome;
    pair.channel.call(echo_method, {}, {.timeout = -1ns}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.code() == Code::deadline_exceeded);
    CHECK(outcome.status.effect() == Effect::none);
    CHECK(pair.service.handled == 0);
}

TEST_CASE("a body of an impossible size is refused, on every thread and by a group") {
    GroupRig rig(2);
    const auto writer = [](std::size_t bytes) {
        return BodyWriter{bytes, nullptr, [](void*, std::byte*) { FAIL("it was written"); }};
    };
    const Channel channel = rig.client->connect("sim://s0").value();
    for (const std::size_t bytes : {huge, huge - 255, huge / 2}) {
        CallOutcome here, elsewhere;
        channel.call_with(record_method, writer(bytes), {}, here.done());
        rig.sim.run_until_idle();
        std::thread([&] {
            channel.call_with(record_method, writer(bytes), {}, elsewhere.done());
        }).join();
        REQUIRE(
            rig.sim.run_until([&] { return here.completions > 0 && elsewhere.completions > 0; }));
        CHECK(here.status.code() == Code::invalid_argument);
        CHECK(elsewhere.status.code() == Code::invalid_argument);
        for (const int caller : {-1, 0}) {
            std::optional<GroupOutcome> outcome;
            rig.group(caller).collective(record_method, writer(bytes), {},
                                         [&](GroupOutcome all) { outcome = std::move(all); });
            REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
            CHECK(outcome->status.code() == Code::invalid_argument);
            CHECK_THAT(std::string(outcome->status.text()),
                       Contains(std::to_string(bytes)) && Contains("argument_bytes_max"));
        }
    }
}

// Answers with a body that no memory could hold.
struct Boasts final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(
            record_method,
            [](Call call) {
                call.reply_with({huge, nullptr, [](void*, std::byte*) { FAIL("it was written"); }});
            },
            {.collective = true});
    }
};

TEST_CASE("a reply of an impossible size is refused, for a local and for a remote caller") {
    Boasts service;
    SimRig rig;
    Runtime& server = rig.add("server");
    const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
    REQUIRE(server.add(service).ok());
    REQUIRE(server.join(view, 0).ok());
    for (Runtime* caller : {&server, &rig.add("")}) {
        std::optional<GroupOutcome> outcome;
        caller->group(view).value().collective(record_method, BodyWriter{}, {},
                                               [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(rig.run_until([&] { return outcome.has_value(); }));
        REQUIRE(outcome->ranks.size() == 1);
        const Status& status = outcome->ranks[0].status;
        CHECK(status.code() == Code::resource_exhausted);
        CHECK(status.effect() == Effect::applied);
        CHECK_THAT(std::string(status.text()), Contains(std::to_string(huge)));
    }
}

TEST_CASE("each option of a collective is refused by its name when it is out of range") {
    GroupRig rig(3);
    const Group group = rig.group(0);
    const auto refusal = [&](const GroupCallOptions& options) {
        const GroupOutcome outcome = rig.call(group, "x", options);
        CHECK(outcome.status.code() == Code::invalid_argument);
        CHECK(outcome.status.effect() == Effect::none);
        CHECK(outcome.ranks.empty());
        return std::string(outcome.status.text());
    };
    const auto shaped = [](int shape, int fanout) {
        return GroupCallOptions{.topology = {.shape = static_cast<Topology::Shape>(shape),
                                             .fanout = static_cast<std::uint8_t>(fanout)}};
    };
    CHECK_THAT(refusal({.priority = 8}),
               Contains("GroupCallOptions::priority is 8: expected a number from 0 to 7"));
    CHECK_THAT(refusal({.policy = static_cast<Policy>(3)}), Contains("policy is 3"));
    CHECK_THAT(refusal({.policy = Policy::quorum, .quorum = 4}),
               Contains("quorum is 4") && Contains("take part, 3"));
    CHECK_THAT(refusal(shaped(5, 2)), Contains("topology.shape is 5"));
    CHECK_THAT(refusal(shaped(2, 1)),
               Contains("topology.fanout is 1: expected a number from 2 to 64"));
    CHECK_THAT(refusal(shaped(4, 65)), Contains("topology.fanout is 65"));
    CHECK_THAT(refusal({.reduction = {.operation = static_cast<Reduction::Operation>(7)}}),
               Contains("reduction.operation is 7"));
    CHECK_THAT(refusal({.reduction = {.number = static_cast<Reduction::Number>(3)}}),
               Contains("reduction.number is 3"));
    std::optional<GroupOutcome> met;
    group.all_gather("name", {}, {.priority = 9}, [&](GroupOutcome all) { met = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return met.has_value(); }));
    CHECK_THAT(std::string(met->status.text()), Contains("GroupCallOptions::priority is 9"));
    for (const auto& service : rig.services) CHECK(service.received.empty());
    CHECK(rig.call(group, "x", shaped(1, 0)).status.ok());  // The flat shape ignores the fanout.
}

TEST_CASE("a simulation refuses invalid shares, times, names and options") {
    const auto ends = [](const std::function<void(sim::Simulation&)>& mistake) {
        return sentence_of([&] {
            sim::Simulation simulation(1);
            simulation.add("a", [](Runtime&) { return nullptr; });
            mistake(simulation);
        });
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_THAT(ends([](auto& one) { one.refuse(1.5); }),
               Contains("Simulation::refuse()") && Contains("1.5") && Contains("from 0 to 1"));
    CHECK_THAT(ends([&](auto& one) { one.limit_memory("a", nan); }), Contains("nan"));
    CHECK_THAT(ends([](auto& one) { one.set_links({.loss = -0.1}); }), Contains("Link::loss"));
    CHECK_THAT(ends([](auto& one) { one.set_link("a", "a", {.latency = -1ms}); }),
               Contains("Link::latency is -1 ms"));
    CHECK_THAT(ends([&](auto& one) { one.set_links({.bytes_per_second = nan}); }),
               Contains("Link::bytes_per_second"));
    CHECK_THAT(ends([](auto& one) { one.kill("b"); }),
               Contains("no host has the name 'b'") && Contains("there are: a"));
    const auto nothing = [](Runtime&) { return std::shared_ptr<void>(); };
    CHECK_THAT(ends([&](auto& one) { one.add("a", nothing); }), Contains("is there already"));
    CHECK_THAT(ends([&](auto& one) { one.add("a/b", nothing); }), Contains("'a/b'"));
    CHECK_THAT(ends([&](auto& one) { one.add("b", nothing, {.peers_max = 0}); }),
               Contains("RuntimeOptions::peers_max is 0"));
}

}  // namespace
}  // namespace weft::ranges_test
