#include "api/environment.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>
#include <vector>

#include "base/cgroup.h"
#include "base/range.h"
#include "base/text.h"
#include "na/hello.h"
#include "na/verbs_optimizations.h"

namespace weft::api {

namespace {

struct Assignment {
    std::string_view name;
    std::string_view value;
};

Status bad(const Assignment& assignment, std::string_view expected) {
    return fail(Code::invalid_argument,
                std::string(assignment.name) + "='" + std::string(assignment.value) +
                    "' in the environment: expected " + std::string(expected));
}

// Parses all of `text`. False: it is no number within `bounds`.
bool parse(std::string_view text, const base::Bounds& bounds, std::int64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    const std::int64_t scale = std::max<std::int64_t>(base::ns_in(bounds.unit), 1);
    if (__builtin_mul_overflow(into, scale, &into)) return false;
    return bounds.contains(into);
}

template <class Option>
struct Choice {
    std::string_view word;
    Option means;
};

template <class Option, std::size_t count>
Status parse_choice(Option& option, const Assignment& assignment,
                    const Choice<Option> (&words)[count]) {
    std::string expected;
    for (std::size_t i = 0; i < count; ++i) {
        if (assignment.value == words[i].word) {
            option = words[i].means;
            return {};
        }
        expected += i == 0 ? "" : i + 1 == count ? " or " : ", ";
        expected += words[i].word;
    }
    return bad(assignment, expected);
}

// A number of RuntimeOptions, with the variable that overlays it.
struct NumericOption : base::RangedOption<RuntimeOptions> {
    std::string_view variable;
    void (*set)(RuntimeOptions&, std::int64_t);
};

std::int64_t to_number(Duration span) { return span.count(); }
std::int64_t to_number(const std::optional<unsigned>& cpu) { return cpu.value_or(0); }
template <class Count>
std::int64_t to_number(const Count& count) {
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
constexpr NumericOption number(std::string_view variable, std::string_view name,
                               base::Bounds bounds) {
    return {
        {name, bounds, [](const RuntimeOptions& options) { return to_number(options.*member); }},
        variable,
        [](RuntimeOptions& options, std::int64_t value) { assign(options.*member, value); }};
}

using Options = RuntimeOptions;
using base::Unit;

constexpr std::int64_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30, tib = gib << 10;
constexpr base::Bounds calls{Unit::number, 1, 4 << 20};
constexpr base::Bounds cpu_numbers{Unit::cpu, 0, 8191};
constexpr std::size_t cpus_max = 8192;
constexpr base::Bounds bytes_in_all{Unit::bytes, mib, tib};

// Every number that a program or the environment may set.
constexpr NumericOption numbers[] = {
    number<&Options::spin>("WEFT_SPIN", "spin", {Unit::us, 0, 1'000'000}),
    number<&Options::cpu>("WEFT_CPU", "cpu", cpu_numbers),
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
                                      {Unit::number, 1, 256, true}),
};

// A program may set a longer timeout than the environment.
constexpr Duration default_timeout_max = 24h;

struct Parser {
    std::string_view name;
    Status (*apply)(RuntimeOptions& to, const Assignment& assignment);
};

Status apply_wait(RuntimeOptions& to, const Assignment& assignment) {
    static constexpr Choice<WaitMode> words[] = {
        {"adaptive", WaitMode::adaptive}, {"spin", WaitMode::spin}, {"block", WaitMode::block}};
    return parse_choice(to.wait, assignment, words);
}

Status apply_signal(RuntimeOptions& to, const Assignment& assignment) {
    static constexpr Choice<int> words[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"none", 0}};
    return parse_choice(to.state_signal, assignment, words);
}

Status apply_level(RuntimeOptions& to, const Assignment& assignment) {
    static constexpr Choice<LogLevel> words[] = {
        {"trace", LogLevel::trace},     {"debug", LogLevel::debug}, {"info", LogLevel::info},
        {"warning", LogLevel::warning}, {"error", LogLevel::error}, {"off", LogLevel::off}};
    return parse_choice(to.log_level, assignment, words);
}

Status apply_verbs_without(RuntimeOptions& to, const Assignment& assignment) {
    if (!na::optimizations_without(assignment.value)) {
        return bad(assignment, "names of " + na::optimization_names() + ", with commas between");
    }
    to.verbs_without = assignment.value;
    return {};
}

Status apply_contexts(RuntimeOptions& to, const Assignment& assignment) {
    if (assignment.value == "cpus") {
        to.contexts = 0;
        return {};
    }
    std::int64_t value = 0;
    if (!parse(assignment.value, {Unit::number, 1, na::contexts_max}, value))
        return bad(assignment, "a number from 1 to " + std::to_string(na::contexts_max) +
                                   ", or cpus: one for each cpu");
    to.contexts = static_cast<unsigned>(value);
    return {};
}

// "0-3,8": numbers and ranges. nullopt: it is no such list.
std::optional<std::vector<unsigned>> parse_cpus(std::string_view text) {
    std::vector<unsigned> cpus;
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        const std::string_view item = text.substr(0, comma);
        const std::size_t dash = std::min(item.find('-'), item.size());
        std::int64_t first = 0;
        std::int64_t last = 0;
        if (!parse(item.substr(0, dash), cpu_numbers, first)) return {};
        last = first;
        if (dash != item.size() && !parse(item.substr(dash + 1), cpu_numbers, last)) return {};
        if (last < first || cpus.size() + static_cast<std::size_t>(last - first) >= cpus_max)
            return {};
        for (std::int64_t cpu = first; cpu <= last; ++cpu)
            cpus.push_back(static_cast<unsigned>(cpu));
        if (comma + 1 == text.size()) return {};  // A comma at the end.
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
    if (cpus.empty()) return {};
    return cpus;
}

Status apply_cpus(RuntimeOptions& to, const Assignment& assignment) {
    std::optional<std::vector<unsigned>> cpus = parse_cpus(assignment.value);
    if (!cpus) return bad(assignment, "numbers of cpus and ranges, such as 0-3,8");
    to.cpus = *std::move(cpus);
    return {};
}

constexpr Parser variables[] = {
    {"WEFT_WAIT", apply_wait},           {"WEFT_CONTEXTS", apply_contexts},
    {"WEFT_CPUS", apply_cpus},           {"WEFT_VERBS_WITHOUT", apply_verbs_without},
    {"WEFT_STATE_SIGNAL", apply_signal}, {"WEFT_LOG", apply_level},
};

// Whether unknown names are errors.
constexpr std::string_view strict = "WEFT_STRICT";

// nullopt: weft reads no variable of that name.
std::optional<Status> apply(RuntimeOptions& to, const Assignment& assignment) {
    for (const NumericOption& one : numbers) {
        if (assignment.name != one.variable) continue;
        std::int64_t value = 0;
        if (!parse(assignment.value, one.bounds, value)) return bad(assignment, one.bounds.text());
        one.set(to, value);
        return Status();
    }
    for (const Parser& variable : variables) {
        if (assignment.name == variable.name) return variable.apply(to, assignment);
    }
    return {};
}

// The name that was probably meant. Empty: none is similar.
std::string_view nearest(std::string_view name) {
    std::string_view best;
    std::size_t edits_max = name.size() / 4 + 1;  // So many edits make another word.
    const auto consider = [&](std::string_view known) {
        if (name.size() >= known.size() + edits_max || known.size() >= name.size() + edits_max)
            return;
        const std::size_t edits = base::edit_distance(name, known);
        if (edits >= edits_max) return;
        edits_max = edits;
        best = known;
    };
    for (const NumericOption& one : numbers) consider(one.variable);
    for (const Parser& variable : variables) consider(variable.name);
    consider(strict);
    return best;
}

constexpr std::size_t foreign_listed_max = 8;

// "WEFT_ROOT, WEFT_TIMOUT (is WEFT_TIMEOUT meant?)".
std::string list_of(const std::vector<std::string_view>& foreign) {
    std::string text;
    for (std::size_t i = 0; i < std::min(foreign.size(), foreign_listed_max); ++i) {
        if (i > 0) text += ", ";
        text += base::printable(foreign[i].substr(0, 64));
        if (const std::string_view meant = nearest(foreign[i]); !meant.empty()) {
            text += " (is " + std::string(meant) + " meant?)";
        }
    }
    if (foreign.size() > foreign_listed_max) {
        text += " and " + std::to_string(foreign.size() - foreign_listed_max) + " more";
    }
    return text;
}

}  // namespace

