// `weft sim --scenario bcast`: one broadcast with acknowledgements over all nodes, on a network of
// costs. Seed 1 measures, without faults, over two networks. Its tree is the one that the root
// chose by the costs of earlier broadcasts, the first of which used the tree of unknown costs. The
// other seeds have the exact tree, and kill one rank in a hundred in the middle: in even seeds as
// processes, with peers that are notified, in odd ones as hosts that become silent.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "cli/text.h"
#include "coll/costs.h"
#include "coll/member_driver.h"
#include "coll/rank_order.h"
#include "simulation/broadcast_net.h"
#include "simulation/scenario.h"

namespace weft::scenarios {

namespace {

constexpr LinkCost networks[] = {
    {300ns, 2700ns},    // RDMA.
    {3000ns, 15000ns},  // TCP.
};
constexpr double over_bound_max = 1.15;
constexpr double state_bytes_mean_max = 256;
constexpr Duration time_in_all = 120s;
constexpr int training_runs = 2;  // Broadcasts from which the root learns what messages cost.
constexpr std::size_t body_bytes = 0;
constexpr Duration kill_detection = 1ms;  // Until peers detect a killed process,
constexpr Duration hang_detection = 3s;   // and until a silent host counts as dead.

double us(Duration time) { return std::chrono::duration<double, std::micro>(time).count(); }
double ratio(Duration time, Duration to) {
    return to.count() == 0 ? 1
                           : static_cast<double>(time.count()) / static_cast<double>(to.count());
}

coll::Tree k_nomial(std::uint8_t k) { return {coll::Shape::k_nomial, k, 1}; }

Children as_split(const coll::Tree& tree) {
    return [tree](coll::Interval below) { return coll::split(below, tree); };
}

coll::Tree exact_tree(const LinkCost& cost) {
    return coll::tree_for(us(cost.busy), us(cost.latency));
}

// Trees and orders of sending side by side, under the model alone.
struct Order {
    std::string name;
    BroadcastTime time;
};
std::vector<Order> compare(std::uint32_t n, const LinkCost& cost, const coll::Tree& greedy) {
    std::vector<Order> orders;
    orders.push_back({"greedy", time_of(n, cost, as_split(greedy))});
    for (const std::uint8_t k : {4, 8, 32}) {
        orders.push_back({"k-nomial " + std::to_string(k) + ", largest first",
                          time_of(n, cost, as_split(k_nomial(k)))});
    }
    for (const std::uint32_t k : {4u, 32u}) {
        orders.push_back(
            {"k-nomial " + std::to_string(k) + ", order of CaRT",
             time_of(n, cost, [k](coll::Interval below) { return cart_children(below, k); })});
    }
    return orders;
}

Json as_json(const std::vector<Order>& orders) {
    Json rows = Json::array();
    for (const Order& order : orders) {
        Json row;
        row["order"] = order.name;
        row["delivered_us"] = us(order.time.delivered);
        row["acknowledged_us"] = us(order.time.acknowledged);
        rows.push_back(std::move(row));
    }
    return rows;
}

std::string text_of(Duration time) { return tool::format_ns(static_cast<double>(time.count())); }

std::string table_of(const BroadcastNet& net, const LinkCost& cost, Duration bound,
                     const std::vector<Order>& orders) {
    tool::Table table({"g " + text_of(cost.busy) + ", d " + text_of(cost.latency),
                       "last is reached", "over the bound", "all acknowledged"});
    const auto add = [&](const std::string& name, Duration delivered,
                         const std::string& acknowledged) {
        char over[16];
        std::snprintf(over, sizeof over, "%.3f", ratio(delivered, bound));
        table.add({name, text_of(delivered), over, acknowledged});
    };
    add("bound", bound, "");
    add("greedy, as simulated", net.delivered(), text_of(net.acknowledged()));
    for (const Order& order : orders) {
        add(order.name, order.time.delivered, text_of(order.time.acknowledged));
    }
    return table.text() + "\n";
}

// The harm of dead ranks: `inner` of them have ranks below, and at most `chain` of them are above
// one another.
struct Loss {
    std::uint32_t inner = 0;
    std::uint32_t chain = 0;
};
void add_harm(coll::Interval subtree, std::uint32_t dead_above, const std::vector<bool>& is_dead,
              const coll::Tree& tree, Loss& harm) {
    const bool dead = is_dead[subtree.first];
    harm.inner += dead && subtree.size() > 1;
    harm.chain = std::max(harm.chain, dead_above += dead);
    for (const coll::Interval child : coll::split({subtree.first + 1, subtree.last}, tree)) {
        add_harm(child, dead_above, is_dead, tree, harm);
    }
}

struct StateBytes {
    std::uint64_t total = 0;
    std::uint32_t most = 0;
};

class BcastRun {
  public:
    BcastRun(std::uint64_t seed, const SimOptions& options)
        : seed_(seed), n_(options.nodes), verbose_(options.verbose), random_(seed) {
        run_.seed = seed;
    }

    SimRun run();

