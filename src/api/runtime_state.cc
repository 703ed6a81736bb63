// The state text of a runtime with several contexts, and their loads.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <tuple>

#include "api/runtime_impl.h"
#include "base/assert.h"

namespace weft::api {

namespace {

// The state text has the details of so many contexts, the busiest; they share the lines.
constexpr std::size_t detailed_max = 4;

// A context that is late writes its report in vain.
struct Reports {
    explicit Reports(std::size_t contexts) : all(contexts) {}
    std::mutex mutex;  // Guards the rest.
    std::condition_variable changed;
    std::vector<std::optional<Node::Report>> all;
    std::size_t missing = 0;
};

std::string rate_text(double per_second) {
    return std::to_string(static_cast<std::uint64_t>(per_second + 0.5));
}

std::string text_of(const ContextLoad& load) {
    return rate_text(load.served) + " calls/s served, " + rate_text(load.made) + " made, " +
           std::to_string(load.connections) + " connections";
}

// The numbers of the contexts, the busiest first.
std::vector<std::size_t> by_load(const std::vector<ContextLoad>& loads) {
    std::vector<std::size_t> order(loads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        const auto key = [&](const ContextLoad& load) {
            return std::tuple(load.is_blocked, load.busy, load.served + load.made,
                              load.connections);
        };
        return key(loads[a]) > key(loads[b]);
    });
    return order;
}

}  // namespace

// Thread: any.
std::vector<ContextLoad> RuntimeImpl::loads() const {
    std::vector<ContextLoad> loads(nodes.size());
    if (node.context.is_forked()) return loads;
    const TimePoint now = commons.parts.clock->now();
    for (const auto& one : nodes) {
        // Without threads of its own, load() is for doors: which contexts some thread turns.
        const na::ContextLoad busy = commons.options.manual ? na::ContextLoad() : one->load(now);
        const core::CallRates rates = one->driver.call_rates(now);
        loads[one->index] = {rates.served, rates.made,
                             busy.is_blocked ? 1.0 : static_cast<double>(busy.busy_share) / 1000,
                             one->context.connections(), busy.is_blocked};
    }
    return loads;
}

// Asks all contexts at once, for so many lines of each, and waits for report_timeout in all. A turn
// waits for no other context, which may wait for it.
std::vector<std::optional<Node::Report>> RuntimeImpl::collect_reports(
    const std::vector<std::size_t>& lines) {
    const auto reports = std::make_shared<Reports>(nodes.size());
    const bool in_turn = is_entered();
    const Node& here = current();
    for (const auto& one : nodes) {
        if (in_turn && one.get() != &here) continue;
        {
            const std::lock_guard lock(reports->mutex);
            ++reports->missing;
        }
        one->report(lines[one->index], [reports, index = one->index](Node::Report report) {
            const std::lock_guard lock(reports->mutex);
            reports->all[index] = std::move(report);
            if (--reports->missing == 0) reports->changed.notify_one();
        });
    }
    std::unique_lock lock(reports->mutex);
    reports->changed.wait_for(lock, Node::report_timeout, [&] { return reports->missing == 0; });
    return reports->all;  // A copy: late contexts write to the original.
}

std::string RuntimeImpl::state() {
    if (nodes.size() == 1 || node.context.is_forked()) return node.state();
    const std::vector<ContextLoad> loads = this->loads();
    const std::vector<std::size_t> order = by_load(loads);
    const std::size_t detailed = std::min(nodes.size(), detailed_max);
    const std::string of_all = " of " + std::to_string(nodes.size());
    std::vector<std::size_t> lines(nodes.size(), 0);
    for (std::size_t i = 0; i < detailed; ++i) lines[order[i]] = Node::state_lines_max / detailed;
    const bool in_turn = is_entered();
    const bool is_turned_by_hand = commons.options.manual && !commons.parts.advance_time;
    if (in_turn) lines[current().index] = Node::state_lines_max;
    const std::vector<std::optional<Node::Report>> reports = collect_reports(lines);

    base::Figures sums;
    ContextLoad all;
    std::string listed, details;
    for (const std::size_t at : order) {
        all.served += loads[at].served;
        all.made += loads[at].made;
        all.connections += loads[at].connections;
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t at = order[i];
        const std::optional<Node::Report>& report = reports[at];
        const std::string name = "context " + std::to_string(at) + of_all;
        if (report) sums.add(report->figures);
        if (report && !report->details.empty()) details += name + ":\n" + report->details;
        if (i >= Node::state_lines_max) continue;
        listed += "  " + name + ": busy " +
                  std::to_string(static_cast<int>(loads[at].busy * 1000 + 0.5)) + " of 1000, " +
                  text_of(loads[at]);
        if (!report && !in_turn) listed += "; " + nodes[at]->why_no_report();
        if (report && is_turned_by_hand && !nodes[at]->context.has_turned())
            listed += "; no thread has turned it (RuntimeOptions::manual)";
        listed += "\n";
        if (report && !report->advice.empty()) listed += "    " + report->advice + "\n";
    }
    if (order.size() > Node::state_lines_max)
        listed += "  and " + std::to_string(order.size() - Node::state_lines_max) + " more\n";
    const auto answered = static_cast<std::size_t>(
        std::ranges::count_if(reports, [](const auto& one) { return one.has_value(); }));
    return std::to_string(nodes.size()) + " contexts: " + text_of(all) + "\n" +
           (in_turn ? "a turn of context " + std::to_string(current().index) +
                          " does not wait for the others: read the state on another thread\n"
                    : "sums of " + std::to_string(answered) + of_all + " contexts:\n") +
           (answered == 0 ? "" : sums.text()) + "the busiest first:\n" + listed + details;
}

}  // namespace weft::api