// A signal that a program can wait for, and that does not end run().
static bool is_usable_state_signal(int signal) {
    constexpr int excluded[] = {SIGINT, SIGTERM, SIGKILL, SIGSTOP, SIGSEGV,
                                SIGBUS, SIGFPE,  SIGILL,  SIGABRT};
    if (signal < 0 || signal > SIGRTMAX) return false;
    return std::find(std::begin(excluded), std::end(excluded), signal) == std::end(excluded);
}

unsigned contexts_of(const RuntimeOptions& options) {
    if (options.contexts != 0) return options.contexts;
    return std::min<unsigned>(base::usable_cpus(), na::contexts_max);
}

// Requires: the numbers of contexts and cpus are valid.
static Status validate_spinning(const RuntimeOptions& options) {
    if (options.wait != WaitMode::spin || options.contexts == 1) return {};
    const unsigned contexts = contexts_of(options);
    // Context i is bound to cpus[i % size].
    std::vector<unsigned> cpus = options.cpus;
    cpus.resize(std::min<std::size_t>(cpus.size(), contexts));
    std::ranges::sort(cpus);
    cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
    if (!cpus.empty() && cpus.size() < contexts) {
        return fail(Code::invalid_argument,
                    "RuntimeOptions::contexts (WEFT_CONTEXTS) is " + std::to_string(contexts) +
                        ", and RuntimeOptions::cpus (WEFT_CPUS) binds two of them to one cpu: "
                        "contexts that never sleep (WaitMode::spin) need a cpu each");
    }
    const unsigned usable = base::usable_cpus();
    if (usable >= contexts) return {};
    return fail(Code::invalid_argument,
                "RuntimeOptions::contexts (WEFT_CONTEXTS) is " + std::to_string(contexts) +
                    ", and the process may use " + std::to_string(usable) +
                    " cpus: contexts that never sleep (WaitMode::spin) need a cpu each");
}

