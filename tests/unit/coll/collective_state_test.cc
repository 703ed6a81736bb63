// States of collectives, run against one another in virtual time: every tree, every kind of
// position, every moment of a fault.
#include <random>

#include "support/coll_checks.h"
#include "support/seed.h"

using namespace weft;

namespace coll_state {

TEST_CASE("collective state: without faults, requests are the tree's and each rank runs once") {
    for (std::uint32_t n = 1; n <= 33; ++n) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            const auto plan = plan_of(n, form, merging);
            for (const bool in_place : {false, true}) {
                CollNet::Setup setup{plan, n, outside};
                setup.in_place = in_place;
                CollNet net(setup);
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, merging, outside));
                REQUIRE(validate(net, {{}, 100ms}, began) == "");
                REQUIRE(validate_requests(net) == "");
                REQUIRE(net.last_work - began < 100ms);
                std::set<std::pair<std::uint32_t, std::uint32_t>> expected, sent;
                edges(net.origin_rank(), {outside ? 0u : 1u, n}, *plan, expected);
                for (const CollNet::Sent& one : net.sent) {
                    REQUIRE(one.kind == coll::RequestKind::all);
                    REQUIRE(sent.emplace(one.from, one.to).second);
                }
                REQUIRE(sent == expected);
            }
        });
    }
}

static void strike_once(std::uint32_t n, const Form& form, Merging merging, bool outside,
                        const Fault& fault) {
    CollNet net({plan_of(n, form, merging), n, outside});
    net.ranks[fault.position].fault = fault;
    const TimePoint began = net.now();
    net.run();
    if (net.ranks[fault.position].fault) return;  // A leaf forwards nothing.
    const bool hangs = fault.kind == Kind::hangs;
    std::string wrong = validate(net, {{fault.position}, fault.lasts + 1s}, began);
    if (wrong.empty()) wrong = validate_requests(net);
    if (wrong.empty()) {
        const Status& its = net.reported[fault.position].status;
        const bool never_came = fault.moment == Moment::start &&
                                (fault.kind == Kind::dies || fault.kind == Kind::restarts);
        if (hangs != its.ok()) wrong = "the struck rank has " + its.to_string();
        if (never_came && its.effect() != Effect::none)
            wrong = "effect of a rank that was not running";
        const bool came = !hangs && !never_came && its.effect() != Effect::unknown;
        if (came) wrong = "effect of a rank that may have run: " + its.to_string();
    }
    INFO(describe(n, form, merging, outside) << describe(fault));
    REQUIRE(wrong == "");
}

// Sanitizers take twenty times as long: a part of the numbers and seeds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t step_above_4 = 7;
constexpr std::uint64_t seeds_of_several = 600;
#else
constexpr std::uint32_t step_above_4 = 1;
constexpr std::uint64_t seeds_of_several = 6000;
#endif

TEST_CASE("collective state: a fault of one rank leaves all others OK, and its own report true") {
    static const std::vector<std::pair<Kind, Duration>> kinds = {{Kind::dies, 0ns},
                                                                 {Kind::vanishes, 5s},
                                                                 {Kind::hangs, 600ms},
                                                                 {Kind::hangs, 4s},
                                                                 {Kind::restarts, 0ns}};
    for (std::uint32_t n = 1; n <= 33; n += n < 5 ? 1 : step_above_4) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (const std::uint32_t place : places(n, *plan_of(n, form, merging), outside)) {
                for (const Moment moment :
                     {Moment::start, Moment::forwarding, Moment::forwarded, Moment::ran}) {
                    for (const auto& [kind, lasts] : kinds) {
                        const auto fault = Fault{place, moment, kind, lasts};
                        strike_once(n, form, merging, outside, fault);
                    }
                }
            }
        });
    }
}

TEST_CASE("collective state: several faults at once, also below one another, have true outcomes") {
    for (std::uint64_t index = 0; index < seeds_of_several; ++index) {
        const std::uint64_t seed = test::seed_of(index);
        std::mt19937_64 random(seed);
        const auto below = [&](std::uint64_t end) { return random() % end; };
        const auto n = static_cast<std::uint32_t>(2 + below(32));
        const Form& form = forms[below(forms.size())];
        const Merging merging = mergings[below(mergings.size())];
        CollNet::Setup setup{plan_of(n, form, merging), n, below(2) == 0};
        setup.latency = std::chrono::microseconds(50 + below(40'000));
        setup.in_place = below(2) == 0;
        CollNet net(setup);
        Expected expected;
        std::string all;
        for (std::uint64_t faults = 1 + below(6); faults > 0; --faults) {
            Fault fault{static_cast<std::uint32_t>(below(n)), static_cast<Moment>(below(4)),
                        static_cast<Kind>(below(4)), 0ns};
            if (fault.position == 0 && !setup.outside) continue;
            if (fault.kind == Kind::vanishes) fault.lasts = 1ms * below(20'000);
            if (fault.kind == Kind::hangs) fault.lasts = 1ms * below(10'000);
            net.ranks[fault.position].fault = fault;
            expected.struck.insert(fault.position);
            all += describe(fault);
        }
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            if (below(4) == 0) net.ranks[rank].runs_for = 1ms * below(5'000);
            if (below(16) == 0) {
                net.ranks[rank].fails = true;
                expected.struck.insert(rank);
            }
            if (below(8) == 0) net.ranks[rank].epoch = below(4);  // 0: not in the group.
            if (net.ranks[rank].epoch == 0) expected.struck.insert(rank);
        }
        const TimePoint began = net.now();
        net.run();
        INFO("TEST_SEED=" << seed << " " << describe(n, form, merging, setup.outside) << all);
        REQUIRE(validate(net, expected, began) == "");
    }
}

TEST_CASE("collective state: a rank that dies between two requests has effect unknown") {
    for (const Duration runs_for : {245ms, 249ms, 250ms, 251ms, 252ms, 253ms, 260ms}) {
        for (const Merging merging : mergings) {
            CollNet net({plan_of(1, forms[0], merging), 1, true});
            net.ranks[0].runs_for = runs_for;
            net.ranks[0].fault = Fault{0, Moment::ran, Kind::dies, 0ns};
            const TimePoint began = net.now();
            net.run();
            INFO("after " << runs_for / 1ms << " ms");
            REQUIRE(validate(net, {{0}, 1s}, began) == "");
            REQUIRE(net.reported[0].status.effect() == Effect::unknown);
        }
    }
}

// 0 is the parent of 1, 1 of 2, 2 of 3. 2 hangs at first, so that 3 runs for 1 before 2 contacts
// it.
TEST_CASE("collective state: a report of ranks that others may have contacted is not trusted") {
    for (const Merging merging : mergings) {
        CollNet net({plan_of(15, forms[1], merging), 15});
        net.ranks[2].fault = Fault{2, Moment::start, Kind::hangs, 2s};
        net.ranks[3].fault = Fault{3, Moment::ran, Kind::dies, 0ns};
        net.ranks[3].runs_for = 100ms;
        net.at(1s, [&] { net.kill(1, 20s); });
        const TimePoint began = net.now();
        net.run();
        INFO(name_of(merging));
        REQUIRE(net.ranks[3].runs == std::vector<int>{1});
        REQUIRE(validate(net, {{1, 3}, 22s}, began) == "");
    }
}

}  // namespace coll_state
