// What collectives keep: bodies while they run, replies afterwards, and the listeners of changes.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/raw_peer.h"

using namespace weft;
using test::GroupRig;

namespace coll_limits {

GroupCallOptions in_pairs(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

TEST_CASE("coll limits: the bodies an inner rank keeps are bounded, but one of any size fits") {
    RuntimeOptions small;
    small.handler_bytes_max = 16 << 20;  // Half of this is the client's share.
    GroupRig rig(7, nullptr, small);
    for (auto& service : rig.services) service.hold = true;
    const Group group = rig.group(-1);
    constexpr int all = 5;
    std::vector<GroupOutcome> outcomes;
    const auto start = [&](std::size_t bytes) {
        const std::string body(bytes, 'x');
        group.collective(test::record_method, BodyWriter::of(as_bytes(body)), in_pairs(20s),
                         [&](GroupOutcome one) { outcomes.push_back(std::move(one)); });
        rig.sim.run_for(1s);
    };
    for (int i = 0; i < all; ++i) start(4 << 20);
    // Inner ranks refuse; the leaves below them keep nothing and are contacted nevertheless. The
    // client itself contacts the ranks below rank 0 after its refusal; they count for another peer.
    CHECK(rig.services[0].received.size() == 2);
    for (const std::uint32_t inner : {1u, 4u}) CHECK(rig.services[inner].received.size() <= 4);
    for (const std::uint32_t leaf : {2u, 3u, 5u, 6u})
        CHECK(rig.services[leaf].received.size() == all);
    // Small bodies are not counted, also while a single body above the limit is kept.
    for (auto& service : rig.services) service.hold = false;
    CHECK(rig.call(group, "x", in_pairs(5s)).status.ok());
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == all; }, 60s));
    for (const GroupOutcome& outcome : outcomes) {
        for (const RankOutcome& one : outcome.ranks) {
            INFO("rank " << one.rank << ": " << one.status.to_string());
            CHECK((one.status.ok() || one.status.code() == Code::resource_exhausted));
            CHECK((one.status.ok() || one.status.effect() == Effect::none));
        }
    }
    outcomes.clear();
    for (auto& service : rig.services) service.hold = true;
    start(24 << 20);
    for (auto& service : rig.services) service.hold = false;
    CHECK(rig.call(group, "x", in_pairs(5s)).status.ok());
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == 1; }, 60s));
    CHECK(outcomes[0].status.ok());
    // All bodies have been freed.
    for (const std::size_t bytes : {24 << 20, 8 << 20, 24 << 20}) {
        CHECK(rig.call(group, std::string(bytes, 'x'), in_pairs(20s)).status.ok());
    }
}

// A hostile peer: each request has an origin of its own, and no timeout.
struct Flood {
    explicit Flood(GroupRig& of) : rig(of) {
        peer = &rig.sim.add("", {});
        channel = peer->connect("sim://s0").value();
    }
    coll::ForwardHeader header() {
        coll::ForwardHeader header;
        header.view = rig.view().digest();
        header.group = method_hash(rig.view().name());
        header.key = {++last, 0};
        header.method = test::record_method.hash;
        header.last = 1;
        header.began = impl_of(*rig.sim.runtimes[0]).collectives.clock_reading();
        header.progress_interval_us = 2'000'000;
        return header;
    }
    void send(const coll::ForwardParts& parts) {
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        channel->call(coll::forward_method, bytes, {.timeout = no_timeout},
                      [this](const Status& status, ByteView reply) {
                          ++codes[status.code()];
                          if (status.ok()) answer = coll::decode_subtree_reply(reply).value();
                      });
    }
    void send(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            send({header(), {}, {}, {}});
            if (i % 512 == 511) rig.sim.run_for(1ms);
        }
        rig.sim.run_for(10ms);
    }
    // Disconnects for good.
    void leave() {
        channel.reset();
        rig.sim.run_for(20s);
    }

    GroupRig& rig;
    Runtime* peer = nullptr;
    std::optional<Channel> channel;
    std::map<Code, std::size_t> codes;
    coll::SubtreeReply answer;
    std::uint64_t last = 0;
};

