// Reports of a runtime on its state: on request, and in the log when a fault occurs.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/flight_recorder.h"
#include "support/child.h"
#include "support/lost_pair.h"
#include "support/test_timeout.h"

namespace weft::base {
struct FlightRecorderPeer {
    static std::uint64_t recorded(const FlightRecorder& recorder) { return recorder.recorded_; }
};
}  // namespace weft::base

using namespace weft;
using namespace weft::test;

namespace {

// The log of a runtime.
struct LogCapture {
    std::mutex mutex;
    std::vector<std::string> lines;
    LogSink sink() {
        return [this](LogLevel, std::string_view line) {
            const std::lock_guard lock(mutex);
            lines.emplace_back(line);
        };
    }
    std::size_t count(const std::string& part) {
        const std::lock_guard lock(mutex);
        return static_cast<std::size_t>(std::count_if(
            lines.begin(), lines.end(),
            [&](const std::string& line) { return line.find(part) != std::string::npos; }));
    }
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("state: the text lists calls, handlers, sessions and latencies") {
    Lost lost;
    for (std::uint32_t i = 0; i < rpc::calls_per_sample; ++i) lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, {}, {.timeout = 1h}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    const std::string client = lost.named.state();
    INFO(client);
    CHECK(contains(client, "65 submitted, 1 in flight, 1 sent"));
    CHECK(contains(client, "OK 64"));
    CHECK(contains(client, "sim://server: open, 1 of 1024 slots"));
    CHECK(contains(client, "test.Echo/Echo to sim://server: sent"));
    CHECK(contains(client, "test.Echo/Echo: n = 1, p50"));
    CHECK(contains(client, "session begun sim://server"));
    const std::string server = lost.server.state();
    INFO(server);
    CHECK(contains(server, "handlers: 1 calls"));
    CHECK(contains(server, "test.Echo/Echo for sim://client, "));
    CHECK(contains(server, "test.Echo/Echo: in the handler n = 1, p50"));
    CHECK(contains(server, "connected sim://client"));
    lost.rig.kill("server");
    const auto& session = *rpc::client_session(lost.peer());
    REQUIRE(lost.rig.run_until([&] { return session.state == rpc::SessionState::reconnecting; }));
    CHECK(contains(lost.named.state(), "sim://server: reconnecting"));
    CHECK(contains(lost.named.state(), "session interrupted sim://server (1)"));
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
}

TEST_CASE("state: the number of lines is bounded") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(1000);
    for (CallOutcome& one : outcomes) lost.channel.call(echo_method, {}, {}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1000; }));
    for (const Runtime* runtime : {&lost.named, &lost.server}) {
        const std::string text = const_cast<Runtime*>(runtime)->state();
        CHECK(std::count(text.begin(), text.end(), '\n') < 200);
    }
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
}

TEST_CASE("state: a handler that overstays is logged once a minute") {
    Echo service;
    SimRig rig;
    LogCapture log_capture;
    service.hold = true;
    REQUIRE(rig.add("server", {.log_sink = log_capture.sink()}).add(service).ok());
    Channel channel = rig.add("client").connect("sim://server").value();
    CallOutcome late, longer;
    channel.call(echo_method, {}, {.timeout = 100ms}, late.done());
    channel.call(echo_method, {}, {.timeout = 1h}, longer.done());
    rig.run_for(5s);
    CHECK(log_capture.count("overstays") == 0);
    rig.run_for(2s);
    CHECK(log_capture.count("a handler overstays:  test.Echo/Echo for sim://client, cancelled") ==
          1);
    CHECK(log_capture.count("handlers: 2 calls") == 1);
    rig.run_for(50s);
    CHECK(log_capture.count("overstays") == 1);
    rig.run_for(20s);
    CHECK(log_capture.count("overstays") == 2);
    service.held.clear();
    rig.run_for(120s);
    CHECK(log_capture.count("overstays") == 2);
}

TEST_CASE("state: a handler that overstays is logged also when its client has disconnected") {
    Echo service;
    SimRig rig;
    LogCapture log_capture;
    service.hold = true;
    REQUIRE(rig.add("server", {.log_sink = log_capture.sink()}).add(service).ok());
    Channel channel = rig.add("client").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {.timeout = 100ms}, outcome.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
    rig.kill("client");
    rig.run_for(20s);
    CHECK(log_capture.count("a handler overstays:  test.Echo/Echo for sim://client, cancelled") ==
          1);
    service.held.clear();
    rig.run_for(20s);
}

