#include "api/environment.h"

#include <charconv>
#include <csignal>
#include <string>
#include <string_view>

#include "na/economies.h"

namespace weft::api {

namespace {

constexpr std::uint64_t arena_bytes_min = std::uint64_t{1} << 20;
constexpr std::uint64_t argument_bytes_least = 64u << 10;
constexpr std::uint64_t argument_bytes_most = 1u << 30;
constexpr std::uint64_t waiting_bytes_least = 1u << 20;
constexpr std::uint64_t waiting_bytes_most = std::uint64_t{1} << 40;
constexpr std::uint64_t arena_bytes_most = std::uint64_t{1} << 40;

Status bad(std::string_view name, std::string_view value, std::string_view good) {
    return fail(Code::invalid_argument, std::string(name) + "='" + std::string(value) +
                                            "' in the environment: expected " + std::string(good));
}

bool parse(std::string_view text, std::uint64_t min, std::uint64_t max, std::uint64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size() && into >= min && into <= max;
}

bool parse_level(std::string_view text, LogLevel& into) {
    constexpr std::string_view names[] = {"trace", "debug", "info", "warning", "error", "off"};
    for (std::size_t i = 0; i < std::size(names); ++i) {
        if (text != names[i]) continue;
        into = static_cast<LogLevel>(i);
        return true;
    }
    return false;
}

// Limits that are plain numbers, in a RuntimeOptions and in the environment.
struct Limit {
    std::string_view name;
    std::string_view option;
    std::uint64_t least;
    std::uint64_t most;
    std::uint64_t (*get)(const RuntimeOptions&);
    void (*set)(RuntimeOptions&, std::uint64_t);
};

template <auto member>
constexpr Limit limit(std::string_view name, std::string_view option, std::uint64_t least,
                      std::uint64_t most) {
    return {name,
            option,
            least,
            most,
            [](const RuntimeOptions& options) { return std::uint64_t{options.*member}; },
            [](RuntimeOptions& options, std::uint64_t value) {
                using Value = std::remove_reference_t<decltype(options.*member)>;
                options.*member = static_cast<Value>(value);
            }};
}

constexpr Limit limits[] = {
    limit<&RuntimeOptions::calls_waiting_max>("WEFT_CALLS_WAITING", "calls_waiting_max", 1,
                                              4194304),
    limit<&RuntimeOptions::calls_in_flight_max>("WEFT_CALLS", "calls_in_flight_max", 1, 4194304),
    limit<&RuntimeOptions::bytes_in_flight_max>("WEFT_CALL_BYTES", "bytes_in_flight_max", 1 << 20,
                                                std::uint64_t{1} << 40),
    limit<&RuntimeOptions::handlers_max>("WEFT_HANDLERS", "handlers_max", 1, 4194304),
    limit<&RuntimeOptions::handler_bytes_max>("WEFT_HANDLER_BYTES", "handler_bytes_max", 1 << 20,
                                              std::uint64_t{1} << 40),
    limit<&RuntimeOptions::parsed_bytes_max>("WEFT_PARSED_BYTES", "parsed_bytes_max", 0,
                                             std::uint64_t{1} << 40),
};

std::string range_of(const Limit& limit) {
    return "a number from " + std::to_string(limit.least) + " to " + std::to_string(limit.most);
}

Status apply_signal(RuntimeOptions& options, std::string_view name, std::string_view value) {
    if (value == "USR1") options.state_signal = SIGUSR1;
    else if (value == "USR2") options.state_signal = SIGUSR2;
    else if (value == "none") options.state_signal = 0;
    else return bad(name, value, "USR1, USR2 or none");
    return {};
}

Status apply_economies(RuntimeOptions& options, std::string_view name, std::string_view value) {
    if (!na::economies_without(value)) {
        return bad(name, value, "names of " + na::economy_names() + ", with commas between");
    }
    options.verbs_without = value;
    return {};
}

Status apply(RuntimeOptions& options, std::string_view name, std::string_view value) {
    for (const Limit& limit : limits) {
        if (name != limit.name) continue;
        std::uint64_t given = 0;
        if (!parse(value, limit.least, limit.most, given)) return bad(name, value, range_of(limit));
        limit.set(options, given);
        return {};
    }
    std::uint64_t number = 0;
    auto ranged = [&](std::uint64_t min, std::uint64_t max) {
        return parse(value, min, max, number);
    };
    if (name == "WEFT_STATE_SIGNAL") return apply_signal(options, name, value);
    if (name == "WEFT_VERBS_WITHOUT") return apply_economies(options, name, value);
    if (name == "WEFT_WAIT") {
        if (value == "adaptive") options.wait = WaitMode::adaptive;
        else if (value == "spin") options.wait = WaitMode::spin;
        else if (value == "block") options.wait = WaitMode::block;
        else return bad(name, value, "adaptive, spin or block");
    } else if (name == "WEFT_SPIN") {
        if (!ranged(0, 1'000'000)) return bad(name, value, "microseconds from 0 to 1000000");
        options.spin = std::chrono::microseconds(number);
    } else if (name == "WEFT_CPU") {
        if (!ranged(0, 1023)) return bad(name, value, "a cpu number from 0 to 1023");
        options.cpu = static_cast<unsigned>(number);
    } else if (name == "WEFT_TIMEOUT") {
        if (!ranged(1, 86'400'000)) return bad(name, value, "milliseconds from 1 to 86400000");
        options.default_timeout = std::chrono::milliseconds(number);
    } else if (name == "WEFT_ARENA") {
        if (!ranged(arena_bytes_min, arena_bytes_most)) {
            return bad(name, value, "bytes from 1048576 to 1099511627776");
        }
        options.arena_bytes_max = number;
    } else if (name == "WEFT_ARGUMENT") {
        if (!ranged(argument_bytes_least, argument_bytes_most)) {
            return bad(name, value, "bytes from 65536 to 1073741824");
        }
        options.argument_bytes_max = number;
    } else if (name == "WEFT_WAITING") {
        if (!ranged(waiting_bytes_least, waiting_bytes_most)) {
            return bad(name, value, "bytes from 1048576 to 1099511627776");
        }
        options.waiting_bytes_max = number;
    } else if (name == "WEFT_HEARTBEAT") {
        if (!ranged(1, 60'000)) return bad(name, value, "milliseconds from 1 to 60000");
        options.heartbeat_interval = std::chrono::milliseconds(number);
    } else if (name == "WEFT_PEERS") {
        if (!ranged(1, 65536)) return bad(name, value, "a number from 1 to 65536");
        options.peers_max = number;
    } else if (name == "WEFT_DRAIN") {
        if (!ranged(0, 3'600'000)) return bad(name, value, "milliseconds from 0 to 3600000");
        options.drain_timeout = std::chrono::milliseconds(number);
    } else if (name == "WEFT_OFFLOAD_THREADS") {
        if (!ranged(1, 256)) return bad(name, value, "a number from 1 to 256");
        options.offload_threads = static_cast<unsigned>(number);
    } else if (name == "WEFT_LOG") {
        if (!parse_level(value, options.log_level)) {
            return bad(name, value, "trace, debug, info, warning, error or off");
        }
    } else {
        return fail(Code::invalid_argument,
                    "unknown variable " + std::string(name) +
                        " in the environment; docs/environment.md lists what weft reads");
    }
    return {};
}

}  // namespace

Status judge(const RuntimeOptions& options) {
    const auto bad_option = [](std::string_view name, std::string_view good) {
        return fail(Code::invalid_argument,
                    "RuntimeOptions::" + std::string(name) + ": expected " + std::string(good));
    };
    const auto within = [](Duration value, Duration min, Duration max) {
        return value >= min && value <= max;
    };
    if (!within(options.spin, 0s, 1s)) return bad_option("spin", "0 to 1 s");
    if (options.default_timeout <= 0s) return bad_option("default_timeout", "more than 0");
    if (!within(options.heartbeat_interval, 1ms, 60s)) {
        return bad_option("heartbeat_interval", "1 ms to 60 s");
    }
    if (!within(options.drain_timeout, 0s, 1h)) return bad_option("drain_timeout", "0 to 1 h");
    if (options.peers_max < 1 || options.peers_max > 65536) {
        return bad_option("peers_max", "1 to 65536");
    }
    if (options.offload_threads < 1 || options.offload_threads > 256) {
        return bad_option("offload_threads", "1 to 256");
    }
    if (options.arena_bytes_max != 0 &&
        (options.arena_bytes_max < arena_bytes_min || options.arena_bytes_max > arena_bytes_most)) {
        return bad_option("arena_bytes_max", "0, or 1 MiB to 1 TiB");
    }
    if (options.argument_bytes_max < argument_bytes_least ||
        options.argument_bytes_max > argument_bytes_most) {
        return bad_option("argument_bytes_max", "64 KiB to 1 GiB");
    }
    if (options.waiting_bytes_max < waiting_bytes_least ||
        options.waiting_bytes_max > waiting_bytes_most) {
        return bad_option("waiting_bytes_max", "1 MiB to 1 TiB");
    }
    if (!na::economies_without(options.verbs_without)) {
        return bad_option("verbs_without", "names of " + na::economy_names());
    }
    for (const Limit& limit : limits) {
        const std::uint64_t given = limit.get(options);
        if (given < limit.least || given > limit.most) {
            return bad_option(limit.option, range_of(limit));
        }
    }
    return {};
}

Result<RuntimeOptions> overlay_environment(RuntimeOptions options, char** environment) {
    for (char** at = environment; at && *at; ++at) {
        const std::string_view entry(*at);
        if (!entry.starts_with("WEFT_")) continue;
        const std::size_t equals = entry.find('=');
        if (equals == std::string_view::npos) continue;
        Status status = apply(options, entry.substr(0, equals), entry.substr(equals + 1));
        if (!status.ok()) return status;
    }
    return options;
}

}  // namespace weft::api
