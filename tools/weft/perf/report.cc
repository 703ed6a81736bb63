#include "perf/report.h"

#include <cmath>
#include <cstdio>

#include "cli/text.h"
#include "perf/floor.h"

namespace weft::tool {

// The cache-line round trip of an idle machine is in this range. Outside of it, or if the floors of
// a run differ by more than a fifth, a latency is meaningless.
static constexpr double quiet_floor_min_ns = 60;
static constexpr double quiet_floor_max_ns = 150;
static constexpr double quiet_drift_max = 0.2;

// The floor of a run: a copy for bulk, a round trip otherwise.
static std::optional<double> one_floor(const PerfReport& report, const Floor& floor) {
    return report.options.is_bulk() ? floor.copy_ns : floor.round_trip_ns;
}

std::optional<double> PerfReport::floor_ns() const {
    const std::optional<double> first = one_floor(*this, before), last = one_floor(*this, after);
    if (!first || !last) return std::nullopt;
    return (*first + *last) / 2;
}

std::optional<double> PerfReport::drift() const {
    const std::optional<double> first = one_floor(*this, before), last = one_floor(*this, after);
    if (!first || !last) return std::nullopt;
    return floor_drift(*first, *last);
}

// To a tenth of the unit.
static Json rounded(double value) { return std::round(value * 10) / 10; }

static Json rounded(const std::optional<double>& value) {
    return value ? rounded(*value) : Json(nullptr);
}

static std::optional<double> mib_per_s(const PerfReport& report) {
    const auto mib = static_cast<double>(report.options.size) / 1048576;
    if (report.options.is_bulk()) return report.measured.rate() * mib;
    if (report.measured.beside_mib_per_s) return report.measured.beside_mib_per_s;
    if (report.options.metric != "floor" || !report.before.copy_ns || !report.after.copy_ns) {
        return std::nullopt;
    }
    return mib / ((*report.before.copy_ns + *report.after.copy_ns) / 2) * 1e9;
}

Json to_json(const PerfReport& report) {
    const Measurement& measured = report.measured;
    const bool any = measured.latencies.count() > 0;
    const bool floor = report.options.metric == "floor";
    auto when_any = [&](double value) { return any ? rounded(value) : Json(nullptr); };
    Json json;
    json["metric"] = report.options.metric;
    json["transport"] = report.options.transport;
    json["size"] = report.options.size;
    json["inflight"] = report.options.inflight;
    json["seconds"] = report.options.seconds;
    json["count"] = floor ? Json(nullptr) : Json(measured.latencies.count());
    json["p50_ns"] = floor ? rounded(report.floor_ns()) : when_any(measured.ns(0.5));
    json["p99_ns"] = when_any(measured.ns(0.99));
    json["p999_ns"] = when_any(measured.ns(0.999));
    json["mean_ns"] = when_any(measured.mean_ns());
    json["rate_per_s"] = when_any(measured.rate());
    json["mib_per_s"] = rounded(mib_per_s(report));
    json["floor_ns"] = rounded(report.floor_ns());
    json["floor_drift"] =
        report.drift() ? Json(std::round(*report.drift() * 1e4) / 1e4) : Json(nullptr);
    json["version"] = WEFT_VERSION;
    if (report.options.is_scaled()) {
        json["contexts"] = measured.contexts;
        json["clients"] = report.options.clients;
        json["work_us"] = report.options.work_us;
    }
    for (const CounterRow& row : measured.device_counters) {
        json["ledger"][row.name] = {{"client", row.client}, {"server", row.server}};
    }
    return json;
}

// Why this run does not count; empty when it does.
static std::string remark(const PerfReport& report) {
    const std::optional<double> drift = report.drift();
    char text[160];
    if (drift && *drift > quiet_drift_max) {
        std::snprintf(text, sizeof text,
                      "does not count: the floors before and after differ by %.0f %%",
                      *drift * 100);
        return text;
    }
    const bool line = report.options.transport == "sm" && !report.options.is_bulk();
    const std::optional<double> floor = report.floor_ns();
    if (line && floor && (*floor < quiet_floor_min_ns || *floor > quiet_floor_max_ns)) {
        std::snprintf(text, sizeof text,
                      "does not count: a floor of %.0f ns is outside %.0f to %.0f ns", *floor,
                      quiet_floor_min_ns, quiet_floor_max_ns);
        return text;
    }
    return "";
}

static std::string counter_table(const std::vector<CounterRow>& rows) {
    Table table({"operations of the device", "client", "server"});
    for (const CounterRow& row : rows) {
        char client[32], server[32];
        std::snprintf(client, sizeof client, "%.3f", row.client);
        std::snprintf(server, sizeof server, "%.3f", row.server);
        table.add({row.name, client, server});
    }
    return table.text();
}

std::string to_text(const PerfReport& report) {
    const PerfOptions& options = report.options;
    const Measurement& measured = report.measured;
    const std::optional<double> floor = report.floor_ns();
    const std::optional<double> mib = mib_per_s(report);
    std::vector<std::string> heads = {options.metric}, row = {""};
    auto column = [&](const char* head, const std::string& cell) {
        heads.push_back(head);
        row.push_back(cell);
    };
    std::string about = options.metric + " over " + options.transport + ", " +
                        format_bytes(static_cast<double>(options.size));
    if (options.metric == "floor") {
        if (floor) column("round trip", format_ns(*floor));
    } else {
        about += ", " + std::to_string(options.inflight) + " in flight, " + name_of(options.wait);
        if (options.is_scaled()) {
            about += ", " + std::to_string(measured.contexts) + " contexts, " +
                     std::to_string(options.clients) + " clients, " +
                     format_ns(options.work_us * 1e3) + " of work";
        }
        if (!options.beside.empty()) {
            about += ", beside back-to-back transfers (" + options.beside + ") of " +
                     format_bytes(static_cast<double>(options.beside_size)) + " each";
        }
        column("p50", format_ns(measured.ns(0.5)));
        column("p99", format_ns(measured.ns(0.99)));
        column("p99.9", format_ns(measured.ns(0.999)));
        column("mean", format_ns(measured.mean_ns()));
        column("rate/s", format_count(measured.rate()));
        if (floor) column("floor", format_ns(*floor));
    }
    if (mib) column("MiB/s", format_count(*mib));
    char text[32];
    if (floor && *floor > 0 && options.metric != "floor") {
        // For one call at a time the latency counts, otherwise the rate relative to the floor's.
        const bool latency = options.inflight == 1 && !options.is_bulk();
        std::snprintf(text, sizeof text, "%.2f",
                      latency ? measured.ns(0.5) / *floor : measured.rate() * *floor / 1e9);
        column(latency ? "p50/floor" : "rate x floor", text);
    }
    heads[0] = row[0] = "";
    Table table(heads);
    table.add(row);
    std::string all = about + "\n" + table.text();
    if (!measured.device_counters.empty()) all += counter_table(measured.device_counters);
    if (const std::string why = remark(report); !why.empty()) all += why + "\n";
    if (!report.note.empty()) all += report.note + "\n";
    return all;
}

}  // namespace weft::tool
