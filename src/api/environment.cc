#include "api/environment.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "na/economies.h"

namespace weft::api {

namespace {

constexpr std::uint64_t arena_bytes_min = std::uint64_t{1} << 20;
constexpr std::uint64_t argument_bytes_least = 64u << 10;
constexpr std::uint64_t argument_bytes_most = 1u << 30;
constexpr std::uint64_t waiting_bytes_least = 1u << 20;
constexpr std::uint64_t waiting_bytes_most = std::uint64_t{1} << 40;
constexpr std::uint64_t arena_bytes_most = std::uint64_t{1} << 40;

struct Given {
    std::string_view name;
    std::string_view value;
};

Status bad(const Given& given, std::string_view good) {
    return fail(Code::invalid_argument, std::string(given.name) + "='" + std::string(given.value) +
                                            "' in the environment: expected " + std::string(good));
}

std::string range_of(std::string_view what, std::uint64_t least, std::uint64_t most) {
    return std::string(what) + " from " + std::to_string(least) + " to " + std::to_string(most);
}

// All of the text. False: it is no such number.
bool parse(std::string_view text, std::uint64_t least, std::uint64_t most, std::uint64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size() && into >= least &&
           into <= most;
}

template <class Option>
struct Word {
    std::string_view word;
    Option means;
};

template <class Option, std::size_t count>
Status take_word(Option& option, const Given& given, const Word<Option> (&words)[count]) {
    std::string good;
    for (std::size_t i = 0; i < count; ++i) {
        if (given.value == words[i].word) {
            option = words[i].means;
            return {};
        }
        good += i == 0 ? "" : i + 1 == count ? " or " : ", ";
        good += words[i].word;
    }
    return bad(given, good);
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

std::string range_of(const Limit& limit) { return range_of("a number", limit.least, limit.most); }

struct Variable {
    std::string_view name;
    Status (*take)(RuntimeOptions& to, const Given& given);
};

template <class Option>
void assign(Option& option, std::uint64_t number) {
    option = static_cast<Option>(number);
}
void assign(std::optional<unsigned>& option, std::uint64_t number) {
    option = static_cast<unsigned>(number);
}

enum class Unit : std::uint8_t { number, cpu, bytes, us, ms };

template <auto member, Unit unit, std::uint64_t least, std::uint64_t most>
Status take_number(RuntimeOptions& to, const Given& given) {
    constexpr std::string_view names[] = {"a number", "a cpu number", "bytes", "microseconds",
                                          "milliseconds"};
    std::uint64_t number = 0;
    if (!parse(given.value, least, most, number)) {
        return bad(given, range_of(names[static_cast<std::size_t>(unit)], least, most));
    }
    if constexpr (unit == Unit::us) to.*member = std::chrono::microseconds(number);
    else if constexpr (unit == Unit::ms) to.*member = std::chrono::milliseconds(number);
    else assign(to.*member, number);
    return {};
}

Status take_wait(RuntimeOptions& to, const Given& given) {
    static constexpr Word<WaitMode> words[] = {
        {"adaptive", WaitMode::adaptive}, {"spin", WaitMode::spin}, {"block", WaitMode::block}};
    return take_word(to.wait, given, words);
}

Status take_signal(RuntimeOptions& to, const Given& given) {
    static constexpr Word<int> words[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"none", 0}};
    return take_word(to.state_signal, given, words);
}

Status take_level(RuntimeOptions& to, const Given& given) {
    static constexpr Word<LogLevel> words[] = {
        {"trace", LogLevel::trace},     {"debug", LogLevel::debug}, {"info", LogLevel::info},
        {"warning", LogLevel::warning}, {"error", LogLevel::error}, {"off", LogLevel::off}};
    return take_word(to.log_level, given, words);
}

Status take_economies(RuntimeOptions& to, const Given& given) {
    if (!na::economies_without(given.value)) {
        return bad(given, "names of " + na::economy_names() + ", with commas between");
    }
    to.verbs_without = given.value;
    return {};
}

using Options = RuntimeOptions;

constexpr Variable variables[] = {
    {"WEFT_WAIT", take_wait},
    {"WEFT_SPIN", take_number<&Options::spin, Unit::us, 0, 1'000'000>},
    {"WEFT_CPU", take_number<&Options::cpu, Unit::cpu, 0, 1023>},
    {"WEFT_TIMEOUT", take_number<&Options::default_timeout, Unit::ms, 1, 86'400'000>},
    {"WEFT_ARENA",
     take_number<&Options::arena_bytes_max, Unit::bytes, arena_bytes_min, arena_bytes_most>},
    {"WEFT_ARGUMENT", take_number<&Options::argument_bytes_max, Unit::bytes, argument_bytes_least,
                                  argument_bytes_most>},
    {"WEFT_WAITING", take_number<&Options::waiting_bytes_max, Unit::bytes, waiting_bytes_least,
                                 waiting_bytes_most>},
    {"WEFT_HEARTBEAT", take_number<&Options::heartbeat_interval, Unit::ms, 1, 60'000>},
    {"WEFT_PEERS", take_number<&Options::peers_max, Unit::number, 1, 65536>},
    {"WEFT_VERBS_WITHOUT", take_economies},
    {"WEFT_DRAIN", take_number<&Options::drain_timeout, Unit::ms, 0, 3'600'000>},
    {"WEFT_STATE_SIGNAL", take_signal},
    {"WEFT_OFFLOAD_THREADS", take_number<&Options::offload_threads, Unit::number, 1, 256>},
    {"WEFT_LOG", take_level},
};

// Whether names that weft does not know are errors.
constexpr std::string_view strict = "WEFT_STRICT";

// Nothing: weft knows no variable of that name.
std::optional<Status> take(RuntimeOptions& to, const Given& given) {
    for (const Limit& limit : limits) {
        if (given.name != limit.name) continue;
        std::uint64_t number = 0;
        if (!parse(given.value, limit.least, limit.most, number)) {
            return bad(given, range_of(limit));
        }
        limit.set(to, number);
        return Status();
    }
    for (const Variable& variable : variables) {
        if (given.name == variable.name) return variable.take(to, given);
    }
    return {};
}

// The name that may have been meant. Empty: none is near.
std::string_view nearest(std::string_view name) {
    std::string_view best;
    std::size_t least = name.size() / 4 + 1;  // Edits that make another word of it.
    const auto look_at = [&](std::string_view known) {
        if (name.size() >= known.size() + least || known.size() >= name.size() + least) return;
        const std::size_t edits = base::edits_between(name, known);
        if (edits >= least) return;
        least = edits;
        best = known;
    };
    for (const Limit& limit : limits) look_at(limit.name);
    for (const Variable& variable : variables) look_at(variable.name);
    look_at(strict);
    return best;
}

constexpr std::size_t foreign_told_max = 8;

// "WEFT_ROOT, WEFT_TIMOUT (is WEFT_TIMEOUT meant?)".
std::string told(const std::vector<std::string_view>& foreign) {
    std::string text;
    for (std::size_t i = 0; i < std::min(foreign.size(), foreign_told_max); ++i) {
        if (i > 0) text += ", ";
        text += base::printable(foreign[i].substr(0, 64));
        if (const std::string_view meant = nearest(foreign[i]); !meant.empty()) {
            text += " (is " + std::string(meant) + " meant?)";
        }
    }
    if (foreign.size() > foreign_told_max) {
        text += " and " + std::to_string(foreign.size() - foreign_told_max) + " more";
    }
    return text;
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

Result<Overlaid> overlay_environment(RuntimeOptions options, char** environment) {
    std::vector<std::string_view> foreign;
    bool is_strict = false;
    for (char** at = environment; at && *at; ++at) {
        const std::string_view entry(*at);
        if (!entry.starts_with("WEFT_")) continue;
        const std::size_t equals = entry.find('=');
        if (equals == std::string_view::npos) continue;
        const Given given{entry.substr(0, equals), entry.substr(equals + 1)};
        if (given.name == strict) {
            is_strict = given.value == "1";
            if (!is_strict && given.value != "0") return bad(given, "0 or 1");
            continue;
        }
        const std::optional<Status> status = take(options, given);
        if (!status) {
            foreign.push_back(given.name);
        } else if (!status->ok()) {
            return *status;
        }
    }
    Overlaid overlaid{std::move(options), {}};
    if (foreign.empty()) return overlaid;
    if (is_strict) {
        return fail(Code::invalid_argument,
                    "WEFT_STRICT=1, and weft knows no variable " + told(foreign) +
                        " in the environment; docs/environment.md lists what weft reads");
    }
    overlaid.warning = "weft does not read " + told(foreign) +
                       " in the environment; docs/environment.md lists what it reads";
    return overlaid;
}

}  // namespace weft::api