TEST_CASE("state: a handler that blocks the context is logged with its method and the time") {
    constexpr MethodId blocks("test.Slow/Block");
    struct Slow final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Slow/Block"), [](Call call) {
                std::this_thread::sleep_for(1200ms);
                call.reply({});
            });
        }
    } service;
    LogCapture log_capture;
    const std::string uri = "sm://blocks-" + std::to_string(::getpid());
    Runtime server = Runtime::create({.log_sink = log_capture.sink()}).value();
    REQUIRE(server.serve(service, uri).ok());
    Runtime client = Runtime::create({.manual = true}).value();
    Channel channel = client.connect(uri).value();
    // Logged once a minute at most.
    for (int i = 0; i < 2; ++i) {
        CallOutcome outcome;
        channel.call(blocks, {}, {.timeout = 60s}, outcome.done());
        REQUIRE(client.turn_until([&] { return outcome.completions == 1; }, test_timeout));
        REQUIRE(client.turn_until([&] { return log_capture.count("blocked or stopped for") == 1; },
                                  test_timeout));
    }
    CHECK(log_capture.count("blocked or stopped for 1") == 1);
    CHECK(log_capture.count("test.Slow/Block") == 1);
    CHECK(log_capture.count("weft::offload") == 1);
}

TEST_CASE("state: a context that blocks while it has no peer logs nothing") {
    LogCapture log_capture;
    Runtime runtime = Runtime::create({.log_sink = log_capture.sink(), .manual = true}).value();
    runtime.executor().post([] { std::this_thread::sleep_for(1200ms); });
    for (int i = 0; i < 3; ++i) runtime.turn_until([i] { return i > 0; }, 1ms);
    CHECK(log_capture.count("blocked or stopped for") == 0);
}

TEST_CASE("state: run() logs the state on a signal, also when a handler blocks") {
    CHECK(
        end_of_child([] {
            sigset_t signals;
            sigemptyset(&signals);
            sigaddset(&signals, SIGUSR2);
            pthread_sigmask(SIG_BLOCK, &signals, nullptr);
            LogCapture log_capture;
            Runtime runtime =
                Runtime::create({.state_signal = SIGUSR2, .log_sink = log_capture.sink()}).value();
            Status status;
            std::thread runs([&] { status = runtime.run(); });
            const auto wait_for = [&](const std::string& part) {
                while (log_capture.count(part) == 0) std::this_thread::yield();
            };
            kill(getpid(), SIGUSR2);
            wait_for("as asked by a signal:\nendpoints:");
            std::atomic<bool> blocks{true};
            runtime.executor().post([&] { blocks.wait(true); });
            kill(getpid(), SIGUSR2);
            wait_for("does not turn");
            blocks = false;
            blocks.notify_all();
            runtime.stop();
            runs.join();
            return status.ok() ? 0 : 1;
        }) == 0);
}

TEST_CASE("flight recorder: the last events are kept, in order") {
    base::FlightRecorder recorder;
    const TimePoint start{};
    CHECK(recorder.last(10, start).empty());
    const std::string longest(100, 'x');
    for (std::uint64_t i = 0; i < 1000; ++i) {
        recorder.record(start + i * 1ms, "thing", i % 2 == 0 ? "even" : longest, i);
    }
    CHECK(base::FlightRecorderPeer::recorded(recorder) == 1000);
    const std::string two = recorder.last(2, start + 1s);
    CHECK(two == "  -0.002000 s  thing even (998)\n  -0.001000 s  thing " + longest.substr(0, 39) +
                     " (999)\n");
    const std::string all = recorder.last(10'000, start + 1s);
    CHECK(std::count(all.begin(), all.end(), '\n') ==
          static_cast<std::ptrdiff_t>(base::FlightRecorder::events_max));
}

TEST_CASE("flight recorder: an assertion that fails prints it") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        // Catch must not report the abort of this child.
        ::signal(SIGABRT, SIG_DFL);
        ::dup2(ends[1], 2);
        base::FlightRecorder recorder;
        recorder.record(TimePoint(), "something happened to", "a peer");
        base::assertion_failed("a fact", "file", 1);
    }
    ::close(ends[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        said.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(contains(said, "a fact"));
    CHECK(contains(said, "something happened to a peer"));
}
