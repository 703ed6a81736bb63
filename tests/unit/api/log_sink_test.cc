// Log sinks that use the runtime to which they belong.
#include <thread>

#include <weft/await.h>

#include "base/log.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/test_timeout.h"

using namespace weft;

namespace weft::log_sink_test {
namespace {

using test::EchoServer;
using test::request_of;
using test::test_timeout;

// Sends each line of its runtime through that runtime, and calls `also` for each line.
struct Shipping {
    LogSink sink() {
        return [this](LogLevel, std::string_view line) {
            lines.emplace_back(line);
            was_inside |= std::exchange(is_inside, true);
            if (channel && lines.size() < 50) {
                echo::v1::EchoClient(*channel).Now(
                    request_of(std::string(line)), {.timeout = 2s},
                    [this](const Status& status, const echo::v1::EchoReply&) {
                        ++ended;
                        if (!status.ok()) failures += status.to_string() + "\n";
                    });
            }
            if (also) also(line);
            is_inside = false;
        };
    }
    bool has(std::string_view part) const {
        return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
            return line.find(part) != std::string::npos;
        });
    }

    std::vector<std::string> lines;
    std::optional<Channel> channel;
    std::string failures;
    std::size_t ended = 0;
    bool is_inside = false, was_inside = false;
    std::function<void(std::string_view)> also;
};

// ---- over the simulated network -----------------------------------------------------------------

TEST_CASE("log sink: a sink may call through its own runtime without losing the connection") {
    Shipping shipping, at_server;
    EchoServer service;
    test::SimRig rig;
    Runtime& server =
        rig.add("server", {.log_level = LogLevel::debug, .log_sink = at_server.sink()});
    REQUIRE(server.add(service).ok());
    Runtime& client = rig.add("", {.log_level = LogLevel::debug, .log_sink = shipping.sink()});
    shipping.channel = client.connect("sim://server").value();
    // The transfer begins the connection without a session.
    const Region region = server.expose(server.allocate(1000).value(), {}).value();
    std::optional<Status> got;
    const auto fetch = [](Channel from, RegionRef ref, Buffer into,
                          std::optional<Status>& ended) -> Task<void> {
        ended = co_await get(from, ref, 0, into, {.timeout = 3s});
    };
    client.spawn(fetch(*shipping.channel, region.ref(), client.allocate(1000).value(), got));
    REQUIRE(rig.run_until([&] { return got && shipping.ended > 0; }));
    CHECK(got->ok());
    rig.run_for(5s);
    CHECK(shipping.failures == "");
    CHECK(shipping.has("connected to sim://server"));
    CHECK_FALSE(shipping.has("lost"));
    CHECK(at_server.lines.size() == 1);
    CHECK(service.handled == shipping.ended);
    CHECK_FALSE(shipping.was_inside);
}

TEST_CASE("log sink: a sink may drop the channel of a silent peer when the peer is lost") {
    Shipping shipping;
    EchoServer service;
    test::SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("", {.log_sink = shipping.sink()});
    std::optional<Channel> channel = client.connect("sim://server").value();
    shipping.also = [&](std::string_view) { channel.reset(); };
    std::vector<Code> ended;
    echo::v1::EchoClient(*channel).Held(
        request_of("x"), {.timeout = 30s},
        [&](const Status& status, const echo::v1::EchoReply&) { ended.push_back(status.code()); });
    rig.run_for(1s);
    rig.world->kill("server");
    REQUIRE(rig.run_until([&] { return !ended.empty(); }));
    rig.run_for(5s);
    CHECK(ended.size() == 1);
}

TEST_CASE("log sink: lines that a sink causes are delivered in later calls, one at a time") {
    Shipping shipping;
    test::SimRig rig;
    rig.add("server");
    Runtime& client = rig.add("", {.log_level = LogLevel::debug, .log_sink = shipping.sink()});
    // Each line's call makes a new connection; the channel that it replaces is lost at once.
    shipping.also = [&](std::string_view) {
        if (shipping.lines.size() >= 20) return;
        shipping.channel = client.connect("sim://server").value();
    };
    shipping.channel = client.connect("sim://server").value();
    echo::v1::EchoClient(*shipping.channel).Now(request_of("x"), {.timeout = 1s}, [](auto&&...) {});
    REQUIRE(rig.run_until([&] { return shipping.lines.size() >= 20; }));
    CHECK_FALSE(shipping.was_inside);
    rig.run_for(20s);
}

// ---- over real transports -----------------------------------------------------------------------

