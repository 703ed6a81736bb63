// Parts of collectives, played against one another in virtual time: every tree, every place that
// something can happen to, every moment at which it can.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "support/catch.h"
#include "support/coll_net.h"
#include "support/seed.h"

using namespace weft;
using test::CollNet;
using Fault = CollNet::Fault;
using Kind = CollNet::Kind;
using Moment = CollNet::Moment;

namespace coll_part {

struct Form {
    const char* name;
    coll::Tree tree;
    bool by_host = false;
};
const std::vector<Form> forms = {
    {"flat", {coll::Shape::flat}},
    {"2-ary", {coll::Shape::k_ary, 2}},
    {"4-ary", {coll::Shape::k_ary, 4}},
    {"2-nomial", {coll::Shape::k_nomial, 2}},
    {"4-nomial", {coll::Shape::k_nomial, 4}},
    {"8-nomial", {coll::Shape::k_nomial, 8}},
    {"greedy", {}},
    {"greedy, 2 children, close", {coll::Shape::greedy, 2, 1}},
    {"2-ary by host", {coll::Shape::k_ary, 2}, true},
    {"greedy by host", {}, true},
};

enum class Merging { list, unordered, ordered };
const std::vector<Merging> mergings = {Merging::list, Merging::unordered, Merging::ordered};

Status join(std::vector<std::byte>& into, ByteView from) {
    into.insert(into.end(), from.begin(), from.end());
    return {};
}

coll::Merge merge_for(Merging merging) {
    if (merging == Merging::list) return {};
    if (merging == Merging::unordered) {
        return {{Reduction::Operation::sum, Reduction::Number::u64, false}, nullptr};
    }
    return {{Reduction::Operation::method, Reduction::Number::u64, true}, join};
}

GroupView view_of(std::uint32_t n, std::uint64_t epoch) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        const std::uint32_t host = rank * 7 % 5 % (1 + n / 3);  // Some share one.
        members.push_back({rank, {"tcp://h" + std::to_string(host) + ":" + std::to_string(rank + 1)}, 1, false});
    }
    return GroupView::make("g", epoch, std::move(members)).value();
}

std::shared_ptr<const coll::Plan> plan_of(std::uint32_t n, const Form& form, Merging merging,
                                          std::uint64_t epoch = 1) {
    using Key = std::tuple<std::uint32_t, const Form*, Merging, std::uint64_t>;
    static std::map<Key, std::shared_ptr<const coll::Plan>> made;
    std::shared_ptr<const coll::Plan>& plan = made[{n, &form, merging, epoch}];
    if (plan) return plan;
    auto fresh = std::make_shared<coll::Plan>();
    fresh->roster = std::make_shared<coll::Roster>(
        coll::Roster::Parts{view_of(n, epoch), {}, 0, form.by_host});
    fresh->epoch = epoch;
    fresh->view = epoch;
    fresh->tree = form.tree;
    fresh->merge = merge_for(merging);
    plan = fresh;
    return plan;
}

// What tells that the result is not as it has to be; empty: nothing.
struct Expected {
    std::set<std::uint32_t> struck;  // Any outcome will do that is honest.
    Duration told_within = 60s;
};

std::string judge_value(const CollNet& net, const coll::Plan& plan) {
    if (plan.merge.is_list()) {
        for (const coll::Outcome& one : net.told) {
            const auto reply = one.status.ok() ? CollNet::reply_of(plan, one.position)
                                               : std::vector<std::byte>();
            if (one.reply != reply) return "reply of " + std::to_string(one.position);
        }
        return {};
    }
    std::vector<std::byte> fold;
    bool is_first = true;
    for (const coll::Outcome& one : net.told) {
        if (!one.status.ok()) continue;
        const auto reply = CollNet::reply_of(plan, one.position);
        if (std::exchange(is_first, false)) fold = reply;
        else if (!plan.merge(fold, reply).ok()) return "merge";
    }
    return fold == net.origin().outcomes().value() ? "" : "merged value";
}

