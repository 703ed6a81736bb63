// `weft info`: tests the capabilities of this build on this machine, and finds harmful limits.
#include <cstdio>
#include <cstdlib>

#include "api/environment.h"
#include "api/runtime_impl.h"
#include "base/cgroup.h"
#include "base/text.h"
#include "cli/cpus.h"
#include "cli/number.h"
#include "cli/text.h"
#include "commands.h"
#include "info/limits.h"
#include "info/numa.h"
#include "info/rdma.h"
#include "info/self_test.h"
#include "na/hello.h"
#include "ping.h"

extern char** environ;

namespace weft::tool {

namespace {

struct Transport {
    std::string scheme;
    na::Diagnosis diagnosis;
    std::optional<SelfTest> test;  // Only if `diagnosis` is usable.

    bool works() const { return diagnosis.usable && test && test->status.ok(); }
};

struct Ability {
    const char* name;
    bool na::Caps::*bit;
    const char* yes;
    const char* no;
};

constexpr Ability abilities[] = {
    {"rma", &na::Caps::rma, "one-sided transfers", "without one-sided transfers"},
    {"rma_private", &na::Caps::rma_private, "exposes any memory", "exposes arena memory only"},
    {"rma_checked", &na::Caps::rma_checked, "every access checked",
     "access granted range by range"},
    {"rma_survives", &na::Caps::rma_survives, "survives inaccessible memory",
     "exposed memory must stay accessible"},
    {"wait_fd", &na::Caps::wait_fd, "sleeps until woken", "polls while it waits"},
    {"reports_peer_death", &na::Caps::reports_peer_death, "detects a peer's death",
     "finds dead peers by heartbeat"},
    {"fences_region", &na::Caps::fences_region, "fences a region while peers live",
     "fences by requests to the peers"},
    {"fenced_by_end", &na::Caps::fenced_by_end, "its end is also a fence",
     "its end keeps memory that was not fenced"},
    {"sent_survives", &na::Caps::sent_survives, "sent messages outlive their sender",
     "its end waits for peers to confirm messages"},
    {"steers", &na::Caps::steers, "one address for all contexts", "serves on context 0 only"},
};

std::vector<Transport> examine_transports() {
    std::vector<Transport> transports;
    const api::RuntimeParts parts = api::production_parts();
    for (const auto& provider : parts.providers->all()) {
        Transport transport{std::string(provider->scheme()), provider->probe(), {}};
        if (transport.diagnosis.usable) transport.test = test_transport(transport.scheme);
        transports.push_back(std::move(transport));
    }
    return transports;
}

Json to_json(const Transport& transport) {
    Json json;
    json["scheme"] = transport.scheme;
    json["usable"] = transport.works();
    json["detail"] = transport.diagnosis.detail;
    json["self_test"] = nullptr;
    if (!transport.test) return json;
    const SelfTest& test = *transport.test;
    auto number = [](const std::optional<double>& value) {
        return value ? Json(*value) : Json(nullptr);
    };
    json["self_test"] = {{"ok", test.status.ok()},
                         {"address", test.address},
                         {"round_trip_ns", number(test.round_trip_ns)},
                         {"get_4096_ns", number(test.get_ns)},
                         {"error", test.status.ok() ? Json(nullptr) : tool::to_json(test.status)}};
    Json caps = Json::object();
    for (const Ability& ability : abilities) caps[ability.name] = test.caps.*ability.bit;
    json["caps"] = std::move(caps);
    return json;
}

void print_transport(const Transport& transport) {
    std::printf("  %-10s %s\n", transport.scheme.c_str(), transport.works() ? "works" : "unusable");
    if (!transport.diagnosis.detail.empty()) {
        std::printf("             %s\n", base::printable(transport.diagnosis.detail).c_str());
    }
    if (!transport.test) return;
    const SelfTest& test = *transport.test;
    if (!test.status.ok()) {
        std::printf("             self-test: %s\n",
                    base::printable(test.status.to_string()).c_str());
        return;
    }
    std::printf("             self-test: %s per message of 64 B",
                format_ns(*test.round_trip_ns).c_str());
    if (test.get_ns) std::printf(", %s per get of 4 KiB", format_ns(*test.get_ns).c_str());
    std::printf(" (there and back, one thread)\n");
    std::string words;
    for (const Ability& ability : abilities) {
        if (!words.empty()) words += ", ";
        words += test.caps.*ability.bit ? ability.yes : ability.no;
    }
    std::printf("             %s\n", words.c_str());
}

// The errors and warnings about the WEFT_ variables.
struct EnvironmentCheck {
    EnvironmentCheck() {
        const Result<api::EffectiveOptions> effective = api::overlay_environment({}, environ);
        if (!effective) {
            status = effective.status();
            return;
        }
        warning = effective->warning;
        options = effective->options;
    }
    Status status;
    std::string warning;
    RuntimeOptions options;
};

// The nodes of this machine, and the cpus of the contexts.
struct Numa {
    Numa(const EnvironmentCheck& environment, std::optional<unsigned> wanted)
        : machine(read_numa("/sys", allowed_cpus(), base::read_cgroup_limits().cpus)),
          contexts(wanted                      ? *wanted
                   : ::getenv("WEFT_CONTEXTS") ? environment.options.contexts
                                               : 0),
          plan(plan_contexts(machine, contexts, environment.options.cpus)) {}
    const NumaMachine machine;
    const unsigned contexts;  // 0: one for each cpu.
    const ContextPlan plan;
};

void print_all(const std::vector<Transport>& transports, const std::vector<Finding>& limits,
               const EnvironmentCheck& environment, const Numa& numa) {
    std::printf("weft %s\n\ntransports\n", WEFT_VERSION);
    for (const Transport& transport : transports) print_transport(transport);
    std::printf("\nrdma devices\n%s", rdma_to_text().c_str());
    std::printf("\nnuma nodes, and %zu contexts%s\n%s\nlimits\n", numa.plan.places.size(),
                numa.contexts == 0 ? " (WEFT_CONTEXTS=cpus)" : "",
                numa_to_text(numa.machine, numa.plan).c_str());
    for (const Finding& finding : limits) {
        std::printf("  %-22s %s\n", finding.name.c_str(), finding.value.c_str());
        if (!finding.remedy.empty()) std::printf("    mend: %s\n", finding.remedy.c_str());
    }
    std::printf("\nenvironment\n");
    const std::vector<std::string> variables = weft_environment();
    for (const std::string& variable : variables) {
        std::printf("  %s\n", base::printable(variable).c_str());
    }
    if (variables.empty()) std::printf("  no WEFT_ variable is set\n");
    const std::string_view remedy_text =
        environment.status.ok() ? environment.warning : environment.status.text();
    if (!remedy_text.empty()) std::printf("    mend: %s\n", base::printable(remedy_text).c_str());
}

void examine(std::optional<unsigned> contexts, Invocation& invocation) {
    const std::vector<Transport> transports = examine_transports();
    const std::vector<Finding> limits = examine_limits();
    const EnvironmentCheck environment;
    const Numa numa(environment, contexts);
    invocation.status = environment.status;
    std::size_t working = 0;
    for (const Transport& transport : transports) working += transport.works();
    if (working == 0 && invocation.status.ok()) {
        invocation.status = fail(
            Code::unavailable, "no transport of this build works on this machine: see its details");
    }
    if (!invocation.json) {
        print_all(transports, limits, environment, numa);
        std::printf("\n%zu of %zu transports work\n", working, transports.size());
        return;
    }
    Json json;
    json["version"] = WEFT_VERSION;
    json["transports"] = Json::array();
    for (const Transport& transport : transports) json["transports"].push_back(to_json(transport));
    json["rdma"] = rdma_to_json();
    json["numa"] = numa_to_json(numa.machine, numa.plan);
    json["limits"] = Json::array();
    for (const Finding& finding : limits) {
        json["limits"].push_back(
            {{"name", finding.name},
             {"value", finding.value},
             {"mend", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
    }
    json["environment"] = weft_environment();
    json["environment_warning"] =
        environment.warning.empty() ? Json(nullptr) : Json(environment.warning);
    json["error"] = nullptr;
    invocation.answer = std::move(json);
}

// Checks whether a server replies at one address.
void examine_uri(const std::string& uri, Invocation& invocation) {
    std::optional<Duration> first, second;
    Status status;
    if (Result<Pinger> pinger = Pinger::connect(uri); !pinger) {
        status = std::move(pinger).status();
    } else {
        for (std::optional<Duration>* into : {&first, &second}) {
            const Result<Duration> trip = pinger->ping(2500ms);
            if (trip) *into = *trip;
            else if (status.ok()) status = trip.status();
            if (!trip) break;
        }
    }
    invocation.status = status;
    if (invocation.json) {
        auto number = [](const std::optional<Duration>& value) {
            return value ? Json(value->count()) : Json(nullptr);
        };
        invocation.answer = {{"uri", uri},
                             {"reachable", status.ok()},
                             {"first_call_ns", number(first)},
                             {"round_trip_ns", number(second)},
                             {"error", nullptr}};
    } else if (status.ok()) {
        std::printf("%s answers: %s with connecting, %s without\n", uri.c_str(),
                    format_ns(static_cast<double>(first->count())).c_str(),
                    format_ns(static_cast<double>(second->count())).c_str());
    }
}

}  // namespace

void set_up_info(CLI::App& command, Invocation& invocation) {
    auto uri = std::make_shared<std::string>();
    auto contexts = std::make_shared<unsigned>(0);
    command.description("Test the transports of this machine, and report harmful limits");
    command.footer("Examples: weft info --json; weft info tcp://127.0.0.1:7000");
    CLI::Option* given = command.add_option("uri", *uri, "Check this address only");
    CLI::Option* planned = command
                               .add_option("--contexts", *contexts,
                                           "Show the cpus of so many contexts; 0: one for each cpu")
                               ->transform(whole_number(0, na::contexts_max));
    planned->excludes(given);
    command.callback([uri, contexts, given, planned, &invocation] {
        if (given->count() == 0) {
            examine(planned->count() == 0 ? std::optional<unsigned>() : *contexts, invocation);
        } else {
            examine_uri(*uri, invocation);
        }
    });
}

}  // namespace weft::tool
