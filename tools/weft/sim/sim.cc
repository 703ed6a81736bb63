// `weft sim`: runs a scenario under faults, and checks its invariants.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cli/number.h"
#include "cli/progress_bar.h"
#include "cli/text.h"
#include "commands.h"
#include "simulation/rules.h"
#include "simulation/scenario.h"

namespace weft::tool {

namespace {

using namespace scenarios;

struct NamedScenario {
    const char* name;
    Scenario run;
    std::uint64_t seeds = 100;  // The default of --seeds.
};
constexpr NamedScenario scenarios[] = {
    {"rpc", run_rpc_scenario},
    {"bulk", run_bulk_scenario},
    {"group", run_group_scenario},
    {"bcast", run_bcast_scenario, 1},
};

std::vector<std::string> scenario_names() {
    std::vector<std::string> names;
    for (const NamedScenario& row : scenarios) names.emplace_back(row.name);
    return names;
}

struct Request {
    SimOptions options;
    std::uint64_t seeds = 0;  // 0: as many as the scenario has.
    std::uint64_t first_seed = 1;
    unsigned jobs = 0;
    bool rules = false;  // Print how often each was checked.
};

// All seeds together.
struct Sum {
    std::uint64_t failed = 0;
    std::uint64_t first_failing = 0;  // The least failed seed; meaningless if none failed.
    std::uint64_t calls = 0;
    std::uint64_t faults = 0;
    std::uint64_t trace_hash = 0;
    double virtual_s = 0;
    double wall_s = 0;
    std::optional<double> over_bound;  // The worst.
    std::uint64_t figures_of = 0;      // The least seed with these figures.
    Json figures;
    std::string table;
    Tallies tallies{};

