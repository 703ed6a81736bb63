// WEFT_ variables override a program's options; foreign names with that prefix are reported.
#include "api/environment.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <weft/call_options.h>

#include "base/cgroup.h"
#include "base/text.h"
#include "core/context_options.h"
#include "support/catch.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace {

Result<api::EffectiveOptions> overlay(std::vector<std::string> entries) {
    std::vector<char*> environment;
    for (std::string& entry : entries) environment.push_back(entry.data());
    environment.push_back(nullptr);
    return api::overlay_environment({}, environment.data());
}

std::string refusal_of(std::vector<std::string> entries) {
    const auto effective = overlay(std::move(entries));
    REQUIRE_FALSE(effective.ok());
    CHECK(effective.status().code() == Code::invalid_argument);
    return effective.status().to_string();
}

}  // namespace

TEST_CASE("each variable sets its option, and a bad value is refused with the valid ones") {
    const auto all = overlay({"WEFT_WAIT=block", "WEFT_SPIN=7", "WEFT_CPU=0", "WEFT_TIMEOUT=5",
                              "WEFT_PEERS=9", "WEFT_STATE_SIGNAL=none", "WEFT_LOG=off",
                              "WEFT_CALLS=11", "WEFT_STRICT=1", "HOME=/"});
    REQUIRE(all.ok());
    CHECK(all->warning.empty());
    CHECK(all->options.wait == WaitMode::block);
    CHECK(all->options.spin == 7us);
    CHECK(all->options.cpu == 0u);
    CHECK(all->options.default_timeout == 5ms);
    CHECK(all->options.peers_max == 9);
    CHECK(all->options.log_level == LogLevel::off);
    CHECK(all->options.calls_in_flight_max == 11);
    CHECK_THAT(refusal_of({"WEFT_WAIT=sometimes"}),
               Contains("WEFT_WAIT='sometimes'") && Contains("adaptive, spin or block"));
    CHECK_THAT(refusal_of({"WEFT_SPIN=1000001"}), Contains("microseconds from 0 to 1000000"));
    CHECK_THAT(refusal_of({"WEFT_ARENA="}), Contains("bytes from 1048576 to 1099511627776"));
    CHECK_THAT(refusal_of({"WEFT_HANDLERS=1x"}), Contains("a number from 1 to 4194304"));
    CHECK_THAT(refusal_of({"WEFT_STRICT=yes"}), Contains("0 or 1"));
}

TEST_CASE("the contexts and their cpus are numbers, ranges, or one for each cpu") {
    const auto contexts = [](const std::string& value) {
        return overlay({"WEFT_CONTEXTS=" + value}).value().options.contexts;
    };
    CHECK(contexts("1") == 1);
    CHECK(contexts("64") == 64);
    CHECK(contexts("cpus") == 0);  // As the option has it.
    for (const char* wrong : {"", "0", "65", "-1", "all", "2 "}) {
        CHECK_THAT(refusal_of({std::string("WEFT_CONTEXTS=") + wrong}),
                   Contains("a number from 1 to 64, or cpus: one for each cpu"));
    }
    const auto cpus = [](const std::string& value) {
        return overlay({"WEFT_CPUS=" + value}).value().options.cpus;
    };
    CHECK(cpus("7") == std::vector<unsigned>{7});
    CHECK(cpus("8,0-2,8") == std::vector<unsigned>{8, 0, 1, 2, 8});
    CHECK(cpus("0-8191").size() == 8192);
    for (const char* wrong : {"", ",", "1,", ",1", "3-1", "1-", "-1", "8192", "0-8192", "0-8191,0",
                              "1;2", "0x1", "0-3-5", "99999999999999999999"}) {
        CHECK_THAT(refusal_of({std::string("WEFT_CPUS=") + wrong}),
                   Contains("numbers of cpus and ranges, such as 0-3,8"));
    }
}

