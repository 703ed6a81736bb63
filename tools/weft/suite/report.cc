#include "suite/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "cli/text.h"

namespace weft::tool {

namespace {

struct Words {
    std::string_view name;
    const char* text;
};
// The mechanism that each switch of na::VerbsOptimizations turns off.
constexpr Words without_optimization[] = {{"lists", "one list of work requests a turn"},
                                          {"inlining", "small messages inside their work requests"},
                                          {"quiet", "one send in 16 that gives a completion"},
                                          {"piggybacking", "credits in the immediate data"},
                                          {"lanes", "several queue pairs for transfers"},
                                          {"unlocked", "objects of the driver without locks"},
                                          {"cache", "a cache of registrations"},
                                          {"hugepages", "messages on huge pages"}};

// A smaller change of a count per call is noise.
constexpr double moved_min = 0.02;

Json rounded(const std::optional<double>& value) {
    return value ? Json(std::round(*value * 10) / 10) : Json(nullptr);
}

Json to_json(const Series& series) {
    Json json = {{"median", rounded(series.median())}};
    json["rounds"] = Json::array();
    for (const double value : series.rounds) json["rounds"].push_back(rounded(value));
    return json;
}

Json to_json(const std::vector<CounterRow>& rows) {
    if (rows.empty()) return nullptr;
    Json json = Json::object();
    for (const CounterRow& row : rows) {
        json[row.name] = {{"client", row.client}, {"server", row.server}};
    }
    return json;
}

Json to_json(const SwitchResult& row) {
    return {{"without", row.without.empty() ? Json(nullptr) : Json(row.without)},
            {"round_trip_ns", rounded(row.round_trip_ns)},
            {"rate_per_s", rounded(row.rate)},
            {"get_1m_mib_per_s", rounded(row.get_1m)},
            {"put_1m_mib_per_s", rounded(row.put_1m)},
            {"ledger",
             {{"call_alone", to_json(row.one_call)},
              {"call_of_64", to_json(row.many_calls)},
              {"get_1m", to_json(row.get)}}}};
}

// The counters that changed: {"name": difference}.
Json moved(const Json& before, const Json& after) {
    Json json = Json::object();
    const auto old = before.find("counters"), now = after.find("counters");
    if (old == before.end() || now == after.end() || !now->is_object()) return json;
    for (const auto& [name, count] : now->items()) {
        const auto was = old->find(name);
        if (was == old->end() || !was->is_number_unsigned() || !count.is_number_unsigned())
            continue;
        const auto more = count.get<std::uint64_t>() - was->get<std::uint64_t>();
        if (more != 0) json[name] = more;
    }
    return json;
}

// A value in JSON of the other end, without characters that Markdown or a terminal interprets.
std::string cell(const Json& value) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_null() || text.empty()) return "unknown";
    text = base::printable(text.substr(0, 200));
    std::ranges::replace(text, '|', '/');
    std::ranges::replace(text, '`', '\'');
    return text;
}

Json at(const Json& json, std::initializer_list<const char*> path) {
    const Json* here = &json;
    for (const char* name : path) {
        if (!here->is_object() || !here->contains(name)) return nullptr;
        here = &(*here)[name];
    }
    return *here;
}

// The port of a machine's device that was measured.
Json port_of(const Json& machine) {
    for (const Json& port : at(machine, {"device", "ports"})) {
        if (at(port, {"number"}) == at(machine, {"port"})) return port;
    }
    return nullptr;
}

Json gid_of(const Json& machine) {
    for (const Json& gid : at(port_of(machine), {"gids"})) {
        if (at(gid, {"address"}) == at(machine, {"gid"})) return gid;
    }
    return nullptr;
}

