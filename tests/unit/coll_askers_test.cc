// For whom a part goes on: those who ask it, one above the other, and who leave, stop, or die.
#include <algorithm>
#include <optional>
#include <vector>

#include "coll/part.h"
#include "support/catch.h"
#include "support/group_rig.h"

using namespace weft;

namespace coll_askers {

using coll::Answer;
using coll::Part;

constexpr Duration orphan = Part::orphan_lasts;
constexpr std::uint32_t outside = 0;
constexpr std::uint32_t grandparent = 1;
constexpr std::uint32_t parent = 2;

// A leaf whose method runs without end.
struct Leaf final : Part::Port {
    Leaf() { part.begin(now()); }
    static TimePoint now() { return TimePoint{} + 1h; }
    static std::shared_ptr<const coll::Plan> plan() {
        auto made = std::make_shared<coll::Plan>();
        const GroupView view =
            GroupView::make("g", 1, {{0, {"sim://a"}}, {1, {"sim://b"}}, {2, {"sim://c"}}}).value();
        made->roster = std::make_shared<coll::Roster>(coll::Roster::Parts{view, {}, 0, false});
        return made;
    }
    static Part::Role role() {
        Part::Role role;
        role.mine = {2, 3};
        return role;
    }
    // That will be told so far at `answer_by`.
    void ask(std::uint32_t question, std::uint32_t asker, Duration answer_by = 1h) {
        part.asked(question, asker, now() + answer_by);
    }
    // How long it goes on if nobody says anything.
    Duration lasts() const { return std::max(part.due() - now(), Duration(0)); }

    void ask(Part&, const Part::Ask&) override {}
    void give_up(Part&, const Part::Ask&, bool) override {}
    void run(Part&) override {}
    void stop_running(Part&) override { is_stopped = true; }
    void reply_to(Part&, std::uint32_t, Answer::Kind) override { ++replies; }
    void refresh(Part&, std::uint32_t, std::uint64_t) override {}
    void tell(Part&) override {}
    void done(Part&) override {}

    int replies = 0;
    bool is_stopped = false;
    Part part{*this, plan(), {1, 1}, role()};
};

TEST_CASE("coll askers: whoever stops is not waited for, whoever dies is, for somebody else") {
    Leaf stopped;
    stopped.ask(1, parent);
    CHECK(stopped.lasts() == 1h);
    stopped.part.desert(parent);
    CHECK(stopped.lasts() == 1h);  // His question is about to go.
    stopped.part.asker_left(1, Leaf::now());
    CHECK(stopped.lasts() == 0s);
    stopped.part.on_time(Leaf::now());
    CHECK(stopped.is_stopped);

    Leaf died;
    died.ask(1, parent);
    died.part.asker_left(1, Leaf::now());
    CHECK(died.lasts() == orphan);
    died.ask(2, grandparent);
    CHECK(died.lasts() == 1h);
    // In whose place nobody comes any more.
    died.part.desert(grandparent);
    died.part.asker_left(2, Leaf::now());
    CHECK(died.lasts() == 0s);
}

TEST_CASE("coll askers: a parent that stops does not end what those above him wait for") {
    SECTION("and who are asking") {
        Leaf leaf;
        leaf.ask(1, parent);
        leaf.ask(2, grandparent, 100ms);
        leaf.part.desert(parent);
        leaf.part.asker_left(1, Leaf::now());
        CHECK(leaf.lasts() == 100ms);
        const TimePoint told = Leaf::now() + 100ms;
        leaf.part.on_time(told);
        CHECK(leaf.replies == 1);
        CHECK(leaf.lasts() == 100ms + orphan);  // He will ask for the rest.
    }
    SECTION("and who have been told so far") {
        Leaf leaf;
        leaf.ask(1, parent);
        leaf.ask(2, grandparent, 0ms);
        leaf.part.on_time(Leaf::now());
        REQUIRE(leaf.replies == 1);
        leaf.part.desert(parent);
        leaf.part.asker_left(1, Leaf::now());
        CHECK(leaf.lasts() == orphan);
        leaf.ask(3, grandparent);
        CHECK(leaf.lasts() == 1h);
    }
    SECTION("and a client outside is above all") {
        Leaf leaf;
        leaf.ask(1, grandparent, 0ms);
        leaf.part.on_time(Leaf::now());
        leaf.ask(2, outside, 0ms);
        leaf.part.on_time(Leaf::now());
        leaf.part.desert(grandparent);
        CHECK(leaf.lasts() == orphan);
        leaf.part.desert(outside);
        CHECK(leaf.lasts() == 0s);
    }
}

TEST_CASE("coll askers: those below one that stops have asked for his sake") {
    SECTION("who were told so far") {
        Leaf leaf;
        leaf.ask(1, parent, 0ms);
        leaf.part.on_time(Leaf::now());
        leaf.part.desert(grandparent);
        CHECK(leaf.lasts() == 0s);
    }
    SECTION("who die afterwards") {
        Leaf leaf;
        leaf.ask(1, parent);
        leaf.ask(2, grandparent);
        leaf.part.desert(grandparent);
        leaf.part.asker_left(2, Leaf::now());
        CHECK(leaf.lasts() == 1h);
        leaf.part.asker_left(1, Leaf::now());
        CHECK(leaf.lasts() == 0s);
    }
}

TEST_CASE("coll askers: who is expected is so once, and not for ever") {
    Leaf leaf;
    for (std::uint32_t question = 1; question <= 3; ++question) leaf.ask(question, parent, 0ms);
    leaf.part.on_time(Leaf::now());
    CHECK(leaf.replies == 3);
    CHECK(leaf.part.askers() == 0);
    CHECK(leaf.part.interested() == 1);
    // One below him, when he is expected no more.
    leaf.ask(4, parent + 1);
    leaf.part.asker_left(4, Leaf::now() + 1s);
    CHECK(leaf.part.interested() == 2);
    leaf.ask(5, parent + 2);
    leaf.part.asker_left(5, Leaf::now() + orphan);
    CHECK(leaf.part.interested() == 2);
    // No more than so many are, whatever they call themselves.
    for (std::uint32_t i = 0; i < 200; ++i) {
        leaf.ask(10 + i, parent - i % 2 + 10 * i);
        leaf.part.asker_left(10 + i, Leaf::now());
    }
    CHECK(leaf.part.interested() <= static_cast<std::size_t>(coll::Part::expected_most));
}

// One rank with a handler that waits, and peers that ask it for one collective.
struct Asked {
    Asked() {
        rig.services[0].hold = true;
        for (int i = 0; i < 2; ++i) peers.push_back(&rig.sim.add("", {}));
        for (Runtime* peer : peers) channels.push_back(peer->connect("sim://s0").value());
    }
    void ask(std::size_t peer, std::uint32_t as, Duration patience) {
        coll::ForwardHeader header;
        header.view = rig.view().digest();
        header.group = method_hash(rig.view().name());
        header.identity = {7, 1};
        header.method = test::tell_method.hash;
        header.last = 1;
        header.asker = as;
        header.began = rig.sim.runtimes[0]->node().collectives.clock_reading();
        header.patience_us = static_cast<std::uint32_t>(patience / 1us);
        const coll::ForwardParts parts{header, {}, {}, {}};
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        channels[peer].call(
            coll::forward_method, bytes, {.timeout = 60s},
            [&](const Status& status, ByteView) { codes.push_back(status.code()); });
        rig.sim.run_for(10ms);
    }
    std::ptrdiff_t count(Code code) const { return std::count(codes.begin(), codes.end(), code); }