std::string judge_rank(const CollNet& net, const coll::Outcome& one) {
    const CollNet::Rank& rank = net.ranks[one.position];
    const int runs = std::accumulate(rank.runs.begin(), rank.runs.end(), 0);
    const std::string who = "rank " + std::to_string(one.position) + " (" +
                            one.status.to_string() + ", runs " + std::to_string(runs) + "): ";
    for (const int in_life : rank.runs) {
        if (in_life > 1) return who + "ran twice in a life";
    }
    if (one.status.ok() && runs == 0) return who + "OK and did not run";
    if (one.status.effect() == Effect::applied && runs == 0) return who + "applied and did not run";
    if (one.status.effect() == Effect::none && runs > 0) return who + "none, and ran";
    return {};
}

// Nobody asks another one to take part twice, but by name.
std::string judge_questions(const CollNet& net) {
    std::set<std::tuple<std::uint32_t, std::uint32_t, bool>> asked;
    for (const CollNet::Sent& one : net.sent) {
        if (one.asking != coll::Asking::all) continue;
        if (!asked.emplace(one.from, one.to, one.named).second) {
            return std::to_string(one.from) + " asks " + std::to_string(one.to) + " twice";
        }
    }
    return {};
}

std::string judge(const CollNet& net, const Expected& expected, TimePoint began) {
    const coll::Plan& plan = net.origin().plan();
    if (net.tells != 1) return "told " + std::to_string(net.tells) + " times";
    if (net.done_at == never) return "it never ended";
    for (std::uint32_t at = 0; at < net.told.size(); ++at) {
        const coll::Outcome& one = net.told[at];
        if (one.position != at) return "order of outcomes";
        if (std::string wrong = judge_rank(net, one); !wrong.empty()) return wrong;
        if (expected.struck.count(at) == 0 && !one.status.ok()) {
            return "rank " + std::to_string(at) + ", which nothing struck: " +
                   one.status.to_string();
        }
    }
    if (std::string wrong = judge_value(net, plan); !wrong.empty()) return wrong;
    if (net.told_at - began > expected.told_within) {
        return "told after " + std::to_string((net.told_at - began) / 1ms) + " ms";
    }
    if (net.last_work - net.done_at > coll::Part::orphan_lasts + 5s) {
        return "something went on for " + std::to_string((net.last_work - net.done_at) / 1ms) +
               " ms";
    }
    if (std::string left = net.leftovers(); !left.empty()) return "left over:" + left;
    return {};
}

// Who asks whom where nothing goes wrong.
void edges(std::uint32_t from, coll::Interval below, const coll::Plan& plan,
           std::set<std::pair<std::uint32_t, std::uint32_t>>& all) {
    for (const coll::Interval child : coll::split(below, plan.tree, plan.roster->hosts())) {
        all.emplace(from, child.first);
        edges(child.first, {child.first + 1, child.last}, plan, all);
    }
}

const char* name_of(Merging merging) {
    return merging == Merging::list ? "list" : merging == Merging::ordered ? "ordered" : "sum";
}

std::string describe(std::uint32_t n, const Form& form, Merging merging, bool outside) {
    return std::to_string(n) + " ranks, " + form.name + ", " + name_of(merging) +
           (outside ? ", from outside" : "");
}

std::string describe(const Fault& fault) {
    static constexpr const char* kinds[] = {"dies", "vanishes", "hangs", "restarts"};
    static constexpr const char* moments[] = {"at the start", "while it forwards",
                                              "when it has forwarded", "when it has run"};
    return ", " + std::to_string(fault.position) + " " +
           kinds[static_cast<std::size_t>(fault.kind)] + " " +
           moments[static_cast<std::size_t>(fault.moment)] + " for " +
           std::to_string(fault.lasts / 1ms) + " ms";
}

