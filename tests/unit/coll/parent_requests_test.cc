// The parents that keep a collective running: requests of a parent and of its ancestors that end,
// are cancelled, or die.
#include <algorithm>
#include <optional>
#include <vector>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/stepped_state.h"

using namespace weft;

namespace coll_parent_requests {

using coll::CollectiveState;

constexpr Duration orphan = CollectiveState::orphan_timeout;
constexpr std::uint32_t outside = 0;
constexpr std::uint32_t grandparent = 1;
constexpr std::uint32_t parent = 2;

// A leaf with a method that does not end.
struct Leaf final : test::SteppedState {
    explicit Leaf(bool begins = true) : SteppedState(plan(), role()) {
        if (begins) begin(now());
    }
    static TimePoint now() { return TimePoint{} + 1h; }
    static std::shared_ptr<const coll::Plan> plan() {
        auto made = std::make_shared<coll::Plan>();
        const GroupView view =
            GroupView::make("g", 1, {{0, {"sim://a"}}, {1, {"sim://b"}}, {2, {"sim://c"}}}).value();
        made->rank_order =
            std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, 0, false});
        return made;
    }
    static CollectiveState::Role role() {
        CollectiveState::Role role;
        role.subtree = {2, 3};
        return role;
    }
    // A request that gets a partial reply at `reply_by`.
    void request(std::uint32_t request, std::uint32_t parent, Duration reply_by = 1h) {
        on_request(request, parent, now() + reply_by);
    }
    // How long it runs on without further messages.
    Duration remaining() const { return std::max(state().due() - now(), Duration(0)); }

    void cancel_method() override { is_stopped = true; }
    void reply(const coll::Ready::Reply&) override { ++replies; }

    int replies = 0;
    bool is_stopped = false;
};

TEST_CASE("coll parents: a collective that has not begun does not wait for suspects") {
    Leaf leaf(false);
    CHECK_FALSE(leaf.state().waits_for_suspects());
    leaf.begin(Leaf::now());
    CHECK_FALSE(leaf.state().waits_for_suspects());  // Its method runs.
}

TEST_CASE("coll parents: another parent is expected after a parent dies, not after it cancels") {
    Leaf stopped;
    stopped.request(1, parent);
    CHECK(stopped.remaining() == 1h);
    stopped.on_parent_cancelled(parent);
    CHECK(stopped.remaining() == 1h);  // Its request ends soon.
    stopped.on_request_gone(1, Leaf::now());
    CHECK(stopped.remaining() == 0s);
    stopped.on_timer(Leaf::now());
    CHECK(stopped.is_stopped);

    Leaf died;
    died.request(1, parent);
    died.on_request_gone(1, Leaf::now());
    CHECK(died.remaining() == orphan);
    died.request(2, grandparent);
    CHECK(died.remaining() == 1h);
    // No other parent takes its place.
    died.on_parent_cancelled(grandparent);
    died.on_request_gone(2, Leaf::now());
    CHECK(died.remaining() == 0s);
}

TEST_CASE("coll parents: a parent's cancel does not end what an ancestor waits for") {
    SECTION("with an open request") {
        Leaf leaf;
        leaf.request(1, parent);
        leaf.request(2, grandparent, 100ms);
        leaf.on_parent_cancelled(parent);
        leaf.on_request_gone(1, Leaf::now());
        CHECK(leaf.remaining() == 100ms);
        const TimePoint due = Leaf::now() + 100ms;
        leaf.on_timer(due);
        CHECK(leaf.replies == 1);
        CHECK(leaf.remaining() == 100ms + orphan);  // It will request the rest.
    }
    SECTION("with a partial reply") {
        Leaf leaf;
        leaf.request(1, parent);
        leaf.request(2, grandparent, 0ms);
        leaf.on_timer(Leaf::now());
        REQUIRE(leaf.replies == 1);
        leaf.on_parent_cancelled(parent);
        leaf.on_request_gone(1, Leaf::now());
        CHECK(leaf.remaining() == orphan);
        leaf.request(3, grandparent);
        CHECK(leaf.remaining() == 1h);
    }
    SECTION("a client outside is above all ranks") {
        Leaf leaf;
        leaf.request(1, grandparent, 0ms);
        leaf.on_timer(Leaf::now());
        leaf.request(2, outside, 0ms);
        leaf.on_timer(Leaf::now());
        leaf.on_parent_cancelled(grandparent);
        CHECK(leaf.remaining() == orphan);
        leaf.on_parent_cancelled(outside);
        CHECK(leaf.remaining() == 0s);
    }
}

