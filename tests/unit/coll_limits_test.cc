// What collectives keep: bodies while they run, answers afterwards, and who wants to hear of
// changes.
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

TEST_CASE("coll limits: the bodies that an inner rank keeps are bounded, one of any size alone") {
    RuntimeOptions small;
    small.handler_bytes_max = 16 << 20;  // Half of it is the client's share.
    GroupRig rig(7, nullptr, small);
    for (auto& service : rig.services) service.hold = true;
    const Group group = rig.group(-1);
    constexpr int all = 5;
    std::vector<GroupOutcome> outcomes;
    const auto start = [&](std::size_t bytes) {
        const std::string body(bytes, 'x');
        group.collective(test::tell_method, BodyWriter::of(as_bytes(body)), in_pairs(20s),
                         [&](GroupOutcome one) { outcomes.push_back(std::move(one)); });
        rig.sim.run_for(1s);
    };
    for (int i = 0; i < all; ++i) start(4 << 20);
    // Inner ranks refuse; those below them, who keep nothing, are asked all the same.
    // What rank 0 refused the client asks of the others itself, which has a share of its own.
    CHECK(rig.services[0].told.size() == 2);
    for (const std::uint32_t inner : {1u, 4u}) CHECK(rig.services[inner].told.size() <= 4);
    for (const std::uint32_t leaf : {2u, 3u, 5u, 6u}) CHECK(rig.services[leaf].told.size() == all);
    // Small ones are not counted: nor with one alone that is over the limit.
    for (auto& service : rig.services) service.hold = false;
    CHECK(rig.call(group, "x", in_pairs(5s)).status.ok());
    rig.answer_held();
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
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == 1; }, 60s));
    CHECK(outcomes[0].status.ok());
    // All has been let go of.
    for (const std::size_t bytes : {24 << 20, 8 << 20, 24 << 20}) {
        CHECK(rig.call(group, std::string(bytes, 'x'), in_pairs(20s)).status.ok());
    }
}

// A peer that sends what it likes, each of an origin of its own and without an end.
struct Flood {
    explicit Flood(GroupRig& of) : rig(of) {
        peer = &rig.sim.add("", {});
        channel = peer->connect("sim://s0").value();
    }
    coll::ForwardHeader header() {
        coll::ForwardHeader header;
        header.view = rig.view().digest();
        header.group = method_hash(rig.view().name());
        header.identity = {++last, 0};
        header.method = test::tell_method.hash;
        header.last = 1;
        header.began = rig.sim.runtimes[0]->node().collectives.clock_reading();
        header.patience_us = 2'000'000;
        return header;
    }
    void send(const coll::ForwardParts& parts) {
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        channel->call(coll::forward_method, bytes, {.timeout = no_timeout},
                      [this](const Status& status, ByteView reply) {
                          ++codes[status.code()];
                          if (status.ok()) answer = coll::decode_answer(reply).value();
                      });
    }
    void send(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            send({header(), {}, {}, {}});
            if (i % 512 == 511) rig.sim.run_for(1ms);
        }
        rig.sim.run_for(10ms);
    }
    // Its connection ends, and it does not come back.
    void leave() {
        channel.reset();
        rig.sim.run_for(20s);
    }

    GroupRig& rig;
    Runtime* peer = nullptr;
    std::optional<Channel> channel;
    std::map<Code, std::size_t> codes;
    coll::Answer answer;
    std::uint64_t last = 0;
};