std::string machines(const SuiteResults& results) {
    std::string text = "| | client | server |\n|---|---|---|\n";
    const auto row = [&](const char* name, auto&& value) {
        text += std::string("| ") + name + " | " + cell(value(results.client)) + " | " +
                cell(value(results.server)) + " |\n";
    };
    const auto plain = [&](const char* name, std::initializer_list<const char*> path) {
        row(name, [&](const Json& machine) { return at(machine, path); });
    };
    const auto of_port = [&](const char* name, const char* field) {
        row(name, [&](const Json& machine) { return at(port_of(machine), {field}); });
    };
    plain("weft", {"weft"});
    plain("kernel", {"kernel"});
    plain("rdma-core", {"rdma_core"});
    plain("perftest", {"perftest"});
    plain("cpu", {"cpu"});
    plain("cpus", {"cpus"});
    plain("cpus used", {"cpus_used"});
    plain("virtual machine", {"virtual_machine"});
    plain("device", {"device", "name"});
    plain("kind", {"device", "kind"});
    plain("firmware", {"device", "firmware"});
    plain("PCI", {"device", "pci"});
    plain("NUMA node", {"device", "numa_node"});
    plain("port", {"port"});
    of_port("state", "state");
    of_port("link layer", "link_layer");
    of_port("rate", "rate");
    of_port("MTU", "mtu_active");
    row("GID", [](const Json& machine) { return at(gid_of(machine), {"type"}); });
    row("GID index", [](const Json& machine) { return at(gid_of(machine), {"index"}); });
    plain("inline bytes", {"device", "limits", "inline_bytes"});
    plain("locked memory", {"limits", "locked memory"});
    plain("huge pages", {"limits", "huge pages"});
    return text;
}

std::string number(const std::optional<double>& value, const char* format = "%.0f") {
    char text[48];
    if (!value) return "-";
    std::snprintf(text, sizeof text, format, *value);
    return text;
}

std::optional<double> ratio(const Series& ours, const Series& theirs) {
    Series ratios;
    const std::size_t both = std::min(ours.rounds.size(), theirs.rounds.size());
    for (std::size_t i = 0; i < both; ++i) {
        if (theirs.rounds[i] > 0) ratios.rounds.push_back(ours.rounds[i] / theirs.rounds[i]);
    }
    return ratios.median();
}

std::string comparisons(const SuiteResults& results) {
    std::string text = "| | unit | weft | perftest | ratio |\n|---|---|---|---|---|\n";
    for (const Comparison& one : compare(results)) {
        text += "| " + one.what + " | " + one.unit + " | " + number(one.ours) + " | " +
                number(one.theirs) + " | " + number(one.ratio, "%.2f") + " |\n";
    }
    return text +
           "\nThe ratio of a time is to twice the typical one-way time of `ib_send_lat`: 1 is as "
           "fast as the device itself. That of a bandwidth is to `ib_read_bw` or `ib_write_bw`. "
           "Medians of rounds.\n";
}

std::string floors(const SuiteResults& results) {
    const RoundsOf& rounds = results.rounds;
    return "| | |\n|---|---|\n| a call of 64 B there and back, p50 | " +
           number(rounds.round_trip_ns.median()) + " ns |\n| the same, p99 | " +
           number(rounds.round_trip_p99_ns.median()) + " ns |\n| the bare provider, p50 | " +
           number(rounds.bare_ns.median()) + " ns |\n| a call over the bare provider, ratio | " +
           number(ratio(rounds.round_trip_ns, rounds.bare_ns), "%.2f") +
           " |\n| calls a second, 64 in flight | " + number(rounds.rate.median()) + " |\n";
}

std::string switch_table(const SuiteResults& results) {
    std::string text =
        "| without | mechanism | call, ns | calls/s of 64 | get 1 MiB, MiB/s | put 1 MiB, MiB/s |\n"
        "|---|---|---|---|---|---|\n";
    for (const SwitchResult& row : results.switches) {
        const auto* known = std::ranges::find(without_optimization, row.without, &Words::name);
        text += "| " + (row.without.empty() ? "nothing" : row.without) + " | " +
                (known == std::end(without_optimization) ? "" : known->text) + " | " +
                number(row.round_trip_ns) + " | " + number(row.rate) + " | " + number(row.get_1m) +
                " | " + number(row.put_1m) + " |\n";
    }
    return text;
}

