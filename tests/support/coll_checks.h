// Trees, plans, and the checks of every collective that CollNet runs.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "support/catch.h"
#include "support/coll_net.h"

namespace coll_state {

using namespace weft;

using test::CollNet;
using Fault = CollNet::Fault;
using Kind = CollNet::Kind;
using Moment = CollNet::Moment;

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

inline Status join(std::vector<std::byte>& into, ByteView from) {
    into.insert(into.end(), from.begin(), from.end());
    return {};
}

inline coll::Merge merge_for(Merging merging) {
    if (merging == Merging::list) return {};
    if (merging == Merging::unordered) {
        return {{Reduction::Operation::sum, Reduction::Number::u64, false}, nullptr};
    }
    return {{Reduction::Operation::method, Reduction::Number::u64, true}, join};
}

inline GroupView view_of(std::uint32_t n, std::uint64_t epoch) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        const std::uint32_t host = rank * 7 % 5 % (1 + n / 3);  // Some ranks share a host.
        members.push_back(
            {rank, {"tcp://h" + std::to_string(host) + ":" + std::to_string(rank + 1)}, 1, false});
    }
    return GroupView::make("g", epoch, std::move(members)).value();
}

inline std::shared_ptr<const coll::Plan> plan_of(std::uint32_t n, const Form& form, Merging merging,
                                                 std::uint64_t epoch = 1) {
    using Key = std::tuple<std::uint32_t, const Form*, Merging, std::uint64_t>;
    static std::map<Key, std::shared_ptr<const coll::Plan>> made;
    std::shared_ptr<const coll::Plan>& plan = made[{n, &form, merging, epoch}];
    if (plan) return plan;
    auto fresh = std::make_shared<coll::Plan>();
    fresh->rank_order = std::make_shared<coll::RankOrder>(
        coll::RankOrder::Params{view_of(n, epoch), {}, 0, form.by_host});
    fresh->epoch = epoch;
    fresh->view = epoch;
    fresh->tree = form.tree;
    fresh->merge = merge_for(merging);
    plan = fresh;
    return plan;
}

// The checks of a result; each validate function returns the violation, or an empty string.
struct Expected {
    std::set<std::uint32_t> struck;  // Any honest outcome is accepted.
    Duration reported_within = 60s;
};

inline std::string validate_value(const CollNet& net, const coll::Plan& plan) {
    if (plan.merge.is_list()) {
        for (const coll::Outcome& one : net.reported) {
            const auto reply =
                one.status.ok() ? CollNet::reply_of(plan, one.position) : std::vector<std::byte>();
            if (one.reply != reply) return "reply of " + std::to_string(one.position);
        }
        return {};
    }
    std::vector<std::byte> fold;
    bool is_first = true;
    for (const coll::Outcome& one : net.reported) {
        if (!one.status.ok()) continue;
        const auto reply = CollNet::reply_of(plan, one.position);
        if (std::exchange(is_first, false)) fold = reply;
        else if (!plan.merge(fold, reply).ok()) return "merge";
    }
    return fold == net.origin().outcomes().value() ? "" : "merged value";
}

inline std::string validate_rank(const CollNet& net, const coll::Outcome& one) {
    const CollNet::Rank& rank = net.ranks[one.position];
    const int runs = std::accumulate(rank.runs.begin(), rank.runs.end(), 0);
    const std::string rank_text = "rank " + std::to_string(one.position) + " (" +
                                  one.status.to_string() + ", runs " + std::to_string(runs) + "): ";
    for (const int in_life : rank.runs) {
        if (in_life > 1) return rank_text + "ran twice in a life";
    }
    if (one.status.ok() && runs == 0) return rank_text + "OK and did not run";
    if (one.status.effect() == Effect::applied && runs == 0)
        return rank_text + "applied and did not run";
    if (one.status.effect() == Effect::none && runs > 0) return rank_text + "none, and ran";
    return {};
}

// No rank requests a subtree twice from the same rank, except by name.
inline std::string validate_requests(const CollNet& net) {
    std::set<std::tuple<std::uint32_t, std::uint32_t, bool>> seen;
    for (const CollNet::Sent& one : net.sent) {
        if (one.kind != coll::RequestKind::all) continue;
        if (!seen.emplace(one.from, one.to, one.named).second) {
            return std::to_string(one.from) + " requests " + std::to_string(one.to) + " twice";
        }
    }
    return {};
}

inline std::string validate(const CollNet& net, const Expected& expected, TimePoint began) {
    const coll::Plan& plan = net.origin().plan();
    if (net.waits_for_nothing) return "a parent waits in vain";
    if (net.reports != 1) return "reported " + std::to_string(net.reports) + " times";
    if (net.done_at == never) return "the origin never ended";
    for (std::uint32_t at = 0; at < net.reported.size(); ++at) {
        const coll::Outcome& one = net.reported[at];
        if (one.position != at) return "order of outcomes";
        if (std::string wrong = validate_rank(net, one); !wrong.empty()) return wrong;
        if (expected.struck.count(at) == 0 && !one.status.ok()) {
            return "rank " + std::to_string(at) + ", without a fault: " + one.status.to_string();
        }
    }
    if (std::string wrong = validate_value(net, plan); !wrong.empty()) return wrong;
    if (net.reported_at - began > expected.reported_within) {
        return "reported after " + std::to_string((net.reported_at - began) / 1ms) + " ms";
    }
    if (net.last_work - net.done_at > coll::CollectiveState::orphan_timeout + 5s) {
        return "a rank continued for " + std::to_string((net.last_work - net.done_at) / 1ms) +
               " ms";
    }
    if (std::string left = net.leftovers(); !left.empty()) return "left over:" + left;
    return {};
}

// The requests, parent to child, of a run without faults.
inline void edges(std::uint32_t from, coll::Interval below, const coll::Plan& plan,
                  std::set<std::pair<std::uint32_t, std::uint32_t>>& all) {
    for (const coll::Interval child : coll::split(below, plan.tree, plan.rank_order->hosts())) {
        all.emplace(from, child.first);
        edges(child.first, {child.first + 1, child.last}, plan, all);
    }
}

inline const char* name_of(Merging merging) {
    return merging == Merging::list ? "list" : merging == Merging::ordered ? "ordered" : "sum";
}

inline std::string describe(std::uint32_t n, const Form& form, Merging merging, bool outside) {
    return std::to_string(n) + " ranks, " + form.name + ", " + name_of(merging) +
           (outside ? ", from outside" : "");
}

inline std::string describe(const Fault& fault) {
    static constexpr const char* kinds[] = {"dies", "vanishes", "hangs", "restarts"};
    static constexpr const char* moments[] = {"at the start", "while it forwards",
                                              "when it has forwarded", "when it has run"};
    return ", " + std::to_string(fault.position) + " " +
           kinds[static_cast<std::size_t>(fault.kind)] + " " +
           moments[static_cast<std::size_t>(fault.moment)] + " for " +
           std::to_string(fault.lasts / 1ms) + " ms";
}

template <class Visit>
inline void for_each_form(Visit visit) {
    for (const Form& form : forms) {
        for (const Merging merging : mergings) {
            for (const bool outside : {false, true}) visit(form, merging, outside);
        }
    }
}

// Positions of each kind in the tree: the first and the last child of the root, inner rank and
// leaf.
inline std::set<std::uint32_t> places(std::uint32_t n, const coll::Plan& plan, bool outside) {
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

}  // namespace coll_state