template <class Visit>
void for_each_form(Visit visit) {
    for (const Form& form : forms) {
        for (const Merging merging : mergings) {
            for (const bool outside : {false, true}) visit(form, merging, outside);
        }
    }
}

// One position of each place in the tree: the first, children of the root, inner ones, leaves.
std::set<std::uint32_t> places(std::uint32_t n, const coll::Plan& plan, bool outside) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> all;
    edges(n, {outside ? 0u : 1u, n}, plan, all);
    std::set<std::uint32_t> parents;
    for (const auto& [from, to] : all) parents.insert(from);
    std::map<std::pair<bool, bool>, std::pair<std::uint32_t, std::uint32_t>> ends;
    for (const auto& [from, to] : all) {
        const std::pair<bool, bool> kind{from == n, parents.count(to) > 0};
        const auto [at, is_new] = ends.try_emplace(kind, to, to);
        if (!is_new) at->second = {std::min(at->second.first, to), std::max(at->second.second, to)};
    }
    std::set<std::uint32_t> chosen;
    for (const auto& [kind, two] : ends) chosen.insert({two.first, two.second});
    return chosen;
}

}  // namespace coll_part

using namespace coll_part;

TEST_CASE("coll part: where nothing fails, messages are the tree's and every rank runs once") {
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
                REQUIRE(judge(net, {{}, 100ms}, began) == "");
                REQUIRE(judge_questions(net) == "");
                REQUIRE(net.last_work - began < 100ms);
                std::set<std::pair<std::uint32_t, std::uint32_t>> expected, sent;
                edges(net.origin_rank(), {outside ? 0u : 1u, n}, *plan, expected);
                for (const CollNet::Sent& one : net.sent) {
                    REQUIRE(one.asking == coll::Asking::all);
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
    std::string wrong = judge(net, {{fault.position}, fault.lasts + 1s}, began);
    if (wrong.empty()) wrong = judge_questions(net);
    if (wrong.empty()) {
        const Status& its = net.told[fault.position].status;
        const bool never_came = fault.moment == Moment::start &&
                                (fault.kind == Kind::dies || fault.kind == Kind::restarts);
        if (hangs != its.ok()) wrong = "the struck one has " + its.to_string();
        if (never_came && its.effect() != Effect::none) wrong = "effect of one that was not there";
        const bool came = !hangs && !never_came && its.effect() != Effect::unknown;
        if (came) wrong = "effect of one that may have run: " + its.to_string();
    }
    INFO(describe(n, form, merging, outside) << describe(fault));
    REQUIRE(wrong == "");
}

TEST_CASE("coll part: whatever happens to one rank, all others have OK and it has the truth") {
    static const std::vector<std::pair<Kind, Duration>> kinds = {{Kind::dies, 0ns},
                                                                 {Kind::vanishes, 5s},
                                                                 {Kind::hangs, 600ms},
                                                                 {Kind::hangs, 4s},
                                                                 {Kind::restarts, 0ns}};
    for (std::uint32_t n = 1; n <= 33; ++n) {
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

TEST_CASE("coll part: several faults at once, at ranks that may lie below one another") {
    for (std::uint64_t index = 0; index < 6000; ++index) {
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
        REQUIRE(judge(net, expected, began) == "");
    }
}

TEST_CASE("coll part: one that dies between two questions may have run") {
    for (const Duration runs_for : {245ms, 249ms, 250ms, 251ms, 252ms, 253ms, 260ms}) {
        for (const Merging merging : mergings) {
            CollNet net({plan_of(1, forms[0], merging), 1, true});
            net.ranks[0].runs_for = runs_for;
            net.ranks[0].fault = Fault{0, Moment::ran, Kind::dies, 0ns};
            const TimePoint began = net.now();
            net.run();
            INFO("after " << runs_for / 1ms << " ms");
            REQUIRE(judge(net, {{0}, 1s}, began) == "");
            REQUIRE(net.told[0].status.effect() == Effect::unknown);
        }
    }
}

// 0 asks 1, 1 asks 2, 2 asks 3 in the end; 3 ran before, for 1, when 2 said nothing.
TEST_CASE("coll part: what one says of those below it, whom others may have asked, is doubted") {
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
        REQUIRE(judge(net, {{1, 3}, 22s}, began) == "");
    }
}

// ---- time is over -------------------------------------------------------------------------------

TEST_CASE("coll part: a method that does not end costs its own outcome only") {
    for (const std::uint32_t n : {1u, 2u, 7u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (std::uint32_t stuck = 0; stuck < n; stuck += 4) {
                CollNet net({plan_of(n, form, merging), n, outside});
                net.ranks[stuck].runs_for = CollNet::never_ends;
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, merging, outside) << ", " << stuck << " does not end");
                REQUIRE(judge(net, {{stuck}, 60s}, began) == "");
                const Status& its = net.told[stuck].status;
                REQUIRE(its.code() == Code::deadline_exceeded);
                REQUIRE(its.effect() == Effect::unknown);
                REQUIRE(net.ranks[stuck].stops == 1);
            }
        });
    }
}

