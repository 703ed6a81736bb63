#include "suite/run.h"

#include <cstdio>
#include <ctime>
#include <functional>

#include "cli/own_uri.h"
#include "na/verbs_optimizations.h"
#include "perf/first_line.h"
#include "perf/metrics.h"
#include "perf/na.h"
#include "suite/machine.h"
#include "suite/suite_client.h"

namespace weft::tool {

namespace {

constexpr int rounds = 3;
constexpr std::uint32_t many_calls = 64;
constexpr std::uint64_t kib = 1024;

class SuiteRun {
  public:
    SuiteRun(const PerfOptions& options, SuiteClient suite_client, const SuiteHost& suite_host)
        : suite_client_(std::move(suite_client)) {
        base_.transport = "verbs";
        base_.seconds = options.seconds;
        base_.wait = suite_host.cpus.two() ? WaitMode::spin : WaitMode::adaptive;
        results_.seconds = options.seconds;
        results_.one_host = options.server.empty();
    }

    Result<SuiteResults> run(const SuiteHost& suite_host) {
        Result<Json> server = suite_client_.machine();
        if (!server) return std::move(server).status();
        results_.server = *std::move(server);
        results_.client = describe_machine(suite_host);
        const std::string version = perftest_version();
        results_.client["perftest"] = version.empty() ? Json(nullptr) : Json(version);
        plan();
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            std::fprintf(stderr, "suite: %zu of %zu: %s\n", i + 1, steps_.size(),
                         steps_[i].name.c_str());
            note(steps_[i].name, steps_[i].run());
        }
        note("the end of the listening side's servers", suite_client_.stop());
        Result<Json> after = suite_client_.machine();
        if (after) results_.server_after = *std::move(after);
        else note("the last query of the listening host", after.status());
        results_.client_after = describe_machine(suite_host);
        return std::move(results_);
    }

  private:
    struct Step {
        std::string name;
        std::function<Status()> run;
    };

    void add(std::string name, std::function<Status()> run) {
        steps_.push_back({std::move(name), std::move(run)});
    }

    void note(const std::string& what, const Status& status) {
        if (status.ok()) return;
        results_.missing.push_back(what + ": " + status.to_string());
        if (results_.first_failure.ok()) results_.first_failure = Status(status).in(what);
    }

    // Whether both sides have perftest; if not, notes what is missing. Call once.
    bool has_perftest() {
        const bool here = results_.client["perftest"].is_string();
        const auto there = results_.server.find("perftest");
        const bool both = here && there != results_.server.end() && there->is_string();
        if (!both) {
            results_.missing.push_back(
                std::string("perftest beside weft: it is ") +
                (here ? "not installed, or not allowed, on the listening side (--perftest)"
                      : "not installed on the measuring side (the package perftest)"));
        }
        return both;
    }

    void plan() {
        const bool beside = has_perftest();
        for (int round = 1; round <= rounds; ++round) {
            const std::string of =
                ", round " + std::to_string(round) + " of " + std::to_string(rounds);
            for (const Perftest test : perftests) {
                if (!beside) break;
                add(name_of(test) + of, [this, test] { return run_perftest(test); });
            }
            add("the bare provider" + of, [this] { return run_bare(); });
            add("calls of 64 B" + of, [this] { return run_calls(); });
            add("gets and puts of 64 KiB and 1 MiB" + of, [this] { return run_transfers(); });
        }
        add("operations of the devices", [this] { return run_switch(""); });
        for (const na::VerbsOptimizations::Switch& one : na::VerbsOptimizations::switches()) {
            const std::string name(one.name);
            add("without " + name, [this, name] { return run_switch(name); });
        }
    }

    PerfOptions with(const char* metric, std::uint64_t size, std::uint32_t inflight) const {
        PerfOptions options = base_;
        options.metric = metric;
        options.size = size;
        options.inflight = inflight;
        return options;
    }

    // Errors: the measurement's, or that of its first failed operation.
    Result<Measurement> measure(const PerfOptions& options) const {
        Result<Measurement> measured = options.is_bulk() ? measure_bulk(options, uri_)
                                       : options.metric == "na"
                                           ? measure_na(options, uri_, options.window())
                                           : measure_rpc(options, uri_);
        if (!measured) return measured;
        if (measured->failed > 0) return measured->first_failure;
        if (measured->latencies.count() == 0) {
            return fail(Code::deadline_exceeded,
                        "no operation completed within " + std::to_string(options.seconds) + " s");
        }
        return measured;
    }

    static double mib_per_s(const Measurement& measured, const PerfOptions& options) {
        return measured.rate() * static_cast<double>(options.size) / 1048576;
    }

    Status start(bool bare, const std::string& without) {
        Result<std::string> uri = suite_client_.serve(bare, without);
        if (!uri) return std::move(uri).status();
        uri_ = *std::move(uri);
        return {};
    }