TEST_CASE("coll parents: a cancel also drops the requests of positions below the parent") {
    SECTION("with a partial reply, before the cancel") {
        Leaf leaf;
        leaf.request(1, parent, 0ms);
        leaf.on_timer(Leaf::now());
        leaf.on_parent_cancelled(grandparent);
        CHECK(leaf.remaining() == 0s);
    }
    SECTION("that die after the cancel") {
        Leaf leaf;
        leaf.request(1, parent);
        leaf.request(2, grandparent);
        leaf.on_parent_cancelled(grandparent);
        leaf.on_request_gone(2, Leaf::now());
        CHECK(leaf.remaining() == 1h);
        leaf.on_request_gone(1, Leaf::now());
        CHECK(leaf.remaining() == 0s);
    }
}

TEST_CASE("coll parents: an expected parent counts once, for a limited time") {
    Leaf leaf;
    for (std::uint32_t request = 1; request <= 3; ++request) leaf.request(request, parent, 0ms);
    leaf.on_timer(Leaf::now());
    CHECK(leaf.replies == 3);
    CHECK(leaf.state().waiting_parents() == 0);
    CHECK(leaf.state().known_parents() == 1);
    // A position below the parent, when the parent is no longer expected.
    leaf.request(4, parent + 1);
    leaf.on_request_gone(4, Leaf::now() + 1s);
    CHECK(leaf.state().known_parents() == 2);
    leaf.request(5, parent + 2);
    leaf.on_request_gone(5, Leaf::now() + orphan);
    CHECK(leaf.state().known_parents() == 2);
    // At most this many are expected, whatever positions they claim.
    for (std::uint32_t i = 0; i < 200; ++i) {
        leaf.request(10 + i, parent - i % 2 + 10 * i);
        leaf.on_request_gone(10 + i, Leaf::now());
    }
    CHECK(leaf.state().known_parents() <=
          static_cast<std::size_t>(coll::CollectiveState::expected_parents_max));
}

// One rank with a handler that waits, and peers that request one collective of it.
struct RequestRig {
    RequestRig() {
        group.services[0].hold = true;
        for (int i = 0; i < 2; ++i) peers.push_back(&group.sim.add("", {}));
        for (Runtime* peer : peers) channels.push_back(peer->connect("sim://s0").value());
    }
    void request(std::size_t peer, std::uint32_t as, Duration progress_interval) {
        coll::ForwardHeader header;
        header.view = group.view().digest();
        header.group = method_hash(group.view().name());
        header.key = {7, 1};
        header.method = test::record_method.hash;
        header.last = 1;
        header.parent = as;
        header.began = impl_of(*group.sim.runtimes[0]).collectives.clock_reading();
        header.progress_interval_us = static_cast<std::uint32_t>(progress_interval / 1us);
        const coll::ForwardParts parts{header, {}, {}, {}};
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        channels[peer].call(
            coll::forward_method, bytes, {.timeout = 60s},
            [&](const Status& status, ByteView) { codes.push_back(status.code()); });
        group.sim.run_for(10ms);
    }
    std::ptrdiff_t count(Code code) const { return std::count(codes.begin(), codes.end(), code); }

    test::GroupRig group{1};
    std::vector<Runtime*> peers;
    std::vector<Channel> channels;
    std::vector<Code> codes;
};

// Each request claims another position, gets a partial reply at once, and is expected to return.
TEST_CASE("coll parents: a peer that claims many positions takes no slot of another peer") {
    RequestRig rig;
    for (std::uint32_t as = 1; as <= 200; ++as) rig.request(0, as, 0ms);
    rig.request(1, 1, 0ms);
    CHECK(rig.count(Code::ok) == 201);
    CHECK(rig.group.services[0].received.size() == 1);
}

TEST_CASE("coll parents: each peer has at most eight open requests for one collective") {
    RequestRig rig;
    for (std::uint32_t as = 1; as <= 70; ++as) rig.request(0, as, 50s);
    CHECK(rig.count(Code::resource_exhausted) == 62);
    for (std::uint32_t as = 1; as <= 8; ++as) rig.request(1, as, 50s);
    CHECK(rig.codes.size() == 62);
    rig.group.reply_held();
    REQUIRE(rig.group.sim.run_until([&] { return rig.codes.size() == 78; }, 10s));
    CHECK(rig.count(Code::ok) == 16);
    CHECK(rig.group.services[0].received.size() == 1);
}

// Its grandparent has adopted it. Its parent, cut off from the grandparent, cancels after a while.
TEST_CASE("coll parents: a long handler outlasts a parent that is cut off and cancels") {
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
        rig.group(0).collective(test::record_method, BodyWriter::of(as_bytes("x")), options,
                                [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(rig.all_hold());
        rig.sim.world->cut("s0", "s1");
        rig.sim.world->cut("s1", "s0");
        rig.sim.run_for(50s);
        rig.reply_held();
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 100s));
        for (const RankOutcome& one : outcome->ranks) {
            INFO("rank " << one.rank << ": " << one.status.to_string());
            CHECK(one.status.ok() == (one.rank != 1));
        }
        for (const auto& service : rig.services) CHECK(service.received.size() == 1);
    }
}

}  // namespace coll_parent_requests