// ---- decided early ------------------------------------------------------------------------------

TEST_CASE("coll part: a quorum is told when it is there, or can't be, and the rest goes on") {
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
                REQUIRE(net.tells == 1);
                REQUIRE(net.told_at - began < 8s);  // A level's news waits for its next answer.
                REQUIRE(net.done_at - began > 20s);
                REQUIRE(net.done_at - began < 25s);
                REQUIRE(net.leftovers() == "");
                std::uint32_t ok = 0;
                for (const coll::Outcome& one : net.told) ok += one.status.ok();
                REQUIRE((fails ? ok == 0 : ok >= setup.quorum));
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    REQUIRE(net.ranks[rank].runs == std::vector<int>{1});
                    REQUIRE(net.ranks[rank].stops == 0);
                }
            }
        }
    }
}

TEST_CASE("coll part: best effort does not wait for those who say nothing") {
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
                    REQUIRE(net.tells == 1);
                    REQUIRE(net.leftovers() == "");
                    // Who asked him knows that he is silent; others wait as long as he answers them.
                    const bool asks_him =
                        std::any_of(net.sent.begin(), net.sent.end(), [&](const auto& one) {
                            return one.from == net.origin_rank() && one.to == gone;
                        });
                    REQUIRE(net.told_at - began < (asks_him ? 4s : 31s));
                    for (std::uint32_t rank = 0; rank < n; ++rank) {
                        REQUIRE((net.told[rank].status.ok() == (rank != gone) || !asks_him));
                    }
                }
            }
        }
    }
}

// ---- nobody waits -------------------------------------------------------------------------------

TEST_CASE("coll part: a cancel reaches every method, whenever it comes") {
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
        net.at(after, [&] { net.stop(fail(Code::cancelled, "no more").with_effect(Effect::unknown)); });
        net.run();
        INFO("TEST_SEED=" << seed << " " << describe(n, form, merging, setup.outside) << all
                          << ", cancelled after " << after / 1ms << " ms");
        REQUIRE(net.tells == 1);
        REQUIRE(net.leftovers() == "");
        REQUIRE(net.told_at - began <= after);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            REQUIRE(judge_rank(net, net.told[rank]) == "");
            REQUIRE((net.told[rank].status.ok() || !all.empty() ||
                     net.told[rank].status.code() == Code::cancelled));
        }
        REQUIRE(judge_value(net, net.origin().plan()) == "");
        // A hang, and one whose death is not seen, hold up those below them.
        const Duration most = is_whole ? 50ms : coll::Part::orphan_lasts + 12s;
        REQUIRE(net.last_work - (began + after) <= most);
    }
}