    Status run_perftest(Perftest test) {
        Result<double> figure = suite_client_.run(test);
        if (!figure) return std::move(figure).status();
        results_.rounds.perftest[static_cast<std::size_t>(test)].rounds.push_back(*figure);
        return {};
    }

    Status run_bare() {
        if (Status status = start(true, ""); !status.ok()) return status;
        Result<Measurement> measured = measure(with("na", 64, 1));
        if (!measured) return std::move(measured).status();
        results_.rounds.bare_ns.rounds.push_back(measured->ns(0.5));
        return {};
    }

    Status run_calls() {
        if (Status status = start(false, ""); !status.ok()) return status;
        Result<Measurement> one_call = measure(with("rpc", 64, 1));
        if (!one_call) return std::move(one_call).status();
        results_.rounds.round_trip_ns.rounds.push_back(one_call->ns(0.5));
        results_.rounds.round_trip_p99_ns.rounds.push_back(one_call->ns(0.99));
        Result<Measurement> many = measure(with("rpc", 64, many_calls));
        if (!many) return std::move(many).status();
        results_.rounds.rate.rounds.push_back(many->rate());
        return {};
    }

    // With the server that run_calls() started, if that succeeded.
    Status run_transfers() {
        RoundsOf& to = results_.rounds;
        const struct {
            PerfOptions options;
            Series& into;
        } all[] = {{with("get", 64 * kib, small_transfers), to.get_64k},
                   {with("get", 1024 * kib, large_transfers), to.get_1m},
                   {with("put", 64 * kib, small_transfers), to.put_64k},
                   {with("put", 1024 * kib, large_transfers), to.put_1m}};
        for (const auto& one : all) {
            Result<Measurement> measured = measure(one.options);
            if (!measured) return std::move(measured).status();
            one.into.rounds.push_back(mib_per_s(*measured, one.options));
        }
        return {};
    }

    // After a failure the row keeps the figures before it.
    Status run_switch(const std::string& without) {
        SwitchResult& row = results_.switches.emplace_back();
        row.without = without;
        if (Status status = start(false, without); !status.ok()) return status;
        const auto run = [&](PerfOptions options, std::vector<CounterRow>* device_counters,
                             auto&& take) -> Status {
            options.without = without;
            options.device_counters = device_counters != nullptr;
            Result<Measurement> measured = measure(options);
            if (!measured) return std::move(measured).status();
            if (device_counters) *device_counters = measured->device_counters;
            take(*measured, options);
            return {};
        };
        Status status = run(with("rpc", 64, 1), &row.one_call,
                            [&](auto& measured, auto&) { row.round_trip_ns = measured.ns(0.5); });
        if (!status.ok()) return status;
        status = run(with("rpc", 64, many_calls), &row.many_calls,
                     [&](auto& measured, auto&) { row.rate = measured.rate(); });
        if (!status.ok()) return status;
        status =
            run(with("get", 1024 * kib, large_transfers), &row.get,
                [&](auto& measured, auto& options) { row.get_1m = mib_per_s(measured, options); });
        if (!status.ok()) return status;
        return run(
            with("put", 1024 * kib, large_transfers), nullptr,
            [&](auto& measured, auto& options) { row.put_1m = mib_per_s(measured, options); });
    }

    SuiteClient suite_client_;
    PerfOptions base_;
    std::string uri_;  // Of the server that is measured.
    std::vector<Step> steps_;
    SuiteResults results_;
};

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char text[32] = "";
    if (::gmtime_r(&now, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
    return text;
}

// Starts the listening end on this machine; returns its URI.
Result<std::string> listen_here(std::optional<Child>& child) {
    const std::string uri = own_uri("verbs", "suite");
    if (uri.empty()) {
        return fail(Code::unavailable,
                    "no RDMA device of this machine has an address: see `weft info`");
    }
    Result<Child> started = Child::start(
        {"/proc/self/exe", "perf", "--suite", "rdma", "--listen", uri, "--perftest"}, {});
    if (!started) return std::move(started).status();
    child = *std::move(started);
    Result<std::string> line = child->line(20s);
    return read_first_line(line ? *line : "");
}

}  // namespace

Result<SuiteResults> measure_suite(const PerfOptions& options) {
    std::optional<Child> own;
    std::string uri = options.server;
    if (uri.empty()) {
        Result<std::string> listening = listen_here(own);
        if (!listening) return std::move(listening).status();
        uri = *std::move(listening);
    }
    Result<SuiteClient> suite_client = SuiteClient::of(uri);
    if (!suite_client) return std::move(suite_client).status();
    Result<SuiteHost> suite_host =
        own ? find_suite_host(suite_client->host()) : find_suite_host_towards(suite_client->host());
    if (!suite_host) return std::move(suite_host).status();
    (void)bind_to_cpu(suite_host->cpus.client);
    SuiteRun run(options, *std::move(suite_client), *suite_host);
    Result<SuiteResults> results = run.run(*suite_host);
    if (results) results->date = today();
    return results;
}

}  // namespace weft::tool
