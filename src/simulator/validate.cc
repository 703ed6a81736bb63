#include "simulator/validate.h"

#include "api/environment.h"
#include "base/assert.h"
#include "na/address.h"

namespace weft::sim {

void abort_misused(std::string_view call, const std::string& why) {
    base::abort_misused(std::string(call).c_str(), why.c_str());
}

void validate_name(std::string_view call, std::string_view name) {
    if (Result<na::Address> address = na::parse_address("sim://" + std::string(name)); !address) {
        abort_misused(call, "the host's name '" + std::string(name) +
                                "': " + std::string(address.status().text()));
    }
}

void validate_options(std::string_view call, std::string_view host, const RuntimeOptions& options) {
    RuntimeOptions simulated = options;
    simulated.wait = WaitMode::adaptive;  // No context spins on a cpu of this machine.
    if (const Status status = api::validate_options(simulated); !status.ok()) {
        abort_misused(call, "host '" + std::string(host) + "': " + std::string(status.text()));
    }
    if (options.contexts == 0) {
        abort_misused(call, "host '" + std::string(host) +
                                "': RuntimeOptions::contexts is 0, as many as this machine has "
                                "cpus: a simulation is the same on each machine, so give a number");
    }
}

void abort_runtime_taken(const std::string& host) {
    abort_misused("Runtime::~Runtime()",
                  "called for the runtime of host '" + host +
                      "', which is up: a program that moves its runtime keeps it in what it "
                      "returns; Simulation::kill() and end() end a host");
}

void validate_share(std::string_view call, std::string_view what, double share) {
    if (share >= 0 && share <= 1) return;
    abort_misused(call, std::string(what) + " is " + std::to_string(share) +
                            ": expected a share from 0 to 1");
}

static std::string text_of(Duration time) {
    return time % 1ms == 0ns ? std::to_string(time / 1ms) + " ms"
                             : std::to_string(time.count()) + " ns";
}

static void validate_time(std::string_view call, std::string_view what, Duration time,
                          Duration least) {
    if (time >= least && time <= link_time_max) return;
    abort_misused(call, "Link::" + std::string(what) + " is " + text_of(time) + ": expected " +
                            text_of(least) + " to 24 h");
}

void validate_link(std::string_view call, const Link& link) {
    validate_time(call, "latency", link.latency, 0ns);
    validate_time(call, "jitter", link.jitter, 0ns);
    validate_time(call, "reorder_by", link.reorder_by, 0ns);
    validate_time(call, "resend_after", link.resend_after, link_resend_min);
    validate_time(call, "resend_after_max", link.resend_after_max, link_resend_min);
    validate_time(call, "give_up_after", link.give_up_after, 0ns);
    validate_share(call, "Link::loss", link.loss);
    validate_share(call, "Link::duplicate", link.duplicate);
    validate_share(call, "Link::reorder", link.reorder);
    validate_share(call, "Link::damage", link.damage);
    validate_share(call, "Link::hang_up", link.hang_up);
    const double rate = link.bytes_per_second;
    if (rate == 0 || (rate >= link_rate_min && rate <= link_rate_max)) return;
    abort_misused(call, "Link::bytes_per_second is " + std::to_string(rate) +
                            ": expected 0 (without limit) or 1 to 1e15");
}

void refuse_unknown(std::string_view call, std::string_view name,
                    const std::vector<std::string_view>& known) {
    static constexpr std::size_t shown_max = 8;
    std::string list = known.empty() ? "none" : "";
    for (std::size_t i = 0; i < known.size() && i < shown_max; ++i) {
        list += (i ? ", " : "") + std::string(known[i]);
    }
    if (known.size() > shown_max) {
        list += " and " + std::to_string(known.size() - shown_max) + " more";
    }
    abort_misused(call, "no host has the name '" + std::string(name) + "' (there are: " + list +
                            "); add() makes one");
}

}  // namespace weft::sim