TEST_CASE("coll limits: a peer that begins collectives without end excludes no other peer") {
    GroupRig rig(2);
    const Group group = rig.group(-1);
    Flood flood(rig);
    flood.send(40'000);
    // The peer loses its own oldest collectives, and all that it began before those.
    CHECK(flood.codes[Code::ok] == 40'000);
    CHECK(impl_of(*rig.sim.runtimes[0]).collectives.known() <= 8192);
    CHECK(rig.call(group, "x").status.ok());
    SECTION("nor together with other such peers") {
        std::vector<std::unique_ptr<Flood>> floods;
        for (std::uint64_t i = 1; i <= 4; ++i) {
            floods.push_back(std::make_unique<Flood>(rig));
            floods.back()->last = i << 32;
            floods.back()->send(9000);
        }
        CHECK(rig.call(group, "x").status.ok());
    }
    SECTION("nor after it has disconnected") {
        flood.leave();
        Flood next(rig);
        next.last = std::uint64_t{1} << 40;
        next.send(40'000);
        CHECK(rig.call(group, "x").status.ok());
    }
    for (const auto& service : rig.services) {
        CHECK(std::count(service.received.begin(), service.received.end(), "x") == 2);
    }
}

TEST_CASE("coll limits: a peer has a share of the collectives that run on a rank") {
    GroupRig rig(2);
    rig.services[0].hold = true;
    // Each gets a partial reply at once and is never requested again.
    Flood flood(rig);
    for (int i = 0; i < 2000; ++i) {
        coll::ForwardHeader header = flood.header();
        header.progress_interval_us = 0;
        flood.send({header, {}, {}, {}});
        if (i % 512 == 511) rig.sim.run_for(1ms);
    }
    rig.sim.run_for(10ms);
    CHECK(flood.codes[Code::ok] == coll::ResourceQuota::running_per_client_max);
    CHECK(flood.codes[Code::resource_exhausted] ==
          2000 - coll::ResourceQuota::running_per_client_max);
    rig.services[0].hold = false;
    CHECK(rig.call(rig.group(-1), "x").status.ok());
    rig.services[0].held.clear();
}

TEST_CASE("coll limits: a method counts for its client until it replies, also past its deadline") {
    GroupRig rig(2);
    auto& service = rig.services[0];
    service.hold = true;
    Flood flood(rig);
    const auto send = [&](std::size_t count) {
        flood.codes.clear();
        for (std::size_t i = 0; i < count; ++i) {
            coll::ForwardHeader header = flood.header();
            header.time_limit_ns = Duration(60ms).count();
            flood.send({header, {}, {}, {}});
            if (i % 512 == 511) rig.sim.run_for(1ms);
        }
        // After their deadlines: each has its reply.
        rig.sim.run_for(200ms);
    };
    send(900);
    CHECK(flood.codes[Code::ok] == 900);
    CHECK(impl_of(*rig.sim.runtimes[0]).collectives.running() == 0);
    CHECK(service.was_cancelled());
    send(900);
    CHECK(service.held.size() == coll::ResourceQuota::running_per_client_max);
    CHECK(flood.codes[Code::resource_exhausted] ==
          1800 - coll::ResourceQuota::running_per_client_max);
    send(1);
    CHECK(flood.codes[Code::resource_exhausted] == 1);
    service.held.resize(600);
    send(900);
    CHECK(service.held.size() == coll::ResourceQuota::running_per_client_max);
    // A method that has replied releases its share once.
    service.hold = false;
    service.held.clear();
    rig.sim.run_for(1ms);
    send(900);
    CHECK(flood.codes[Code::ok] == 900);
    service.hold = true;
    send(2000);
    CHECK(service.held.size() == coll::ResourceQuota::running_per_client_max);
    CHECK(rig.call(rig.group(-1), "x", in_pairs(1s)).ranks.size() == 2);
    service.held.clear();
}

TEST_CASE("coll limits: members named by one peer take a share of a rank's connections") {
    GroupRig rig(1);
    Flood flood(rig);
    constexpr std::uint32_t named = 600;
    std::vector<Member> members{{0, {"sim://s0"}, 0, false}};
    for (std::uint32_t i = 1; i <= named; ++i) {
        members.push_back({i, {"sim://missing-" + std::to_string(i)}, 0, false});
    }
    std::vector<const Member*> all;
    for (const Member& member : members) all.push_back(&member);
    const std::vector<std::byte> bytes = coll::encode_members(all);
    coll::ForwardHeader header = flood.header();
    header.tree.shape = coll::Shape::flat;
    header.last = named + 1;
    flood.send({header, {}, bytes, {}});
    REQUIRE(rig.sim.run_until([&] { return flood.codes[Code::ok] == 1; }));
    const auto refused = std::count_if(flood.answer.outcomes.begin(), flood.answer.outcomes.end(),
                                       [](const coll::Outcome& one) {
                                           return one.status.code() == Code::resource_exhausted &&
                                                  one.status.effect() == Effect::none;
                                       });
    CHECK(refused == named - coll::ResourceQuota::nonmembers_per_client_max);
    // The slots are released.
    CHECK(impl_of(*rig.sim.runtimes[0])
              .collectives.host()
              .quota()
              ->take(coll::SessionKey(1, 1))
              .has_value());
}

// This rank and `others` more members.
std::vector<std::byte> names_of(std::uint32_t others, const std::string& address) {
    std::vector<Member> members{{0, {"sim://s0"}, 0, false}};
    for (std::uint32_t i = 1; i <= others; ++i) {
        members.push_back({i, {address + std::to_string(i)}, 0, false});
    }
    std::vector<const Member*> all;
    for (const Member& member : members) all.push_back(&member);
    return coll::encode_members(all);
}

// A header that claims to be of a rank's client; it gets a partial reply at once.
coll::ForwardHeader header_of(Flood& flood, std::uint16_t client) {
    coll::ForwardHeader header = flood.header();
    header.parent = 1;
    header.client = client;
    header.progress_interval_us = 0;
    return header;
}

TEST_CASE("coll limits: members named by disconnected peers leave their slots to others") {
    GroupRig rig(1);
    const test::RawPeer silent(rig.sim, "silent");
    coll::Engine& engine = impl_of(*rig.sim.runtimes[0]).collectives;
    std::vector<std::unique_ptr<Flood>> floods;
    for (std::uint64_t i = 1; i <= 2; ++i) {
        floods.push_back(std::make_unique<Flood>(rig));
        floods.back()->last = i << 32;
        for (const std::uint16_t client : {1, 2}) {
            coll::ForwardHeader header = header_of(*floods.back(), client);
            header.tree.shape = coll::Shape::flat;
            header.last = coll::ResourceQuota::nonmembers_per_client_max + 1;
            std::vector<Member> members{{0, {"sim://s0"}, 0, false}};
            std::vector<const Member*> all;
            for (std::uint32_t rank = 1; rank < header.last; ++rank) {
                members.push_back({rank, {"sim://silent"}, 0, false});
            }
            for (const Member& member : members) all.push_back(&member);
            floods.back()->send({header, {}, coll::encode_members(all), {}});
        }
    }
    rig.sim.run_for(20ms);
    REQUIRE_FALSE(engine.host().quota()->take(coll::SessionKey{9, 9}).has_value());
    for (auto& flood : floods) flood->channel.reset();
    rig.sim.run_for(20ms);
    Flood honest(rig);
    coll::ForwardHeader header = honest.header();
    header.last = 2;
    honest.send({header, {}, names_of(1, "sim://missing-"), {}});
    REQUIRE(rig.sim.run_until([&] { return honest.codes[Code::ok] == 1; }));
    REQUIRE(honest.answer.outcomes.size() == 1);
    CHECK(honest.answer.outcomes[0].status.code() == Code::unavailable);
}

TEST_CASE("coll limits: requests kept for disconnected peers leave their bytes to others") {
    RuntimeOptions small;
    small.handler_bytes_max = 4 << 20;
    GroupRig rig(1, nullptr, small);
    const test::RawPeer silent(rig.sim, "silent1");
    const std::vector<std::byte> names = names_of(1, "sim://silent");
    const std::vector<std::byte> body(1 << 20);
    std::vector<std::unique_ptr<Flood>> floods;
    const auto send = [&](std::uint16_t client) {
        coll::ForwardHeader header = header_of(*floods.back(), client);
        header.last = 2;
        floods.back()->send({header, {}, names, body});
        rig.sim.run_for(20ms);
    };
    for (std::uint64_t i = 1; i <= 2; ++i) {
        floods.push_back(std::make_unique<Flood>(rig));
        floods.back()->last = i << 32;
        for (const std::uint16_t client : {1, 2}) send(client);
    }
    CHECK(floods[0]->codes[Code::ok] == 2);
    CHECK(floods[1]->codes[Code::ok] == 1);
    CHECK(floods[1]->codes[Code::resource_exhausted] == 1);
    for (auto& flood : floods) flood->channel.reset();
    rig.sim.run_for(100ms);
    floods.push_back(std::make_unique<Flood>(rig));
    floods.back()->last = std::uint64_t{3} << 32;
    send(1);
    CHECK(floods[2]->codes[Code::ok] == 1);
}

TEST_CASE("coll limits: a turn contacts few members when thousands of named ones fail at once") {
    GroupRig rig(1);
    const coll::DeferredRequests& requests =
        impl_of(*rig.sim.runtimes[0]).collectives.host().deferred_requests();
    Flood flood(rig);
    constexpr std::uint32_t named = 4000;
    const std::vector<std::byte> names = names_of(named, "tcp://127.0.0.1:");
    for (const coll::Shape shape : {coll::Shape::k_ary, coll::Shape::greedy}) {
        const std::uint64_t before = requests.processed();
        coll::ForwardHeader header = flood.header();
        header.tree.shape = shape;
        header.last = named + 1;
        flood.answer = {};
        flood.send({header, {}, names, {}});
        REQUIRE(rig.sim.run_until([&] { return !flood.answer.outcomes.empty(); }));
        // Each member is contacted, and its failure processed.
        CHECK(requests.processed() - before == 2 * named);
        CHECK(flood.answer.outcomes.size() == named);
        for (const coll::Outcome& one : flood.answer.outcomes) {
            CHECK_FALSE(one.status.ok());
            CHECK(one.status.effect() == Effect::none);
        }
    }
    CHECK(requests.max_in_turn() <= coll::DeferredRequests::per_turn_max);
}

TEST_CASE("coll limits: members above a peer's share are refused with their whole subtrees") {
    GroupRig rig(1);
    Flood flood(rig);
    constexpr std::uint32_t named = 4000;
    coll::ForwardHeader header = flood.header();
    header.tree = {coll::Shape::k_ary, 64, 20};
    header.last = named + 1;
    coll::Engine& engine = impl_of(*rig.sim.runtimes[0]).collectives;
    std::vector<coll::ResourceQuota::NonmemberSlot> taken;  // By other peers: all slots.
    for (std::uint64_t other = 1; other <= 4; ++other) {
        while (auto place = engine.host().quota()->take(coll::SessionKey{other, other})) {
            taken.push_back(*std::move(place));
        }
    }
    CHECK(taken.size() == coll::ResourceQuota::nonmembers_max);
    flood.send({header, {}, names_of(named, "sim://missing-"), {}});
    REQUIRE(rig.sim.run_until([&] { return flood.codes[Code::ok] == 1; }));
    CHECK(flood.answer.outcomes.size() == named);
    for (const coll::Outcome& one : flood.answer.outcomes) {
        CHECK(one.status.code() == Code::resource_exhausted);
        CHECK(one.status.effect() == Effect::none);
    }
    CHECK(engine.host().deferred_requests().processed() == 2 * 64);
}

TEST_CASE("coll limits: a list of members or ranges above its limit is refused undecoded") {
    GroupRig rig(3);
    Flood flood(rig);
    const auto code_of = [&](std::uint32_t positions, std::uint32_t ranges, std::size_t bytes) {
        coll::ForwardHeader header = flood.header();
        header.last = positions;
        flood.codes.clear();
        // Neither list can be decoded.
        const std::vector<RankSet::Range> some(ranges, {1, 0});
        flood.send({header, some, std::vector<std::byte>(bytes), {}});
        REQUIRE(rig.sim.run_until([&] { return !flood.codes.empty(); }));
        return flood.codes.begin()->first;
    };
    const auto most = static_cast<std::uint32_t>(coll::named_max(rig.view()));
    CHECK(most == 4096 + 4 * 3);
    CHECK(code_of(most, 0, 100) == Code::invalid_argument);
    CHECK(code_of(most + 1, 0, 100) == Code::resource_exhausted);
    CHECK(code_of(2, 0, coll::named_bytes_max(2)) == Code::invalid_argument);
    CHECK(code_of(2, 0, coll::named_bytes_max(2) + 1) == Code::resource_exhausted);
    CHECK(code_of(1, 4, 0) == Code::invalid_argument);
    CHECK(rig.services[0].received.empty());
}

TEST_CASE("coll limits: a change listener that holds its group keeps no runtime alive") {
    for (const bool joined : {true, false}) {
        INFO((joined ? "a member's" : "a client's"));
        const auto held = std::make_shared<int>(1);
        {
            GroupRig rig(2);
            const Group group = rig.group(joined ? 0 : -1);
            group.on_change([group, held](const MemberChange&) { (void)group.view(); });
            rig.sim.run_for(10ms);
        }
        CHECK(held.use_count() == 1);
    }
}

}  // namespace coll_limits