TEST_CASE("coll part: when the one who began it dies, everything ends by itself") {
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
        if (below(2) == 0 && n > 1) {  // One in the middle, too.
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
        REQUIRE(net.last_work - (began + after) <= coll::Part::orphan_lasts + 12s);
    }
}

// ---- other views --------------------------------------------------------------------------------

TEST_CASE("coll part: ranks with another view are told who is who") {
    for (const std::uint32_t n : {1u, 2u, 5u, 17u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (const std::uint64_t epoch : {1u, 3u}) {
                for (std::uint32_t at = 0; at < n; ++at) {
                    CollNet net({plan_of(n, form, merging, 2), n, outside});
                    for (std::uint32_t rank = at; rank < n; rank += 3) net.ranks[rank].epoch = epoch;
                    for (std::uint32_t rank = 0; rank < n; ++rank) {
                        if (net.ranks[rank].epoch == 1 && epoch != 1) net.ranks[rank].epoch = 2;
                    }
                    const TimePoint began = net.now();
                    net.run();
                    INFO(describe(n, form, merging, outside) << ", " << at << " in " << epoch);
                    REQUIRE(judge(net, {{}, 100ms}, began) == "");
                    const bool may_refresh = outside && epoch > 2;
                    REQUIRE(net.refreshes <= (may_refresh ? 1 : 0));
                }
            }
        });
    }
}

TEST_CASE("coll part: from outside, where all have a later view, it begins anew in that one") {
    for (std::uint32_t n = 1; n <= 33; ++n) {
        for (const Form& form : forms) {
            for (const Merging merging : mergings) {
                for (const bool learns : {false, true}) {
                    CollNet net({plan_of(n, form, merging, 1), n, true});
                    for (CollNet::Rank& rank : net.ranks) rank.epoch = 2;
                    if (learns) {
                        net.on_refresh = [&](std::uint64_t epoch) {
                            REQUIRE(epoch == 2);
                            net.start_anew(plan_of(n, form, merging, 2));
                        };
                    }
                    const TimePoint began = net.now();
                    net.run();
                    INFO(describe(n, form, merging, true) << (learns ? "" : ", can't learn it"));
                    REQUIRE(judge(net, {{}, 100ms}, began) == "");
                    REQUIRE(net.refreshes == 1);
                    REQUIRE(net.origin().plan().epoch == (learns ? 2 : 1));
                }
            }
        }
    }
}

TEST_CASE("coll part: one who says nothing does not hold up those with a later view") {
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
            REQUIRE(net.told_at - began < 4s);
            for (std::uint32_t rank = 0; rank < n; ++rank) {
                REQUIRE(net.told[rank].status.ok() == (rank != 0));
            }
        }
    }
}

TEST_CASE("coll part: one who takes long does not hold up those with a later view") {
    CollNet net({plan_of(2, forms[0], Merging::list), 2, true});
    net.ranks[0].runs_for = 20s;
    net.ranks[1].epoch = 2;
    net.at(1s, [&] { REQUIRE(net.ranks[1].runs[0] == 1); });
    net.run();
    REQUIRE(net.told[1].status.ok());
}

TEST_CASE("coll part: one who is in no such group says so, and has not run it") {
    for (const std::uint32_t n : {1u, 2u, 9u, 33u}) {
        for_each_form([&](const Form& form, Merging merging, bool outside) {
            for (std::uint32_t at = outside ? 0 : 1; at < n; ++at) {
                CollNet net({plan_of(n, form, merging), n, outside});
                net.ranks[at].epoch = 0;
                const TimePoint began = net.now();
                net.run();
                INFO(describe(n, form, merging, outside) << ", without " << at);
                REQUIRE(judge(net, {{at}, 100ms}, began) == "");
                REQUIRE(net.told[at].status.code() == Code::failed_precondition);
                REQUIRE(net.told[at].status.effect() == Effect::none);
            }
        });
    }
}
