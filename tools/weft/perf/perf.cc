// `weft perf`: one metric, and its floor before and after, in its own pair of processes.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/cpus.h"
#include "cli/number.h"
#include "cli/topology.h"
#include "commands.h"
#include "na/address.h"
#include "na/hello.h"
#include "na/verbs_optimizations.h"
#include "perf/floor.h"
#include "perf/metrics.h"
#include "perf/na.h"
#include "perf/report.h"
#include "perf/server_process.h"
#include "perf/service.h"

#ifdef WEFT_WITH_VERBS
#include "suite/suite.h"
#endif

namespace weft::tool {

namespace {

// Two of these, the start of the server and the warm-up stay under half a second.
constexpr Duration floor_budget = 25ms;
// The most that one server exposes.
constexpr std::uint64_t size_max = std::uint64_t{4} << 30;

Result<Measurement> measure(const PerfOptions& options, const std::string& uri) {
    if (options.metric == "rpc") return measure_rpc(options, uri);
    if (options.metric == "proto") return measure_proto(options, uri);
    if (options.metric == "na") return measure_na(options, uri, options.window());
    return measure_bulk(options, uri);
}

Result<Measurement> measure_with_server(const PerfOptions& options, std::vector<int> cpus) {
    if (options.metric == "bcast") return measure_broadcast(options);
    if (!options.server.empty()) return measure(options, options.server);
    Result<ServerProcess> server =
        ServerProcess::start(options, std::move(cpus), options.metric == "na");
    if (!server) return std::move(server).status();
    return measure(options, server->uri());
}

Status validate(const Measurement& measured) {
    if (measured.failed == 0) return {};
    return Status(measured.first_failure)
        .in(std::to_string(measured.failed) + " of " + std::to_string(measured.started) +
            " operations failed; the first");
}

// Checks that this process may run on each cpu of --cpus.
Status check_cpus(const std::vector<int>& wanted) {
    const std::vector<int> allowed = allowed_cpus();
    for (const int cpu : wanted) {
        if (allowed.empty() || std::ranges::find(allowed, cpu) != allowed.end()) continue;
        std::string list;
        for (const int one : allowed) list += (list.empty() ? "" : ",") + std::to_string(one);
        return fail(Code::invalid_argument, "--cpus: cpu " + std::to_string(cpu) +
                                                " can't be used; this process may run on " + list);
    }
    return {};
}

Result<PerfReport> run(PerfOptions options) {
    if (!options.server.empty()) {
        Result<na::Address> address = na::parse_address(options.server);
        if (!address) return std::move(address).status();
        options.transport = address->scheme;
    }
    PerfReport report;
    report.options = options;
    const CpuPair cpus =
        options.cpus.empty() ? pick_cpus() : CpuPair{options.cpus[0], options.cpus[1]};
    report.note = why_cpus_hurt(cpus);
    std::vector<int> server_cpus = {cpus.server};
    if (options.contexts != 1) server_cpus = allowed_cpus();
    if (options.metric != "bcast" && !bind_to_cpu(cpus.client)) {
        if (!options.cpus.empty()) {
            return fail(Code::failed_precondition,
                        "binding to cpu " + std::to_string(cpus.client) + " is refused here");
        }
        report.note = "binding to a cpu is refused here: the figures include the scheduler";
    }
    const bool floor_only = options.metric == "floor";
    const Duration budget = floor_only ? options.window() / 2 : floor_budget;
    Result<Floor> before = measure_floor(options, cpus, budget);
    if (!before) return std::move(before).status();
    report.before = *before;
    if (!floor_only) {
        Result<Measurement> measured = measure_with_server(options, std::move(server_cpus));
        if (!measured) return std::move(measured).status();
        if (Status status = validate(*measured); !status.ok()) return status;
        report.measured = *std::move(measured);
    }
    Result<Floor> after = measure_floor(options, cpus, budget);
    if (!after) return std::move(after).status();
    report.after = *after;
    return report;
}

void start_suite([[maybe_unused]] const PerfOptions& options, Invocation& invocation) {
#ifdef WEFT_WITH_VERBS
    run_suite(options, invocation);
#else
    invocation.status =
        fail(Code::unimplemented, "this build of weft has no verbs (-DWEFT_VERBS=ON)");
#endif
}

void run_and_print(const PerfOptions& options, Invocation& invocation) {
    invocation.status = check_cpus(options.cpus);
    if (!invocation.status.ok()) return;
    if (!options.suite.empty()) {
        start_suite(options, invocation);
        return;
    }
    if (options.metric == "serve") {
        invocation.status = serve_perf(options);
        return;
    }
    Result<PerfReport> report = run(options);
    if (!report) {
        invocation.status = std::move(report).status();
    } else if (invocation.json) {
        invocation.answer = to_json(*report);
    } else {
        std::fputs(to_text(*report).c_str(), stdout);
    }
}

void add_broadcast_options(CLI::App& command, PerfOptions& options) {
    command.add_option("--ranks", options.ranks, "bcast: processes of the group")
        ->transform(whole_number(1, 256))
        ->capture_default_str();
    add_topology_options(command, options.topology, "bcast: ");
}

void add_scale_options(CLI::App& command, PerfOptions& options) {
    command
        .add_option("--contexts", options.contexts,
                    "rpc, serve: contexts of the server; 0: one for each cpu")
        ->transform(whole_number(0, na::contexts_max))
        ->capture_default_str();
    command
        .add_option("--clients", options.clients,
                    "rpc: connections, each with --inflight calls, turned by one thread")
        ->transform(whole_number(1, 256))
        ->capture_default_str();
    command.add_option("--work", options.work_us, "rpc: microseconds that each handler computes")
        ->check(decimal_number(0, perf_work_max / 1us))
        ->capture_default_str();
}

void add_options(CLI::App& command, PerfOptions& options) {
    command.add_option("metric", options.metric, "What to measure")
        ->check(CLI::IsMember({"rpc", "proto", "put", "get", "na", "floor", "bcast", "serve"}));
    command
        .add_option("--transport", options.transport, "sm, tcp, unix, verbs, ofi+tcp, ofi+verbs")
        ->capture_default_str();
    command.add_option("--size", options.size, "Bytes per operation: 64, 4KiB, 1MiB")
        ->transform(byte_count(0, size_max))
        ->capture_default_str();
    command
        .add_option("--reply-size", options.reply_size, "rpc, proto: bytes per reply, as --size")
        ->transform(byte_count(0, size_max));
    command.add_option("--inflight", options.inflight, "Operations in flight at any time")
        ->transform(whole_number(1, 65536))
        ->capture_default_str();
    command.add_option("--seconds", options.seconds, "How long to measure")
        ->check(decimal_number(0.001, 86400))
        ->capture_default_str();
    auto* spin = command.add_flag(
        "--spin", [&options](std::int64_t) { options.wait = WaitMode::spin; },
        "Both ends never sleep");
    auto* block = command.add_flag(
        "--block", [&options](std::int64_t) { options.wait = WaitMode::block; },
        "Both ends sleep at once; default: spin 20 us, then sleep");
    spin->excludes(block);
    command
        .add_option("--cpus", options.cpus,
                    "The client's cpu and the server's, as 0,1; default: the first two allowed")
        ->delimiter(',')
        ->expected(2)
        ->transform(whole_number(0, 8191));
    command
        .add_option_function<std::string>(
            "--memory",
            [&options](const std::string& kind) { options.private_memory = kind == "private"; },
            "put, get: the client's buffer, arena (default) or private (malloc)")
        ->check(CLI::IsMember({"arena", "private"}));
    command
        .add_option("--beside", options.beside,
                    "rpc: keep one transfer in flight beside the calls; MiB/s is its rate")
        ->check(CLI::IsMember({"put", "get"}));
    command.add_option("--beside-size", options.beside_size, "--beside: bytes of the transfer")
        ->transform(byte_count(1, size_max))
        ->capture_default_str();
    command.add_flag("--copied-floor", options.copied_floor,
                     "rpc: compare with a round trip that copies bodies as a call does");
    command.add_flag("--ledger", options.device_counters,
                     "verbs: count the operations of both devices for each measured operation");
    command
        .add_option("--without", options.without,
                    "verbs: turn off these optimizations: " + na::optimization_names())
        ->check([](const std::string& names) {
            const auto optimizations = na::optimizations_without(names);
            return optimizations ? std::string() : std::string(optimizations.status().text());
        });
    add_broadcast_options(command, options);
    add_scale_options(command, options);
    auto* server = command.add_option("--server", options.server,
                                      "Measure this server instead of starting one");
    command.add_option("--listen", options.listen, "serve, --suite: the address to listen at")
        ->excludes(server);
    command.add_flag("--bare", options.bare, "serve: the echo of the na metric");
}

void add_suite_options(CLI::App& command, PerfOptions& options) {
    command
        .add_option("--suite", options.suite,
                    "rdma: latency, rate, bandwidth beside perftest, and each mechanism turned off")
        ->check(CLI::IsMember({"rdma"}));
    command.add_option("--report", options.report, "--suite: write the report to this file")
        ->check(not_empty());
    command.add_flag("--perftest", options.perftest,
                     "--suite with --listen: the other side may start perftest's servers here");
}

void check_metric(const PerfOptions& options, bool has_contexts_option) {
    if (options.metric.empty() == options.suite.empty()) {
        throw CLI::RequiredError("a metric or --suite, one of them,");
    }
    const bool has_contexts = options.metric == "rpc" || options.metric == "serve";
    if ((options.contexts != 1 && !has_contexts) ||
        ((options.clients != 1 || options.work_us > 0) && options.metric != "rpc")) {
        throw CLI::ValidationError("--contexts, --clients and --work are options of rpc");
    }
    if (has_contexts_option && !options.server.empty()) {
        throw CLI::ValidationError(
            "--contexts are those of the server that this command starts: give the option to the "
            "`weft perf serve` of --server");
    }
    if (options.clients != 1 && (!options.beside.empty() || options.device_counters)) {
        throw CLI::ValidationError("--clients excludes --beside and --ledger");
    }
    if (options.metric == "serve" && options.listen.empty()) {
        throw CLI::RequiredError("--listen");
    }
}

}  // namespace

void set_up_perf(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<PerfOptions>();
    describe_perf(command, invocation);
    command.footer(
        "Metrics: rpc (bytes), proto (protobuf), put and get (one-sided bulk), na (bare provider), "
        "floor (the machine without weft), bcast (to a group, and back); serve is the other end "
        "for --server.\n"
        "Example: weft perf rpc --transport sm --size 64 --inflight 1 --seconds 2 --spin");
    add_options(command, *options);
    add_suite_options(command, *options);
    command.callback([options, &command, &invocation] {
        check_metric(*options, command.get_option("--contexts")->count() != 0);
        run_and_print(*options, invocation);
    });
}

}  // namespace weft::tool