static Status validate_contexts(const RuntimeOptions& options) {
    if (options.contexts > na::contexts_max) {
        return fail(Code::invalid_argument,
                    "RuntimeOptions::contexts (WEFT_CONTEXTS) is " +
                        std::to_string(options.contexts) + ": expected at most " +
                        std::to_string(na::contexts_max) + ", or 0: one for each cpu");
    }
    if (options.cpu && (options.contexts != 1 || !options.cpus.empty())) {
        return fail(Code::invalid_argument,
                    "RuntimeOptions::cpu (WEFT_CPU) is for a runtime with one context: give the "
                    "cpus of several by RuntimeOptions::cpus (WEFT_CPUS)");
    }
    for (const unsigned cpu : options.cpus) {
        if (!cpu_numbers.contains(cpu)) {
            return fail(Code::invalid_argument, "RuntimeOptions::cpus (WEFT_CPUS) has " +
                                                    std::to_string(cpu) + ": expected " +
                                                    cpu_numbers.text());
        }
    }
    return validate_spinning(options);
}

Status validate_options(const RuntimeOptions& options) {
    const auto bad_option = [](std::string_view name, int value, std::string_view expected) {
        return fail(Code::invalid_argument, "RuntimeOptions::" + std::string(name) + " is " +
                                                std::to_string(value) + ": expected " +
                                                std::string(expected));
    };
    RuntimeOptions within = options;
    within.default_timeout = std::min(options.default_timeout, default_timeout_max);
    if (Status status = base::validate_ranges("RuntimeOptions", within, numbers); !status.ok()) {
        return status;
    }
    if (options.wait > WaitMode::block) {
        return bad_option("wait", static_cast<int>(options.wait), "a value of WaitMode");
    }
    if (options.log_level > LogLevel::off) {
        return bad_option("log_level", static_cast<int>(options.log_level), "a value of LogLevel");
    }
    if (Status status = validate_contexts(options); !status.ok()) return status;
    if (!is_usable_state_signal(options.state_signal)) {
        return bad_option("state_signal", options.state_signal,
                          "0, or a signal that a program may wait for, as SIGUSR1, and neither "
                          "SIGINT nor SIGTERM, which end run()");
    }
    if (!na::optimizations_without(options.verbs_without)) {
        return fail(Code::invalid_argument, "RuntimeOptions::verbs_without is '" +
                                                base::printable(options.verbs_without) +
                                                "': expected names of " + na::optimization_names() +
                                                ", with commas between");
    }
    return {};
}

Result<EffectiveOptions> overlay_environment(RuntimeOptions options, char** environment) {
    std::vector<std::string_view> foreign;
    bool is_strict = false;
    for (char** at = environment; at && *at; ++at) {
        const std::string_view entry(*at);
        if (!entry.starts_with("WEFT_")) continue;
        const std::size_t equals = entry.find('=');
        if (equals == std::string_view::npos) continue;
        const Assignment assignment{entry.substr(0, equals), entry.substr(equals + 1)};
        if (assignment.name == strict) {
            is_strict = assignment.value == "1";
            if (!is_strict && assignment.value != "0") return bad(assignment, "0 or 1");
            continue;
        }
        const std::optional<Status> status = apply(options, assignment);
        if (!status) {
            foreign.push_back(assignment.name);
        } else if (!status->ok()) {
            return *status;
        }
    }
    EffectiveOptions effective{std::move(options), {}};
    if (foreign.empty()) return effective;
    if (is_strict) {
        return fail(Code::invalid_argument,
                    "WEFT_STRICT=1, and weft knows no variable " + list_of(foreign) +
                        " in the environment; docs/environment.md lists what weft reads");
    }
    effective.warning = "weft does not read " + list_of(foreign) +
                        " in the environment; docs/environment.md lists what it reads";
    return effective;
}

}  // namespace weft::api