  private:
    void over(const LinkCost& cost);
    void play(BroadcastNet& net);
    void learn(const LinkCost& cost);
    double over_bound(const LinkCost& cost, const coll::Tree& tree) const;
    std::vector<Death> draw_deaths(const coll::RankOrder& rank_order, Duration within);
    void validate(const BroadcastNet& net, const coll::RankOrder& rank_order);
    void validate_rank(const RankHistory& history, const coll::Outcome& outcome,
                       std::uint32_t rank);
    void validate_cost(const BroadcastNet& net, double state_bytes_mean, double over_bound);
    void measure(const BroadcastNet& net, const LinkCost& cost, const coll::Tree& tree);
    Loss harm_of(const BroadcastNet& net, const coll::Plan& plan) const;
    bool is_plain() const { return seed_ == 1; }
    // In odd seeds the network notifies no peer of a death.
    Duration detection() const { return seed_ % 2 == 0 ? kill_detection : hang_detection; }

    const std::uint64_t seed_;
    const std::uint32_t n_;
    const bool verbose_;
    base::SeededRandom random_;
    std::shared_ptr<coll::Plan> plan_;
    RuleResults results_;
    SimRun run_;
    StateBytes state_;
    Json models_ = Json::array();
    base::TraceHash trace_;
};

GroupView view_of(std::uint32_t n) {
    std::vector<Member> members(n);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members[rank].rank = rank;
        members[rank].uris.push_back("sim://" + std::to_string(rank));
    }
    return GroupView::make("bcast", 1, std::move(members)).value();
}

SimRun BcastRun::run() {
    const GroupView view = view_of(n_);
    const auto root = static_cast<std::uint32_t>(random_.next() % n_);
    plan_ = std::make_shared<coll::Plan>();
    plan_->rank_order =
        std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, root, false});
    plan_->view = view.digest();
    plan_->group = method_hash(view.name());
    plan_->epoch = view.epoch();
    plan_->method = method_hash("weft.Sim/Broadcast");
    for (const LinkCost& cost : networks) over(cost);
    run_.figures["state_bytes_mean"] =
        static_cast<double>(state_.total) / (static_cast<double>(n_) * std::size(networks));
    run_.figures["state_bytes_max"] = state_.most;
    run_.figures["operation_bytes"] = sizeof(coll::MemberDriver) - sizeof(coll::CollectiveState);
    run_.figures["models"] = std::move(models_);
    run_.broken = results_.broken();
    run_.tallies = results_.tallies();
    run_.trace_hash = trace_.value();
    return std::move(run_);
}

void BcastRun::over(const LinkCost& cost) {
    plan_->tree = exact_tree(cost);
    if (is_plain()) learn(cost);
    const Duration plain = time_of(n_, cost, as_split(plan_->tree)).acknowledged;
    BroadcastNet::Setup setup{plan_, cost, detection(), {}, time_in_all};
    if (!is_plain()) setup.deaths = draw_deaths(*plan_->rank_order, plain);
    run_.faults += setup.deaths.size();
    BroadcastNet net(std::move(setup));
    play(net);
    const Loss harm = harm_of(net, *plan_);
    if (!is_plain()) {
        const Duration allowed = detection() * (harm.chain + 1) + 2 * plain;
        results_.hold(net.acknowledged() <= allowed, Rule::heals_in_time, [&] {
            return text_of(net.acknowledged()) + " with " + std::to_string(harm.chain) +
                   " dead ranks above one another";
        });
    }
    measure(net, cost, plan_->tree);
    models_.back()["dead_inner"] = harm.inner;
    models_.back()["dead_above_one_another"] = harm.chain;
}

void BcastRun::play(BroadcastNet& net) {
    net.run();
    run_.calls += net.requests();
    run_.virtual_time += net.ended();
    trace_.mix(net.trace_hash());
    validate(net, *plan_->rank_order);
}

// Makes the plan's tree the one that a group chooses after a few calls.
void BcastRun::learn(const LinkCost& cost) {
    coll::Costs costs;
    for (int run = 0; run < training_runs; ++run) {
        plan_->tree = costs.tree(n_, body_bytes);
        BroadcastNet net({plan_, cost, detection(), {}, time_in_all});
        play(net);
        costs.note(body_bytes, net.measured());
    }
    plan_->tree = costs.tree(n_, body_bytes);
}

// At moments when a broadcast without faults would be under way.
std::vector<Death> BcastRun::draw_deaths(const coll::RankOrder& rank_order, Duration within) {
    const std::uint32_t root = rank_order.at(0).rank;
    std::set<std::uint32_t> ranks;
    const std::uint32_t count = std::min(std::max(n_ / 100, 1u), n_ - 1);
    while (ranks.size() < count) {
        const auto rank = static_cast<std::uint32_t>(random_.next() % n_);
        if (rank != root) ranks.insert(rank);
    }
    std::vector<Death> deaths;
    for (const std::uint32_t rank : ranks) {
        const auto after = static_cast<std::uint64_t>(within.count()) + 1;
        const Duration at(static_cast<std::int64_t>(random_.next() % after));
        deaths.push_back({rank, BroadcastNet::start + at});
        if (verbose_) std::fprintf(stderr, "rank %u dies at %.1f us\n", rank, us(at));
    }
    return deaths;
}