TEST_CASE("contexts that never sleep are refused on a cpu that two of them share") {
    const auto why_not = [](WaitMode wait, unsigned contexts, std::vector<unsigned> cpus) {
        RuntimeOptions options;
        options.wait = wait;
        options.contexts = contexts;
        options.cpus = std::move(cpus);
        const Status status = api::validate_options(options);
        CHECK(status.code() == (status.ok() ? Code::ok : Code::invalid_argument));
        return std::string(status.text());
    };
    const auto check_shared = [&](unsigned contexts, std::vector<unsigned> cpus) {
        CHECK_THAT(why_not(WaitMode::spin, contexts, std::move(cpus)),
                   Contains("WEFT_CPUS") && Contains("two of them to one cpu") &&
                       Contains("WaitMode::spin"));
    };
    check_shared(2, {1});
    check_shared(3, {0, 1});
    check_shared(2, {3, 3});
    check_shared(2, {3, 3, 4});  // The third cpu has no context.
    CHECK(why_not(WaitMode::spin, 1, {3, 3}).empty());
    CHECK(why_not(WaitMode::adaptive, 2, {1}).empty());
    CHECK(why_not(WaitMode::block, 64, {1}).empty());
    const unsigned usable = base::usable_cpus();
    const std::vector<unsigned> different{0, 1, 2, 3, 1};
    CHECK(why_not(WaitMode::spin, 2, different).empty() == (usable >= 2));
    CHECK(why_not(WaitMode::spin, 0, {1}).empty() == (usable == 1));
    CHECK_THAT(why_not(WaitMode::spin, 64, {}),
               usable >= 64 ? Contains("") : Contains("may use " + std::to_string(usable)));
}

TEST_CASE("contexts are as many as cpus, and threads for offload() as many as contexts") {
    RuntimeOptions options;
    CHECK(api::contexts_of(options) == 1);
    CHECK(core::offload_threads_of(options) == 2);
    options.contexts = 5;
    CHECK(api::contexts_of(options) == 5);
    CHECK(core::offload_threads_of(options) == 5);
    options.offload_threads = 2;  // What the program or the environment sets counts.
    CHECK(core::offload_threads_of(options) == 2);
    CHECK(overlay({"WEFT_OFFLOAD_THREADS=3"})->options.offload_threads == 3);
    CHECK(overlay({"WEFT_OFFLOAD_THREADS=0"})->options.offload_threads == 0);
    options.contexts = 0;
    CHECK(api::contexts_of(options) == std::min(base::usable_cpus(), 64u));
}

TEST_CASE("a number out of range is refused with its name, its value and its range") {
    struct Wrong {
        void (*spoil)(RuntimeOptions&);
        const char* text;
        const char* entry;
        const char* range;
    };
    using Options = RuntimeOptions;
    const Wrong wrong[] = {
        {[](Options& o) { o.spin = -5us; }, "spin is -5 us", "WEFT_SPIN=-5",
         "microseconds from 0 to 1000000"},
        {[](Options& o) { o.cpu = 8192; }, "cpu is 8192", "WEFT_CPU=8192",
         "a cpu number from 0 to 8191"},
        {[](Options& o) { o.default_timeout = -1s; }, "default_timeout is -1 s", "WEFT_TIMEOUT=0",
         "milliseconds from 1 to 86400000"},
        {[](Options& o) { o.arena_bytes_max = 4096; }, "arena_bytes_max is 4096", "WEFT_ARENA=1",
         "0, or bytes from 1048576 to 1099511627776"},
        {[](Options& o) { o.argument_bytes_max = 65535; }, "argument_bytes_max is 65535",
         "WEFT_ARGUMENT=65535", "bytes from 65536 to 1073741824"},
        {[](Options& o) { o.waiting_bytes_max = static_cast<std::size_t>(-1); },
         "waiting_bytes_max is -1", "WEFT_WAITING=0", "bytes from 1048576 to 1099511627776"},
        {[](Options& o) { o.calls_waiting_max = 0; }, "calls_waiting_max is 0",
         "WEFT_CALLS_WAITING=0", "a number from 1 to 4194304"},
        {[](Options& o) { o.calls_in_flight_max = static_cast<std::uint32_t>(-1); },
         "calls_in_flight_max is 4294967295", "WEFT_CALLS=4294967295",
         "a number from 1 to 4194304"},
        {[](Options& o) { o.bytes_in_flight_max = 0; }, "bytes_in_flight_max is 0",
         "WEFT_CALL_BYTES=0", "bytes from 1048576 to 1099511627776"},
        {[](Options& o) { o.handlers_max = 0; }, "handlers_max is 0", "WEFT_HANDLERS=-1",
         "a number from 1 to 4194304"},
        {[](Options& o) { o.handler_bytes_max = 1; }, "handler_bytes_max is 1",
         "WEFT_HANDLER_BYTES=1", "bytes from 1048576 to 1099511627776"},
        {[](Options& o) { o.parsed_bytes_max = std::size_t{1} << 63; },
         "parsed_bytes_max is -9223372036854775808", "WEFT_PARSED_BYTES=99999999999999999999",
         "bytes from 0 to 1099511627776"},
        {[](Options& o) { o.heartbeat_interval = 500us; }, "heartbeat_interval is 500 us",
         "WEFT_HEARTBEAT=60001", "milliseconds from 1 to 60000"},
        {[](Options& o) { o.peers_max = 65537; }, "peers_max is 65537", "WEFT_PEERS=0",
         "a number from 1 to 65536"},
        {[](Options& o) { o.drain_timeout = no_timeout; }, "drain_timeout is 9.22e+09 s",
         "WEFT_DRAIN=9223372036854775807", "milliseconds from 0 to 3600000"},
        {[](Options& o) { o.offload_threads = static_cast<unsigned>(-1); },
         "offload_threads is 4294967295", "WEFT_OFFLOAD_THREADS=257",
         "0, or a number from 1 to 256"},
    };
    for (const Wrong& one : wrong) {
        RuntimeOptions options;
        one.spoil(options);
        const Status status = api::validate_options(options);
        CHECK(status.code() == Code::invalid_argument);
        CHECK(status.text() ==
              "RuntimeOptions::" + std::string(one.text) + ": expected " + one.range);
        CHECK_THAT(refusal_of({one.entry}), Contains(std::string("expected ") + one.range));
    }
    RuntimeOptions options;
    options.default_timeout = no_timeout;
    CHECK(api::validate_options(options).ok());
    for (const int signal : {-1, SIGKILL, SIGTERM, SIGSEGV, 1000}) {
        options.state_signal = signal;
        CHECK_THAT(std::string(api::validate_options(options).text()),
                   Contains("state_signal is " + std::to_string(signal)) && Contains("SIGUSR1"));
    }
    options.state_signal = 0;
    options.wait = static_cast<WaitMode>(7);
    CHECK_THAT(std::string(api::validate_options(options).text()),
               Contains("RuntimeOptions::wait is 7"));
    options.wait = WaitMode::block;
    options.log_level = static_cast<LogLevel>(9);
    CHECK_THAT(std::string(api::validate_options(options).text()), Contains("log_level is 9"));
}