TEST_CASE("coll limits: a peer that begins collectives without end keeps no others out") {
    GroupRig rig(2);
    const Group group = rig.group(-1);
    Flood flood(rig);
    flood.send(40'000);
    // It loses its own oldest, and what it began before these.
    CHECK(flood.codes[Code::ok] == 40'000);
    CHECK(rig.sim.runtimes[0]->node().collectives.known() <= 8192);
    CHECK(rig.call(group, "x").status.ok());
    SECTION("nor with others, as long as they are there") {
        std::vector<std::unique_ptr<Flood>> floods;
        for (std::uint64_t i = 1; i <= 4; ++i) {
            floods.push_back(std::make_unique<Flood>(rig));
            floods.back()->last = i << 32;
            floods.back()->send(9000);
        }
        CHECK(rig.call(group, "x").status.ok());
    }
    SECTION("nor once it has left") {
        flood.leave();
        Flood next(rig);
        next.last = std::uint64_t{1} << 40;
        next.send(40'000);
        CHECK(rig.call(group, "x").status.ok());
    }
    for (const auto& service : rig.services) {
        CHECK(std::count(service.told.begin(), service.told.end(), "x") == 2);
    }
}

TEST_CASE("coll limits: a peer has a share of the collectives that run at a rank") {
    GroupRig rig(2);
    rig.services[0].hold = true;
    // Each is told so far at once, and asks no more.
    Flood flood(rig);
    for (int i = 0; i < 2000; ++i) {
        coll::ForwardHeader header = flood.header();
        header.patience_us = 0;
        flood.send({header, {}, {}, {}});
        if (i % 512 == 511) rig.sim.run_for(1ms);
    }
    rig.sim.run_for(10ms);
    CHECK(flood.codes[Code::ok] == coll::Shares::running_most);
    CHECK(flood.codes[Code::resource_exhausted] == 2000 - coll::Shares::running_most);
    rig.services[0].hold = false;
    CHECK(rig.call(rig.group(-1), "x").status.ok());
    rig.services[0].held.clear();
}

TEST_CASE("coll limits: a method takes its share until it has answered, whatever ends before") {
    GroupRig rig(2);
    auto& service = rig.services[0];
    service.hold = true;
    Flood flood(rig);
    const auto send = [&](std::size_t count) {
        flood.codes.clear();
        for (std::size_t i = 0; i < count; ++i) {
            coll::ForwardHeader header = flood.header();
            header.lasts_ns = Duration(60ms).count();
            flood.send({header, {}, {}, {}});
            if (i % 512 == 511) rig.sim.run_for(1ms);
        }
        // Past their deadline: each was told so.
        rig.sim.run_for(200ms);
    };
    send(900);
    CHECK(flood.codes[Code::ok] == 900);
    CHECK(rig.sim.runtimes[0]->node().collectives.running() == 0);
    CHECK(service.was_cancelled());
    send(900);
    CHECK(service.held.size() == coll::Shares::running_most);
    CHECK(flood.codes[Code::resource_exhausted] == 1800 - coll::Shares::running_most);
    send(1);
    CHECK(flood.codes[Code::resource_exhausted] == 1);
    service.held.resize(600);
    send(900);
    CHECK(service.held.size() == coll::Shares::running_most);
    // Those that are answered give back theirs once.
    service.hold = false;
    service.held.clear();
    rig.sim.run_for(1ms);
    send(900);
    CHECK(flood.codes[Code::ok] == 900);
    service.hold = true;
    send(2000);
    CHECK(service.held.size() == coll::Shares::running_most);
    CHECK(rig.call(rig.group(-1), "x", in_pairs(1s)).ranks.size() == 2);
    service.held.clear();
}

TEST_CASE("coll limits: members that one peer names take a share of what a rank connects to") {
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
    CHECK(refused == named - coll::Shares::strangers_most);
    // They are given back.
    CHECK(rig.sim.runtimes[0]
              ->node()
              .collectives.place_for_stranger(coll::AskerId(1, 1))
              .has_value());
}

// This rank, and so many others.
std::vector<std::byte> names_of(std::uint32_t others, const std::string& address) {
    std::vector<Member> members{{0, {"sim://s0"}, 0, false}};
    for (std::uint32_t i = 1; i <= others; ++i) {
        members.push_back({i, {address + std::to_string(i)}, 0, false});
    }
    std::vector<const Member*> all;
    for (const Member& member : members) all.push_back(&member);
    return coll::encode_members(all);
}

// A header of one of a rank's clients, answered so far at once.
coll::ForwardHeader header_of(Flood& flood, std::uint16_t client) {
    coll::ForwardHeader header = flood.header();
    header.asker = 1;
    header.client = client;
    header.patience_us = 0;
    return header;
}

TEST_CASE("coll limits: members named by peers that have gone leave their places to others") {
    GroupRig rig(1);
    const test::RawPeer silent(rig.sim, "silent");
    coll::Engine& engine = rig.sim.runtimes[0]->node().collectives;
    std::vector<std::unique_ptr<Flood>> floods;
    for (std::uint64_t i = 1; i <= 2; ++i) {
        floods.push_back(std::make_unique<Flood>(rig));
        floods.back()->last = i << 32;
        for (const std::uint16_t client : {1, 2}) {
            coll::ForwardHeader header = header_of(*floods.back(), client);
            header.tree.shape = coll::Shape::flat;
            header.last = coll::Shares::strangers_most + 1;
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
    REQUIRE_FALSE(engine.place_for_stranger(coll::AskerId{9, 9}).has_value());
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

TEST_CASE("coll limits: requests kept for peers that have gone leave their bytes to others") {
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

TEST_CASE("coll limits: a turn asks few members when a peer names thousands that fail at once") {
    GroupRig rig(1);
    const coll::LaterAsks& asks = rig.sim.runtimes[0]->node().collectives.later_asks();
    Flood flood(rig);
    constexpr std::uint32_t named = 4000;
    const std::vector<std::byte> names = names_of(named, "tcp://127.0.0.1:");
    for (const coll::Shape shape : {coll::Shape::k_ary, coll::Shape::greedy}) {
        const std::uint64_t before = asks.walked();
        coll::ForwardHeader header = flood.header();
        header.tree.shape = shape;
        header.last = named + 1;
        flood.answer = {};
        flood.send({header, {}, names, {}});
        REQUIRE(rig.sim.run_until([&] { return !flood.answer.outcomes.empty(); }));
        // Each is asked, and its failure concluded.
        CHECK(asks.walked() - before == 2 * named);
        CHECK(flood.answer.outcomes.size() == named);
        for (const coll::Outcome& one : flood.answer.outcomes) {
            CHECK_FALSE(one.status.ok());
            CHECK(one.status.effect() == Effect::none);
        }
    }
    CHECK(asks.most_in_turn() <= coll::LaterAsks::turn_most);
}

TEST_CASE("coll limits: members above a peer's share are refused with their subtrees, unwalked") {
    GroupRig rig(1);
    Flood flood(rig);
    constexpr std::uint32_t named = 4000;
    coll::ForwardHeader header = flood.header();
    header.tree = {coll::Shape::k_ary, 64, 20};
    header.last = named + 1;
    coll::Engine& engine = rig.sim.runtimes[0]->node().collectives;
    std::vector<coll::Shares::Place> taken;  // By others: all that there are.
    for (std::uint64_t other = 1; other <= 4; ++other) {
        while (auto place = engine.place_for_stranger(coll::AskerId{other, other})) {
            taken.push_back(*std::move(place));
        }
    }
    CHECK(taken.size() == coll::Shares::strangers_all);
    flood.send({header, {}, names_of(named, "sim://missing-"), {}});
    REQUIRE(rig.sim.run_until([&] { return flood.codes[Code::ok] == 1; }));
    CHECK(flood.answer.outcomes.size() == named);
    for (const coll::Outcome& one : flood.answer.outcomes) {
        CHECK(one.status.code() == Code::resource_exhausted);
        CHECK(one.status.effect() == Effect::none);
    }
    CHECK(engine.later_asks().walked() == 2 * 64);
}

TEST_CASE("coll limits: a list of members or ranges is refused by its count, before it is read") {
    GroupRig rig(3);
    Flood flood(rig);
    const auto code_of = [&](std::uint32_t positions, std::uint32_t ranges, std::size_t bytes) {
        coll::ForwardHeader header = flood.header();
        header.last = positions;
        flood.codes.clear();
        // None of it can be read.
        const std::vector<RankSet::Range> some(ranges, {1, 0});
        flood.send({header, some, std::vector<std::byte>(bytes), {}});
        REQUIRE(rig.sim.run_until([&] { return !flood.codes.empty(); }));
        return flood.codes.begin()->first;
    };
    const auto most = static_cast<std::uint32_t>(coll::named_most(rig.view()));
    CHECK(most == 4096 + 4 * 3);
    CHECK(code_of(most, 0, 100) == Code::invalid_argument);
    CHECK(code_of(most + 1, 0, 100) == Code::resource_exhausted);
    CHECK(code_of(2, 0, coll::named_bytes_most(2)) == Code::invalid_argument);
    CHECK(code_of(2, 0, coll::named_bytes_most(2) + 1) == Code::resource_exhausted);
    CHECK(code_of(1, 4, 0) == Code::invalid_argument);
    CHECK(rig.services[0].told.empty());
}

TEST_CASE("coll limits: who hears of changes may hold the group, and no runtime is left of it") {
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