void check_real(const std::vector<std::string>& uris) {
    Shipping shipping;
    EchoServer service;
    Runtime server = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    REQUIRE(server.serve(service, uris).ok());
    Runtime client =
        Runtime::create({.log_level = LogLevel::debug, .log_sink = shipping.sink(), .manual = true})
            .value();
    const auto until = [&](const std::function<bool()>& done) {
        const auto both = [&] {
            server.turn();
            return done();
        };
        return client.turn_until(both, test_timeout);
    };
    shipping.channel = client.connect(server.addresses()).value();
    const Region region = server.expose(server.allocate(1000).value(), {}).value();
    std::optional<Status> got;
    const auto fetch = [](Channel from, RegionRef ref, Buffer into,
                          std::optional<Status>& ended) -> Task<void> {
        ended = co_await get(from, ref, 0, into, {.timeout = test_timeout});
    };
    client.spawn(fetch(*shipping.channel, region.ref(), client.allocate(1000).value(), got));
    REQUIRE(until([&] { return got && shipping.ended > 0; }));
    CHECK(got->ok());
    REQUIRE(until([&] { return shipping.ended == shipping.lines.size(); }));
    CHECK(shipping.failures == "");
    CHECK(shipping.has("connected to"));
    CHECK_FALSE(shipping.has("lost"));
    CHECK_FALSE(shipping.was_inside);
    CHECK(service.handled == shipping.ended);
}

TEST_CASE("log sink: a sink may call through its own runtime over sm") {
    check_real({test::fresh_uri("sm")});
}

TEST_CASE("log sink: a sink may call through its own runtime while a path is chosen") {
    check_real({test::fresh_uri("sm"), test::fresh_uri("tcp")});
}

// ---- the log by itself --------------------------------------------------------------------------

TEST_CASE("log sink: a line that a sink writes is delivered after the sink has returned") {
    std::vector<std::string> lines;
    bool is_inside = false;
    base::Log* itself = nullptr;
    base::Log log(LogLevel::info, [&](LogLevel, std::string_view line) {
        REQUIRE_FALSE(std::exchange(is_inside, true));
        lines.emplace_back(line);
        if (lines.size() < 3) itself->info(lines.back() + "+");
        is_inside = false;
    });
    itself = &log;
    log.info("a");
    CHECK(lines == std::vector<std::string>{"a", "a+", "a++"});
}

TEST_CASE("log sink: a line waits for deliver() only on threads that defer delivery") {
    std::vector<std::string> lines;
    base::Log log(LogLevel::info,
                  [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    const std::thread::id own = std::this_thread::get_id();
    log.set_defer_delivery([own] { return std::this_thread::get_id() == own; });
    log.info("a");
    CHECK(lines.empty());
    std::thread([&] { log.info("b"); }).join();
    CHECK(lines == std::vector<std::string>{"a", "b"});
    log.info("c");
    log.deliver();
    CHECK(lines.back() == "c");
}

TEST_CASE("log sink: the last lines of a runtime are delivered before its end") {
    Shipping shipping;
    {
        test::SimRig rig;
        rig.add("server");
        Runtime& client = rig.add("", {.log_level = LogLevel::debug, .log_sink = shipping.sink()});
        Channel channel = client.connect("sim://server").value();
        echo::v1::EchoClient(channel).Now(request_of("x"), {.timeout = 1s}, [](auto&&...) {});
        rig.run_for(2s);
        REQUIRE(shipping.lines.size() == 1);
    }
    CHECK(shipping.has("lost sim://server"));
}

TEST_CASE("log sink: no line is delivered after the end of the runtime") {
    Shipping shipping;
    Channel channel;
    {
        test::SimRig rig;
        rig.add("server");
        Runtime& client = rig.add("", {.log_level = LogLevel::debug, .log_sink = shipping.sink()});
        channel = client.connect("sim://server").value();
        echo::v1::EchoClient(channel).Now(request_of("x"), {.timeout = 1s}, [](auto&&...) {});
        rig.run_for(2s);
    }
    const std::size_t lines = shipping.lines.size();
    channel = {};
    CHECK(shipping.lines.size() == lines);
}

TEST_CASE("log sink: a sink that keeps a channel does not keep its runtime alive") {
    struct Kept {
        std::optional<Channel> channel;
        std::size_t lines = 0;
    };
    std::weak_ptr<api::RuntimeImpl> impl;
    {
        const auto kept = std::make_shared<Kept>();
        Runtime runtime = Runtime::create({.log_level = LogLevel::debug,
                                           .log_sink = [kept](auto&&...) { ++kept->lines; }})
                              .value();
        impl = impl_of(runtime).weak_from_this();
        kept->channel = runtime.connect(test::fresh_uri("sm")).value();
    }
    CHECK(impl.expired());
}

}  // namespace
}  // namespace weft::log_sink_test