const CounterRow* find(const std::vector<CounterRow>& rows, const std::string& name) {
    const auto found = std::ranges::find(rows, name, &CounterRow::name);
    return found == rows.end() ? nullptr : &*found;
}

// The operations of each side's device with all mechanisms on.
std::string counter_table(const SwitchResult& all) {
    std::string text =
        "| each | call alone: client | server | call of 64: client | server | get of 1 MiB: client "
        "|\n"
        "|---|---|---|---|---|---|\n";
    for (const CounterRow& row : all.one_call) {
        const CounterRow* many_calls = find(all.many_calls, row.name);
        const CounterRow* get = find(all.get, row.name);
        const auto of = [](const CounterRow* one, double CounterRow::*side) {
            return number(one ? std::optional(one->*side) : std::nullopt, "%.3f");
        };
        text += "| " + row.name + " | " + of(&row, &CounterRow::client) + " | " +
                of(&row, &CounterRow::server) + " | " + of(many_calls, &CounterRow::client) +
                " | " + of(many_calls, &CounterRow::server) + " | " + of(get, &CounterRow::client) +
                " |\n";
    }
    return text;
}

// "doorbells 0.11 to 1.00" for each count that a switch changed.
std::string changed_counters(const std::vector<CounterRow>& on,
                             const std::vector<CounterRow>& off) {
    std::string text;
    for (const CounterRow& row : off) {
        const CounterRow* was = find(on, row.name);
        if (!was || std::fabs(row.client - was->client) < moved_min * std::max(1.0, was->client)) {
            continue;
        }
        text += (text.empty() ? "" : ", ") + row.name + " " + number(was->client, "%.3f") + " to " +
                number(row.client, "%.3f");
    }
    return text.empty() ? "-" : text;
}

std::string counter_tables(const SuiteResults& results) {
    if (results.switches.empty() || results.switches.front().one_call.empty()) {
        return "Nothing was counted.\n";
    }
    const SwitchResult& all = results.switches.front();
    std::string text = counter_table(all) +
                       "\nThe counts of the client that each switch changed:\n\n"
                       "| without | call alone | call of 64 | get of 1 MiB |\n|---|---|---|---|\n";
    for (const SwitchResult& row : results.switches) {
        if (row.without.empty()) continue;
        text += "| " + row.without + " | " + changed_counters(all.one_call, row.one_call) + " | " +
                changed_counters(all.many_calls, row.many_calls) + " | " +
                changed_counters(all.get, row.get) + " |\n";
    }
    return text;
}

std::string counters(const SuiteResults& results) {
    std::string text = "| counter | client | server |\n|---|---|---|\n";
    const Json here = moved(results.client, results.client_after);
    const Json there = moved(results.server, results.server_after);
    Json names = here;
    for (const auto& [name, count] : there.items()) names[name] = count;
    if (names.empty()) return "No counter changed, or this device has none.\n";
    for (const auto& [name, unused] : names.items()) {
        text += "| " + cell(Json(name)) + " | " + (here.contains(name) ? cell(here[name]) : "0") +
                " | " + (there.contains(name) ? cell(there[name]) : "0") + " |\n";
    }
    return text +
           "\nCounters of loss and congestion have other names on each device: `out_of_sequence`, "
           "`packet_seq_err`, `local_ack_timeout_err`, `rp_cnp_handled` (mlx5), "
           "`completer_retry_err`, `out_of_seq_request` (rxe).\n";
}

}  // namespace