    test::GroupRig rig{1};
    std::vector<Runtime*> peers;
    std::vector<Channel> channels;
    std::vector<Code> codes;
};

// Each with another name, told so far at once, and expected then.
TEST_CASE("coll askers: one that claims to be many keeps no place that another needs") {
    Asked asked;
    for (std::uint32_t as = 1; as <= 200; ++as) asked.ask(0, as, 0ms);
    asked.ask(1, 1, 0ms);
    CHECK(asked.count(Code::ok) == 201);
    CHECK(asked.rig.services[0].told.size() == 1);
}

TEST_CASE("coll askers: each peer has at most eight questions open for one collective") {
    Asked asked;
    for (std::uint32_t as = 1; as <= 70; ++as) asked.ask(0, as, 50s);
    CHECK(asked.count(Code::resource_exhausted) == 62);
    for (std::uint32_t as = 1; as <= 8; ++as) asked.ask(1, as, 50s);
    CHECK(asked.codes.size() == 62);
    asked.rig.answer_held();
    REQUIRE(asked.rig.sim.run_until([&] { return asked.codes.size() == 78; }, 10s));
    CHECK(asked.count(Code::ok) == 16);
    CHECK(asked.rig.services[0].told.size() == 1);
}

// Its grandparent has adopted it, and its parent, cut off from him, stops after a while.
TEST_CASE("coll askers: a long handler outlasts a parent that is cut off and gives up") {
    for (const Duration latency : {Duration(10us), Duration(1ms), Duration(3ms)}) {
        INFO(latency / 1us << " us");
        test::GroupRig rig(7);
        sim::Link link;
        link.latency = latency;
        rig.sim.world->set_links(link);
        for (auto& service : rig.services) service.hold = true;
        GroupCallOptions options{.timeout = 100s};
        options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
        std::optional<GroupOutcome> outcome;
        rig.group(0).collective(test::tell_method, BodyWriter::of(as_bytes("x")), options,
                                [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(rig.all_hold());
        rig.sim.world->cut("s0", "s1");
        rig.sim.world->cut("s1", "s0");
        rig.sim.run_for(50s);
        rig.answer_held();
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 100s));
        for (const RankOutcome& one : outcome->ranks) {
            INFO("rank " << one.rank << ": " << one.status.to_string());
            CHECK(one.status.ok() == (one.rank != 1));
        }
        for (const auto& service : rig.services) CHECK(service.told.size() == 1);
    }
}

}  // namespace coll_askers