// ---- checks ------------------------------------------------------------------------------------

void BcastRun::validate(const BroadcastNet& net, const coll::RankOrder& rank_order) {
    results_.hold(net.reports() == 1 && net.malformed() == 0 && net.outcomes().size() == n_,
                  Rule::collectives_are_back, [&] {
                      return std::to_string(net.reports()) + " ends with " +
                             std::to_string(net.outcomes().size()) + " outcomes, " +
                             std::to_string(net.malformed()) + " malformed messages";
                  });
    results_.hold(net.is_over(), Rule::collectives_are_back,
                  [] { return std::string("a rank never completed"); });
    for (const coll::Outcome& outcome : net.outcomes()) {
        const std::uint32_t rank = rank_order.at(outcome.position).rank;
        validate_rank(net.history(rank), outcome, rank);
    }
}

void BcastRun::validate_rank(const RankHistory& history, const coll::Outcome& outcome,
                             std::uint32_t rank) {
    const Status& status = outcome.status;
    const auto seen = [&] {
        return "rank " + std::to_string(rank) + " ran it " + std::to_string(history.runs) +
               " times, " + status.to_string();
    };
    results_.hold(history.runs <= 1, Rule::no_rank_runs_twice, seen);
    if (history.died == never) {
        results_.hold(history.runs == 1 && status.ok(), Rule::live_ranks_run_once, seen);
    } else if (history.answered > history.died) {
        results_.hold(!status.ok(), Rule::dead_ranks_never_succeed, seen);
    }
    if (status.ok()) {
        results_.hold(history.runs == 1, Rule::ok_was_executed, seen);
    } else if (status.effect() == Effect::none) {
        results_.hold(history.runs == 0, Rule::none_was_not_executed, seen);
    }
}

Loss BcastRun::harm_of(const BroadcastNet& net, const coll::Plan& plan) const {
    std::vector<bool> is_dead(n_);
    for (std::uint32_t at = 0; at < n_; ++at) {
        is_dead[at] = net.history(plan.rank_order->at(at).rank).died != never;
    }
    Loss harm;
    add_harm({0, n_}, 0, is_dead, plan.tree, harm);
    return harm;
}

// ---- measurements ------------------------------------------------------------------------------

void BcastRun::measure(const BroadcastNet& net, const LinkCost& cost, const coll::Tree& tree) {
    const Duration bound = least_time(n_, cost);
    StateBytes state;
    std::uint64_t dead = 0;
    for (std::uint32_t rank = 0; rank < n_; ++rank) {
        const RankHistory history = net.history(rank);
        state.total += history.state_bytes;
        state.most = std::max(state.most, history.state_bytes);
        dead += history.died != never;
    }
    state_.total += state.total;
    state_.most = std::max(state_.most, state.most);
    Json model;
    model["busy_us"] = us(cost.busy);
    model["latency_us"] = us(cost.latency);
    model["delivered_us"] = us(net.delivered());
    model["acknowledged_us"] = us(net.acknowledged());
    model["bound_us"] = us(bound);
    model["messages"] = net.messages();
    model["dead"] = dead;
    if (is_plain()) {
        validate_cost(net, static_cast<double>(state.total) / n_, ratio(net.delivered(), bound));
        model["over_bound"] = ratio(net.delivered(), bound);
        model["default_over_bound"] = over_bound(cost, coll::Costs().tree(n_, body_bytes));
        model["exact_over_bound"] = over_bound(cost, exact_tree(cost));
        model["tree_latency_sends"] = tree.latency / 4.0;
        const std::vector<Order> orders = compare(n_, cost, tree);
        model["orders"] = as_json(orders);
        run_.table += table_of(net, cost, bound, orders);
    }
    models_.push_back(std::move(model));
}

// By the model, for another tree.
double BcastRun::over_bound(const LinkCost& cost, const coll::Tree& tree) const {
    return ratio(time_of(n_, cost, as_split(tree)).delivered, least_time(n_, cost));
}

void BcastRun::validate_cost(const BroadcastNet& net, double state_bytes_mean, double over_bound) {
    results_.hold(state_bytes_mean <= state_bytes_mean_max, Rule::state_is_small,
                  [&] { return std::to_string(state_bytes_mean) + " bytes"; });
    results_.hold(over_bound <= over_bound_max, Rule::bound_is_near,
                  [&] { return std::to_string(over_bound) + " times the least time"; });
    results_.hold(net.messages() == 2 * (std::uint64_t{n_} - 1), Rule::two_messages_each,
                  [&] { return std::to_string(net.messages()) + " messages"; });
    run_.over_bound = std::max(run_.over_bound.value_or(0), over_bound);
}

}  // namespace

SimRun run_bcast_scenario(std::uint64_t seed, const SimOptions& options) {
    return BcastRun(seed, options).run();
}

}  // namespace weft::scenarios