std::vector<Comparison> compare(const SuiteResults& results) {
    const RoundsOf& rounds = results.rounds;
    const auto line = [&](const char* what, const char* unit, const Series& ours, Perftest test) {
        const Series& theirs = rounds.perftest[static_cast<std::size_t>(test)];
        return Comparison{what, unit, ours.median(), theirs.median(), ratio(ours, theirs)};
    };
    return {line("64 B there and back", "ns", rounds.round_trip_ns, Perftest::send_latency),
            line("get of 64 KiB, 16 in flight", "MiB/s", rounds.get_64k, Perftest::read_64k),
            line("get of 1 MiB, 4 in flight", "MiB/s", rounds.get_1m, Perftest::read_1m),
            line("put of 64 KiB, 16 in flight", "MiB/s", rounds.put_64k, Perftest::write_64k),
            line("put of 1 MiB, 4 in flight", "MiB/s", rounds.put_1m, Perftest::write_1m)};
}

Json to_json(const SuiteResults& results) {
    const RoundsOf& rounds = results.rounds;
    Json json;
    json["suite"] = "rdma";
    json["date"] = results.date;
    json["version"] = WEFT_VERSION;
    json["seconds"] = results.seconds;
    json["one_host"] = results.one_host;
    json["client"] = results.client;
    json["server"] = results.server;
    json["rounds"] = {{"round_trip_ns", to_json(rounds.round_trip_ns)},
                      {"round_trip_p99_ns", to_json(rounds.round_trip_p99_ns)},
                      {"bare_ns", to_json(rounds.bare_ns)},
                      {"rate_per_s", to_json(rounds.rate)},
                      {"get_64k_mib_per_s", to_json(rounds.get_64k)},
                      {"get_1m_mib_per_s", to_json(rounds.get_1m)},
                      {"put_64k_mib_per_s", to_json(rounds.put_64k)},
                      {"put_1m_mib_per_s", to_json(rounds.put_1m)}};
    for (const Perftest test : perftests) {
        json["perftest"][name_of(test)] = to_json(rounds.perftest[static_cast<std::size_t>(test)]);
    }
    json["ratios"] = Json::object();
    for (const Comparison& one : compare(results)) {
        json["ratios"][one.what] =
            one.ratio ? Json(std::round(*one.ratio * 1000) / 1000) : Json(nullptr);
    }
    json["switches"] = Json::array();
    for (const SwitchResult& row : results.switches) json["switches"].push_back(to_json(row));
    json["counters"] = {{"client", moved(results.client, results.client_after)},
                        {"server", moved(results.server, results.server_after)}};
    json["missing"] = results.missing;
    return json;
}

std::string to_markdown(const SuiteResults& results) {
    std::string text = "# weft over RDMA: a report\n\n" + results.date +
                       ", `weft perf --suite rdma`, " + number(results.seconds, "%g") +
                       " s for each measurement, " +
                       (results.one_host ? "both ends on one host" : "two hosts") +
                       ". It contains no names of hosts; addresses are in GIDs and networks, below "
                       "`Figures`.\n";
    if (at(results.client, {"virtual_machine"}) == true) {
        text +=
            "\nIn a virtual machine, counts are exact, ratios of one run are rough, times are "
            "unreliable.\n";
    }
    text += "\n## Machines\n\n" + machines(results);
    text += "\n## Beside perftest\n\n" + comparisons(results);
    text += "\n## Calls\n\n" + floors(results);
    text += "\n## Each mechanism turned off\n\n" + switch_table(results);
    text += "\n## Operations of the devices\n\n" + counter_tables(results);
    text += "\n## Counters of the ports\n\n" + counters(results);
    text += "\n## Not measured\n\n";
    for (const std::string& missing : results.missing) {
        text += "- " + cell(Json(base::printable(missing))) + "\n";
    }
    if (results.missing.empty()) text += "Everything was measured.\n";
    return text + "\n## Figures\n\n```json\n" +
           to_json(results).dump(1, ' ', false, Json::error_handler_t::replace) + "\n```\n";
}

}  // namespace weft::tool
