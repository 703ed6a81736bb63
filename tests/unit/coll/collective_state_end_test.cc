// States of collectives that reach the deadline, are decided early, are cancelled or orphaned, or
// meet other views; in virtual time.
#include <random>

#include "support/coll_checks.h"
#include "support/seed.h"

using namespace weft;

namespace coll_state {

// ---- the deadline -------------------------------------------------------------------------------

TEST_CASE("collective state: a method that does not end costs its own outcome only") {
    for (const std::uint32_t n : {1u, 2u, 7u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (std::uint32_t stuck = 0; stuck < n; stuck += 4) {
                CollNet net({plan_of(n, form, merging), n, outside});
                net.ranks[stuck].runs_for = CollNet::never_ends;
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, merging, outside) << ", " << stuck << " does not end");
                REQUIRE(validate(net, {{stuck}, 60s}, began) == "");
                const Status& its = net.reported[stuck].status;
                REQUIRE(its.code() == Code::deadline_exceeded);
                REQUIRE(its.effect() == Effect::unknown);
                REQUIRE(net.ranks[stuck].stops == 1);
            }
        });
    }
}

// ---- decided early ------------------------------------------------------------------------------

TEST_CASE("collective state: a quorum reports when met or all answered, and the rest goes on") {
    for (const std::uint32_t n : {3u, 8u, 33u}) {
        for (const Form& form : forms) {
            for (const bool outside : {false, true}) {
                CollNet::Setup setup{plan_of(n, form, Merging::list), n, outside};
                setup.policy = Policy::quorum;
                setup.quorum = n / 2 + 1;
                const bool fails = n % 2 == 1;
                CollNet net(setup);
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    net.ranks[rank].fails = fails && rank <= n / 2;
                    if (rank > n / 2) net.ranks[rank].runs_for = 20s;
                }
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, Merging::list, outside));
                REQUIRE(net.reports == 1);
                // The outcomes of a level wait for its next reply.
                REQUIRE((net.reported_at - began < 8s) == !fails);
                REQUIRE(net.done_at - began > 20s);
                REQUIRE(net.done_at - began < 25s);
                REQUIRE(net.leftovers() == "");
                std::uint32_t ok = 0;
                for (const coll::Outcome& one : net.reported) ok += one.status.ok();
                REQUIRE((ok >= setup.quorum) == !fails);
                REQUIRE((!fails || ok == n - (n / 2 + 1)));
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    REQUIRE(net.ranks[rank].runs == std::vector<int>{1});
                    REQUIRE(net.ranks[rank].stops == 0);
                }
            }
        }
    }
}

TEST_CASE("collective state: best effort does not wait for silent ranks") {
    for (const std::uint32_t n : {2u, 8u, 33u}) {
        for (const Form& form : forms) {
            for (const bool outside : {false, true}) {
                for (std::uint32_t gone = outside ? 0 : 1; gone < n; ++gone) {
                    CollNet::Setup setup{plan_of(n, form, Merging::list), n, outside};
                    setup.policy = Policy::best_effort;
                    CollNet net(setup);
                    net.ranks[gone].fault =
                        Fault{gone, Moment::start, gone % 2 ? Kind::vanishes : Kind::hangs, 30s};
                    const TimePoint began = net.now();
                    net.run();
                    INFO(describe(n, form, Merging::list, outside) << ", without " << gone);
                    REQUIRE(net.reports == 1);
                    REQUIRE(net.leftovers() == "");
                    // Its parent knows that it is silent. Other ranks wait as long as that parent
                    // replies to them.
                    const bool is_child_of_origin =
                        std::any_of(net.sent.begin(), net.sent.end(), [&](const auto& one) {
                            return one.from == net.origin_rank() && one.to == gone;
                        });
                    REQUIRE(net.reported_at - began < (is_child_of_origin ? 4s : 31s));
                    for (std::uint32_t rank = 0; rank < n; ++rank) {
                        REQUIRE((rank == gone || net.reported[rank].status.ok()));
                    }
                    REQUIRE((!is_child_of_origin || !net.reported[gone].status.ok()));
                }
            }
        }
    }
}