TEST_CASE("foreign names that begin with WEFT_ cause one warning with the likely names") {
    const auto foreign = overlay({"WEFT_SERVICE_HOST=10.0.0.1", "WEFT_PORT=tcp://10.0.0.1:80",
                                  "WEFT_ROOT=/opt", "WEFT_DIR=/opt", "WEFT_TIMOUT=5",
                                  "WEFT_CALL_BYTE=1", "WEFT_STRICT=0", "WEFT_SPIN=3"});
    REQUIRE(foreign.ok());
    CHECK(foreign->options.spin == 3us);
    CHECK_THAT(foreign->warning,
               Contains("WEFT_SERVICE_HOST, WEFT_PORT, WEFT_ROOT, WEFT_DIR, "
                        "WEFT_TIMOUT (is WEFT_TIMEOUT meant?), "
                        "WEFT_CALL_BYTE (is WEFT_CALL_BYTES meant?) in the environment"));
    std::vector<std::string> many;
    for (int i = 0; i < 1000; ++i) many.push_back("WEFT_SERVICE_PORT_" + std::to_string(i) + "=1");
    CHECK_THAT(overlay(many).value().warning, Contains(" and 992 more"));
    many = {"WEFT_" + std::string(100'000, '\n') + "=1"};
    CHECK(overlay(many).value().warning.size() < 1000);
}

TEST_CASE("with WEFT_STRICT=1 foreign names are errors, whatever their order") {
    for (const std::vector<std::string>& entries :
         {std::vector<std::string>{"WEFT_ROOT=/opt", "WEFT_STRICT=1"},
          std::vector<std::string>{"WEFT_STRICT=1", "WEFT_ROOT=/opt"}}) {
        CHECK_THAT(refusal_of(entries), Contains("WEFT_ROOT") && Contains("WEFT_STRICT=1"));
    }
}

TEST_CASE("edit_distance() counts the edits between two words") {
    CHECK(base::edit_distance("", "") == 0);
    CHECK(base::edit_distance("", "abc") == 3);
    CHECK(base::edit_distance("kitten", "sitting") == 3);
    CHECK(base::edit_distance("sitting", "kitten") == 3);
    CHECK(base::edit_distance("flaw", "lawn") == 2);
}