    void add(SimRun run) {
        if (run.over_bound) over_bound = std::max(over_bound.value_or(0), *run.over_bound);
        if (!run.figures.is_null() && (figures.is_null() || run.seed < figures_of)) {
            figures_of = run.seed;
            figures = std::move(run.figures);
            table = std::move(run.table);
        }
        if (!run.broken.empty()) {
            first_failing = failed == 0 ? run.seed : std::min(first_failing, run.seed);
            ++failed;
        }
        calls += run.calls;
        faults += run.faults;
        trace_hash ^= run.trace_hash * (2 * run.seed + 1);  // Independent of their order.
        virtual_s += std::chrono::duration<double>(run.virtual_time).count();
        for (std::size_t i = 0; i < rules_count; ++i) {
            tallies[i].checked += run.tallies[i].checked;
            tallies[i].broken += run.tallies[i].broken;
        }
    }
};

void print_broken(const SimRun& run, const Request& request, bool is_first) {
    std::fprintf(stderr, "seed %llu:\n", static_cast<unsigned long long>(run.seed));
    for (const std::string& one : run.broken) std::fprintf(stderr, "  %s\n", one.c_str());
    // One flight is enough to begin with: a run of another seed alone prints its own.
    if (is_first && !run.flight.empty()) {
        std::fprintf(stderr, "  the last events before the first violation:\n");
        for (const std::string& one : run.flight) std::fprintf(stderr, "  %s\n", one.c_str());
    }
    std::fprintf(stderr, "  again: weft sim --scenario %s --nodes %u --seeds 1 --first-seed %llu\n",
                 request.options.scenario.c_str(), request.options.nodes,
                 static_cast<unsigned long long>(run.seed));
}

Sum run_all(const Request& request, const NamedScenario& scenario) {
    const auto start = std::chrono::steady_clock::now();
    std::atomic<std::uint64_t> next{0};
    std::mutex mutex;  // Guards the sum and the output.
    Sum sum;
    ProgressBar progress(request.seeds, !request.options.verbose, ProgressBar::Unit::seeds);
    const auto work = [&] {
        for (std::uint64_t i = next++; i < request.seeds; i = next++) {
            const SimRun run = scenario.run(request.first_seed + i, request.options);
            const std::lock_guard lock(mutex);
            sum.add(run);
            if (!run.broken.empty()) print_broken(run, request, sum.failed == 1);
            progress.add(1);
        }
    };
    const unsigned jobs = request.jobs ? request.jobs : std::thread::hardware_concurrency();
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::min<std::uint64_t>(std::max(jobs, 1u), request.seeds); ++i) {
        threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
    sum.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return sum;
}

std::string hex(std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

// The rules that this scenario checks.
template <class Print>
void for_each_rule(const Request& request, const Sum& sum, Print&& print) {
    for (std::size_t i = 0; i < rules_count; ++i) {
        const auto rule = static_cast<Rule>(i);
        if (is_checked_in(rule, request.options.scenario)) print(rule, sum.tallies[i]);
    }
}

void print_rules(const Request& request, const Sum& sum) {
    std::printf("%-24s %12s %8s  %s\n", "invariant", "checked", "broken", "meaning");
    for_each_rule(request, sum, [](Rule rule, const Tally& tally) {
        std::printf("%-24s %12llu %8llu  %s\n", std::string(name_of(rule)).c_str(),
                    static_cast<unsigned long long>(tally.checked),
                    static_cast<unsigned long long>(tally.broken),
                    std::string(meaning_of(rule)).c_str());
    });
}

Json rules_as_json(const Request& request, const Sum& sum) {
    Json rules = Json::array();
    for_each_rule(request, sum, [&](Rule rule, const Tally& tally) {
        Json row;
        row["name"] = name_of(rule);
        row["judged"] = tally.checked;
        row["broken"] = tally.broken;
        rules.push_back(std::move(row));
    });
    return rules;
}

void report(const Request& request, const Sum& sum, Invocation& invocation) {
    if (invocation.json) {
        Json& object = invocation.answer;
        object["scenario"] = request.options.scenario;
        object["seeds"] = request.seeds;
        object["first_seed"] = request.first_seed;
        object["nodes"] = request.options.nodes;
        object["failed"] = sum.failed;
        object["first_failing_seed"] = sum.failed ? Json(sum.first_failing) : Json(nullptr);
        object["calls"] = sum.calls;
        object["faults"] = sum.faults;
        object["trace_hash"] = hex(sum.trace_hash);
        object["virtual_s"] = sum.virtual_s;
        object["wall_s"] = sum.wall_s;
        object["over_bound"] = sum.over_bound ? Json(*sum.over_bound) : Json(nullptr);
        if (sum.figures.is_object()) object.update(sum.figures);
        if (request.rules) object["rules"] = rules_as_json(request, sum);
        return;
    }
    std::fputs(sum.table.c_str(), stdout);
    if (request.rules) print_rules(request, sum);
    std::printf(
        "%s: %llu of %llu seeds from %llu on hold, %u nodes; %llu calls, %llu faults, %.0f virtual "
        "seconds in %.1f (%.1f seeds a second); trace %s\n",
        request.options.scenario.c_str(),
        static_cast<unsigned long long>(request.seeds - sum.failed),
        static_cast<unsigned long long>(request.seeds),
        static_cast<unsigned long long>(request.first_seed), request.options.nodes,
        static_cast<unsigned long long>(sum.calls), static_cast<unsigned long long>(sum.faults),
        sum.virtual_s, sum.wall_s, static_cast<double>(request.seeds) / sum.wall_s,
        hex(sum.trace_hash).c_str());
}

void run_and_print(Request request, Invocation& invocation) {
    const auto* const row = std::find_if(
        std::begin(scenarios), std::end(scenarios),
        [&](const NamedScenario& one) { return request.options.scenario == one.name; });
    if (request.seeds == 0) request.seeds = row->seeds;
    const Sum sum = run_all(request, *row);
    report(request, sum, invocation);
    if (sum.failed == 0) return;
    invocation.status =
        fail(Code::internal, std::to_string(sum.failed) + " of " + std::to_string(request.seeds) +
                                 " seeds broke an invariant, the first is " +
                                 std::to_string(sum.first_failing));
}

}  // namespace

void set_up_sim(CLI::App& command, Invocation& invocation) {
    auto request = std::make_shared<Request>();
    describe_sim(command, invocation);
    command.footer(
        "Each seed is one run: a workload, a choice of faults, then healing. The same seed gives "
        "the same run,\nbit for bit.\nExample: weft sim --scenario rpc --seeds 500 --nodes 16");
    command.add_option("--scenario", request->options.scenario, "The workload")
        ->check(CLI::IsMember(scenario_names()))
        ->capture_default_str();
    command.add_option("--seeds", request->seeds, "How many runs (default: 100, of bcast 1)")
        ->transform(whole_number(1, std::uint64_t{1} << 40));
    command.add_option("--first-seed", request->first_seed, "The seed of the first")
        ->transform(whole_number(0))
        ->capture_default_str();
    command.add_option("--nodes", request->options.nodes, "Hosts in each")
        ->transform(whole_number(2, 1 << 20))
        ->capture_default_str();
    command.add_option("--jobs", request->jobs, "Runs at a time; 0: one a cpu")
        ->transform(whole_number(0, 1024))
        ->capture_default_str();
    command.add_flag("--verbose", request->options.verbose,
                     "Print faults and failed calls as they happen; for one seed");
    command.add_flag("--rules", request->rules, "Print how often each invariant was checked");
    command.callback([request, &invocation] { run_and_print(*request, invocation); });
}

}  // namespace weft::tool
