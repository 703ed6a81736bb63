#include "api/environment.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "base/text.h"
#include "na/economies.h"

namespace weft::api {

namespace {

struct Given {
    std::string_view name;
    std::string_view value;
};

Status bad(const Given& given, std::string_view good) {
    return fail(Code::invalid_argument, std::string(given.name) + "='" + std::string(given.value) +
                                            "' in the environment: expected " + std::string(good));
}

// All of the text. False: it is no such number.
bool parse(std::string_view text, const base::Bounds& bounds, std::int64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    const std::int64_t scale = std::max<std::int64_t>(base::ns_in(bounds.unit), 1);
    if (__builtin_mul_overflow(into, scale, &into)) return false;
    return bounds.hold(into);
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

// A number of RuntimeOptions, with the variable that overlays it.
struct Number : base::Ranged<RuntimeOptions> {
    std::string_view variable;
    void (*set)(RuntimeOptions&, std::int64_t);
};

std::int64_t number_of(Duration span) { return span.count(); }
std::int64_t number_of(const std::optional<unsigned>& cpu) { return cpu.value_or(0); }
template <class Count>
std::int64_t number_of(const Count& count) {
    return static_cast<std::int64_t>(count);
}

template <class Option>
void assign(Option& option, std::int64_t number) {
    option = static_cast<Option>(number);
}
void assign(std::optional<unsigned>& cpu, std::int64_t number) {
    cpu = static_cast<unsigned>(number);
}

template <auto member>
constexpr Number number(std::string_view variable, std::string_view name, base::Bounds bounds) {
    return {
        {name, bounds, [](const RuntimeOptions& options) { return number_of(options.*member); }},
        variable,
        [](RuntimeOptions& options, std::int64_t value) { assign(options.*member, value); }};
}

using Options = RuntimeOptions;
using base::Unit;

constexpr std::int64_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30, tib = gib << 10;
constexpr base::Bounds calls{Unit::number, 1, 4 << 20};
constexpr base::Bounds bytes_in_all{Unit::bytes, mib, tib};

// Every number that a program or the environment may set.
constexpr Number numbers[] = {
    number<&Options::spin>("WEFT_SPIN", "spin", {Unit::us, 0, 1'000'000}),
    number<&Options::cpu>("WEFT_CPU", "cpu", {Unit::cpu, 0, 8191}),
    number<&Options::default_timeout>("WEFT_TIMEOUT", "default_timeout", {Unit::ms, 1, 86'400'000}),
    number<&Options::arena_bytes_max>("WEFT_ARENA", "arena_bytes_max",
                                      {Unit::bytes, mib, tib, true}),
    number<&Options::argument_bytes_max>("WEFT_ARGUMENT", "argument_bytes_max",
                                         {Unit::bytes, 64 * kib, gib}),
    number<&Options::waiting_bytes_max>("WEFT_WAITING", "waiting_bytes_max", bytes_in_all),
    number<&Options::calls_waiting_max>("WEFT_CALLS_WAITING", "calls_waiting_max", calls),
    number<&Options::calls_in_flight_max>("WEFT_CALLS", "calls_in_flight_max", calls),
    number<&Options::bytes_in_flight_max>("WEFT_CALL_BYTES", "bytes_in_flight_max", bytes_in_all),
    number<&Options::handlers_max>("WEFT_HANDLERS", "handlers_max", calls),
    number<&Options::handler_bytes_max>("WEFT_HANDLER_BYTES", "handler_bytes_max", bytes_in_all),
    number<&Options::parsed_bytes_max>("WEFT_PARSED_BYTES", "parsed_bytes_max",
                                       {Unit::bytes, 0, tib}),
    number<&Options::heartbeat_interval>("WEFT_HEARTBEAT", "heartbeat_interval",
                                         {Unit::ms, 1, 60'000}),
    number<&Options::peers_max>("WEFT_PEERS", "peers_max", {Unit::number, 1, 65536}),
    number<&Options::drain_timeout>("WEFT_DRAIN", "drain_timeout", {Unit::ms, 0, 3'600'000}),
    number<&Options::offload_threads>("WEFT_OFFLOAD_THREADS", "offload_threads",
                                      {Unit::number, 1, 256}),
};

// Programs may wait for longer than the environment can say.
constexpr Duration default_timeout_most = 24h;

struct Variable {
    std::string_view name;
    Status (*take)(RuntimeOptions& to, const Given& given);
};

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

constexpr Variable variables[] = {
    {"WEFT_WAIT", take_wait},
    {"WEFT_VERBS_WITHOUT", take_economies},
    {"WEFT_STATE_SIGNAL", take_signal},
    {"WEFT_LOG", take_level},
};

// Whether names that weft does not know are errors.
constexpr std::string_view strict = "WEFT_STRICT";

// Nothing: weft knows no variable of that name.
std::optional<Status> take(RuntimeOptions& to, const Given& given) {
    for (const Number& one : numbers) {
        if (given.name != one.variable) continue;
        std::int64_t value = 0;
        if (!parse(given.value, one.bounds, value)) return bad(given, one.bounds.text());
        one.set(to, value);
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
    for (const Number& one : numbers) look_at(one.variable);
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

// A signal that a program can wait for, and that ends no run().
static bool may_ask_for_state(int signal) {
    constexpr int never_asked[] = {SIGINT, SIGTERM, SIGKILL, SIGSTOP, SIGSEGV,
                                   SIGBUS, SIGFPE,  SIGILL,  SIGABRT};
    if (signal < 0 || signal > SIGRTMAX) return false;
    return std::find(std::begin(never_asked), std::end(never_asked), signal) ==
           std::end(never_asked);
}

Status judge(const RuntimeOptions& options) {
    const auto bad_option = [](std::string_view name, int value, std::string_view good) {
        return fail(Code::invalid_argument, "RuntimeOptions::" + std::string(name) + " is " +
                                                std::to_string(value) + ": expected " +
                                                std::string(good));
    };
    RuntimeOptions within = options;
    within.default_timeout = std::min(options.default_timeout, default_timeout_most);
    if (Status status = base::judge_ranges("RuntimeOptions", within, numbers); !status.ok()) {
        return status;
    }
    if (options.wait > WaitMode::block) {
        return bad_option("wait", static_cast<int>(options.wait), "a value of WaitMode");
    }
    if (options.log_level > LogLevel::off) {
        return bad_option("log_level", static_cast<int>(options.log_level), "a value of LogLevel");
    }
    if (!may_ask_for_state(options.state_signal)) {
        return bad_option("state_signal", options.state_signal,
                          "0, or a signal that a program may wait for, as SIGUSR1, and neither "
                          "SIGINT nor SIGTERM, which end run()");
    }
    if (!na::economies_without(options.verbs_without)) {
        return fail(Code::invalid_argument,
                    "RuntimeOptions::verbs_without is '" + base::printable(options.verbs_without) +
                        "': expected names of " + na::economy_names() + ", with commas between");
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