// ---- no parent waits ----------------------------------------------------------------------------

TEST_CASE("collective state: a cancel at any time reaches every method") {
    for (std::uint64_t index = 0; index < 2000; ++index) {
        const std::uint64_t seed = test::seed_of(index);
        std::mt19937_64 random(seed);
        const auto below = [&](std::uint64_t end) { return random() % end; };
        const auto n = static_cast<std::uint32_t>(1 + below(33));
        const Form& form = forms[below(forms.size())];
        const Merging merging = mergings[below(mergings.size())];
        CollNet::Setup setup{plan_of(n, form, merging), n, below(2) == 0};
        CollNet net(setup);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            net.ranks[rank].runs_for = below(2) == 0 ? CollNet::never_ends : 1ms * below(6'000);
        }
        std::string all;
        const bool is_whole = below(2) == 0;
        for (std::uint64_t faults = is_whole ? 0 : 1 + below(3); faults > 0; --faults) {
            Fault fault{static_cast<std::uint32_t>(below(n)), static_cast<Moment>(below(3)),
                        static_cast<Kind>(below(4)), 1ms * below(9'000)};
            if (fault.position == 0 && !setup.outside) continue;
            net.ranks[fault.position].fault = fault;
            all += describe(fault);
        }
        const TimePoint began = net.now();
        const Duration after = below(4) == 0 ? 1ms * below(12) : 1ms * below(8'000);
        net.at(after,
               [&] { net.cancel(fail(Code::cancelled, "no more").with_effect(Effect::unknown)); });
        net.run();
        INFO("TEST_SEED=" << seed << " " << describe(n, form, merging, setup.outside) << all
                          << ", cancelled after " << after / 1ms << " ms");
        REQUIRE(net.reports == 1);
        REQUIRE(net.leftovers() == "");
        REQUIRE(net.reported_at - began <= after);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            REQUIRE(validate_rank(net, net.reported[rank]) == "");
            REQUIRE((net.reported[rank].status.ok() || !all.empty() ||
                     net.reported[rank].status.code() == Code::cancelled));
        }
        REQUIRE(validate_value(net, net.origin().plan()) == "");
        // A rank that hangs, or one with an unnoticed death, holds up the ranks below it.
        const Duration most = is_whole ? 50ms : coll::CollectiveState::orphan_timeout + 12s;
        REQUIRE(net.last_work - (began + after) <= most);
    }
}

TEST_CASE("collective state: every rank ends by itself when the origin dies") {
    for (std::uint64_t index = 0; index < 1500; ++index) {
        const std::uint64_t seed = test::seed_of(index);
        std::mt19937_64 random(seed);
        const auto below = [&](std::uint64_t end) { return random() % end; };
        const auto n = static_cast<std::uint32_t>(1 + below(33));
        const Form& form = forms[below(forms.size())];
        const Merging merging = mergings[below(mergings.size())];
        CollNet::Setup setup{plan_of(n, form, merging), n, below(2) == 0};
        setup.timeout = 1000s;
        CollNet net(setup);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            net.ranks[rank].runs_for = below(2) == 0 ? CollNet::never_ends : 1ms * below(6'000);
        }
        std::string all;
        if (below(2) == 0 && n > 1) {  // Another rank has a fault, too.
            const auto at = static_cast<std::uint32_t>(1 + below(n - 1));
            const Fault fault{at, static_cast<Moment>(below(3)), static_cast<Kind>(below(4)),
                              1ms * below(9'000)};
            net.ranks[at].fault = fault;
            all = describe(fault);
        }
        const Duration after = 1ms * below(8'000);
        const Duration noticed = below(2) == 0 ? 0ns : 10s;
        net.at(after, [&] { net.kill(net.origin_rank(), noticed); });
        const TimePoint began = net.now();
        net.run();
        INFO("TEST_SEED=" << seed << " " << describe(n, form, merging, setup.outside) << all
                          << ", its origin dies after " << after / 1ms << " ms, seen after "
                          << noticed / 1ms);
        REQUIRE(net.leftovers() == "");
        REQUIRE(net.last_work - (began + after) <= coll::CollectiveState::orphan_timeout + 12s);
    }
}

// ---- other views --------------------------------------------------------------------------------

TEST_CASE("collective state: ranks with another view get the members by name") {
    for (const std::uint32_t n : {1u, 2u, 5u, 17u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (const std::uint64_t epoch : {1u, 3u}) {
                for (std::uint32_t at = 0; at < n; ++at) {
                    CollNet net({plan_of(n, form, merging, 2), n, outside});
                    for (std::uint32_t rank = at; rank < n; rank += 3)
                        net.ranks[rank].epoch = epoch;
                    for (std::uint32_t rank = 0; rank < n; ++rank) {
                        if (net.ranks[rank].epoch == 1 && epoch != 1) net.ranks[rank].epoch = 2;
                    }
                    const TimePoint began = net.now();
                    net.run();
                    INFO(describe(n, form, merging, outside) << ", " << at << " in " << epoch);
                    REQUIRE(validate(net, {{}, 100ms}, began) == "");
                    const bool may_refresh = outside && epoch > 2;
                    REQUIRE(net.refreshes <= (may_refresh ? 1 : 0));
                }
            }
        });
    }
}

TEST_CASE("collective state: an outside origin restarts when all ranks have a later view") {
    for (std::uint32_t n = 1; n <= 33; ++n) {
        for (const Form& form : forms) {
            for (const Merging merging : mergings) {
                for (const bool learns : {false, true}) {
                    CollNet net({plan_of(n, form, merging, 1), n, true});
                    for (CollNet::Rank& rank : net.ranks) rank.epoch = 2;
                    if (learns) {
                        net.on_refresh = [&](std::uint64_t epoch) {
                            REQUIRE(epoch == 2);
                            net.restart(plan_of(n, form, merging, 2));
                        };
                    }
                    const TimePoint began = net.now();
                    net.run();
                    INFO(describe(n, form, merging, true) << (learns ? "" : ", can't learn it"));
                    REQUIRE(validate(net, {{}, 100ms}, began) == "");
                    REQUIRE(net.refreshes == 1);
                    REQUIRE(net.origin().plan().epoch == (learns ? 2 : 1));
                }
            }
        }
    }
}

TEST_CASE("collective state: a silent rank does not hold up ranks with a later view") {
    for (const std::uint32_t n : {2u, 3u, 9u, 33u}) {
        for (const Form& form : forms) {
            CollNet::Setup setup{plan_of(n, form, Merging::list), n, true};
            setup.policy = Policy::best_effort;
            CollNet net(setup);
            for (CollNet::Rank& rank : net.ranks) rank.epoch = 2;
            net.ranks[0].fault = Fault{0, Moment::start, Kind::hangs, 30s};
            const TimePoint began = net.now();
            net.run();
            INFO(describe(n, form, Merging::list, true));
            REQUIRE(net.reported_at - began < 4s);
            for (std::uint32_t rank = 0; rank < n; ++rank) {
                REQUIRE(net.reported[rank].status.ok() == (rank != 0));
            }
        }
    }
}

TEST_CASE("collective state: a slow rank does not hold up ranks with a later view") {
    CollNet net({plan_of(2, forms[0], Merging::list), 2, true});
    net.ranks[0].runs_for = 20s;
    net.ranks[1].epoch = 2;
    net.at(1s, [&] { REQUIRE(net.ranks[1].runs[0] == 1); });
    net.run();
    REQUIRE(net.reported[1].status.ok());
}

TEST_CASE("collective state: a rank outside the group fails with effect none") {
    for (const std::uint32_t n : {1u, 2u, 9u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (std::uint32_t at = outside ? 0 : 1; at < n; ++at) {
                CollNet net({plan_of(n, form, merging), n, outside});
                net.ranks[at].epoch = 0;
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, merging, outside) << ", without " << at);
                REQUIRE(validate(net, {{at}, 100ms}, began) == "");
                REQUIRE(net.reported[at].status.code() == Code::failed_precondition);
                REQUIRE(net.reported[at].status.effect() == Effect::none);
            }
        });
    }
}

}  // namespace coll_state
