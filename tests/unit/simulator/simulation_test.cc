// A user's service in the simulator (weft/sim.h).
#include <weft/sim.h>

#include <algorithm>
#include <optional>
#include <set>

#include <weft/service.h>

#include "api/runtime_impl.h"
#include "support/catch.h"

using namespace weft;

namespace {

constexpr MethodId count_method("test.Counter/Count");

// Counts in memory: a restart resets the count.
class Counter : public Service {
  public:
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(count_method, [this](Call call) {
            const std::string text = std::to_string(++count_);
            call.reply(as_bytes(text));
        });
    }

  private:
    int count_ = 0;
};

weft::sim::Simulation::Program counter_at(const std::string& name) {
    return [name](Runtime& runtime) {
        auto counter = std::make_shared<Counter>();
        REQUIRE(runtime.serve(*counter, "sim://" + name).ok());
        return counter;
    };
}

std::shared_ptr<void> no_program(Runtime&) { return nullptr; }

struct Answer {
    bool came = false;
    Status status;
    std::string text;
};

class SimulatedPair {
  public:
    explicit SimulatedPair(std::uint64_t seed, const weft::sim::Link& links = {})
        : simulation(seed, {.links = links}) {
        simulation.add("server", counter_at("server"));
        simulation.add("client", no_program);
        channel = simulation.runtime("client")->connect("sim://server").value();
    }

    Answer ask(Duration timeout = 5s) {
        const auto answer = std::make_shared<Answer>();
        channel.call(count_method, {}, {.timeout = timeout},
                     [answer](const Status& status, ByteView reply) {
                         *answer = {true, status, std::string(as_text(reply))};
                     });
        CHECK_FALSE(answer->came);
        REQUIRE(simulation.run_until([&] { return answer->came; }, 10s));
        return *answer;
    }

    weft::sim::Simulation simulation;
    Channel channel;
};

}  // namespace

TEST_CASE("simulation: a service answers, is killed, and starts anew at its address") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    CHECK(pair.ask().text == "2");
    const bool is_told = GENERATE(true, false);
    CAPTURE(is_told);
    if (is_told) {
        pair.simulation.kill("server");
    } else {
        pair.simulation.crash("server");
    }
    CHECK_FALSE(pair.simulation.is_up("server"));
    CHECK(pair.ask().status.code() == Code::unavailable);
    pair.simulation.start("server");
    CHECK(pair.simulation.starts("server") == 2);
    CHECK(pair.ask().text == "1");
    CHECK(pair.simulation.faults() > 0);
}

TEST_CASE("simulation: a paused server answers when it is resumed") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    pair.simulation.pause("server");
    pair.simulation.in(300ms, [&] { pair.simulation.resume("server"); });
    const TimePoint start = pair.simulation.now();
    CHECK(pair.ask().text == "2");
    CHECK(pair.simulation.now() - start >= 300ms);
}

TEST_CASE("simulation: a server that ends in order sends its replies before it goes down") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    int answered = 0;
    for (int i = 0; i < 20; ++i) {
        pair.channel.call(count_method, {}, {},
                          [&](const Status& status, ByteView) { answered += status.ok(); });
    }
    pair.simulation.run_for(20us);  // The server has received the calls.
    pair.simulation.end("server");
    REQUIRE(pair.simulation.run_until([&] { return !pair.simulation.is_up("server"); }, 5s));
    CHECK(answered == 20);
    CHECK(pair.ask().status.code() == Code::unavailable);
    pair.simulation.start("server");
    CHECK(pair.ask().text == "1");
}

TEST_CASE("simulation: the end of a server does not wait for an idle client") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    pair.simulation.run_for(3s);
    const TimePoint begun = pair.simulation.now();
    pair.simulation.end("server");
    REQUIRE(pair.simulation.run_until([&] { return !pair.simulation.is_up("server"); }, 10s));
    CHECK(pair.simulation.now() - begun < 100ms);
}

TEST_CASE("simulation: a server that is paused while it ends goes down when it is resumed") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    pair.simulation.end("server");
    pair.simulation.pause("server");
    pair.simulation.run_for(2s);
    CHECK(pair.simulation.is_up("server"));
    pair.simulation.resume("server");
    // The client may have given the server up meanwhile; the server detects that by its silence.
    CHECK(pair.simulation.run_until([&] { return !pair.simulation.is_up("server"); }, 4s));
}

TEST_CASE("simulation: watch_reads() reports the memory that a get may read when it starts") {
    SimulatedPair pair(1);
    std::vector<std::string> seen;
    pair.simulation.watch_reads(
        [&](const std::string& owner, const std::string& reader, ByteView memory) {
            seen.push_back(owner + " " + reader);
            CHECK(memory.size() >= 100'000);
            CHECK(memory[5] == std::byte{7});
        });
    const std::vector<std::byte> large(100'000, std::byte{7});
    bool is_done = false;
    pair.channel.call(count_method, large, {},
                      [&](const Status& status, ByteView) { is_done = status.ok(); });
    REQUIRE(pair.simulation.run_until([&] { return is_done; }, 5s));
    CHECK(seen == std::vector<std::string>{"client server"});
    CHECK(pair.simulation.unwritten_words() == 0);
}

TEST_CASE("simulation: a connect to a paused server is served when the server is resumed") {
    weft::sim::Simulation simulation(1);
    simulation.add("server", counter_at("server"));
    simulation.add("client", no_program);
    simulation.pause("server");
    std::vector<Channel> channels;
    int served = 0;
    // More than the listener's backlog.
    for (int i = 0; i < 300; ++i) {
        channels.push_back(simulation.runtime("client")->connect("sim://server").value());
        channels.back().call(count_method, {}, {.timeout = 20s},
                             [&](const Status& status, ByteView) { served += status.ok(); });
    }
    simulation.run_for(5s);
    CHECK(served == 0);
    simulation.resume("server");
    CHECK(simulation.run_until([&] { return served == 300; }, 2s));
}

TEST_CASE("simulation: 1024 channels of 32 hosts that open within a second are all served") {
    weft::sim::Simulation simulation(1);
    simulation.add("server", counter_at("server"));
    int served = 0, failed = 0;
    std::vector<Channel> channels(1024);
    for (int host = 0; host < 32; ++host) simulation.add("h" + std::to_string(host), no_program);
    for (std::size_t i = 0; i < channels.size(); ++i) {
        const Duration at(static_cast<std::int64_t>(simulation.random() % 1'000'000'000));
        simulation.in(at, [&, i] {
            const std::string name = "h" + std::to_string(i % 32);
            channels[i] = simulation.runtime(name)->connect("sim://server").value();
            channels[i].call(
                count_method, {}, {.timeout = 10s},
                [&](const Status& status, ByteView) { status.ok() ? ++served : ++failed; });
        });
    }
    // The server is paused for a part of the second.
    simulation.in(200ms, [&] { simulation.pause("server"); });
    simulation.in(900ms, [&] { simulation.resume("server"); });
    CHECK(simulation.run_until([&] { return served + failed == 1024; }, 10s));
    CHECK(failed == 0);
}

TEST_CASE("simulation: a server is unavailable while it is cut off and answers when healed") {
    SimulatedPair pair(1);
    CHECK(pair.ask().status.ok());
    pair.simulation.cut("client", "server");
    CHECK(pair.ask().status.code() == Code::unavailable);
    pair.simulation.heal();
    CHECK(pair.ask().status.ok());
}

TEST_CASE("simulation: a call fails at once while allocations fail, and the next one succeeds") {
    SimulatedPair pair(1);
    CHECK(pair.ask().text == "1");
    const std::uint64_t before = pair.simulation.faults();
    pair.simulation.limit_memory("client", 1);
    std::optional<Status> answer;
    pair.simulation.act_as("client", [&] {
        pair.channel.call(count_method, {}, {},
                          [&](const Status& status, ByteView) { answer = status; });
    });
    REQUIRE(pair.simulation.run_until([&] { return answer.has_value(); }, 10s));
    CHECK(answer->code() == Code::resource_exhausted);
    CHECK(answer->effect() == Effect::none);
    CHECK(answer->stage() == Stage::queued);
    CHECK(pair.simulation.faults() > before + 1);
    pair.simulation.limit_memory("client", 0);
    CHECK(pair.ask().text == "2");
}

TEST_CASE("simulation: expose fails on a starved host only") {
    SimulatedPair pair(1);
    Runtime& client = *pair.simulation.runtime("client");
    Runtime& server = *pair.simulation.runtime("server");
    Buffer memory = client.allocate(64).value();
    REQUIRE(client.listen("sim://client").ok());
    pair.simulation.limit_memory("client", 1);
    CHECK(client.expose(memory, {}).status().code() == Code::resource_exhausted);
    CHECK(server.expose(server.allocate(64).value(), {}).ok());
    CHECK_FALSE(weft::sim::allocation_fails());
    pair.simulation.act_as("client", [] { CHECK(weft::sim::allocation_fails()); });
    pair.simulation.act_as("server", [] { CHECK_FALSE(weft::sim::allocation_fails()); });
    pair.simulation.heal();
    CHECK(client.expose(memory, {}).ok());
}

TEST_CASE("simulation: a host that its own program kills in a turn goes down after the turn") {
    SimulatedPair pair(1);
    const auto answer = std::make_shared<Answer>();
    pair.channel.call(count_method, {}, {}, [&](const Status&, ByteView) {
        pair.simulation.kill("client");
        answer->came = pair.simulation.is_up("client");
    });
    REQUIRE(pair.simulation.run_until([&] { return !pair.simulation.is_up("client"); }, 1s));
    CHECK(answer->came);
}

TEST_CASE("simulation: a completion run by the end of a host may start the host again") {
    SimulatedPair pair(1);
    pair.simulation.pause("server");
    bool was_up = true;
    pair.channel.call(count_method, {}, {}, [&](const Status& status, ByteView) {
        CHECK(status.code() == Code::cancelled);
        pair.simulation.start("client");
        was_up = pair.simulation.is_up("client");
    });
    pair.simulation.run_for(1ms);
    pair.simulation.kill("client");
    CHECK_FALSE(was_up);
    CHECK(pair.simulation.is_up("client"));
    CHECK(pair.simulation.starts("client") == 2);
}

TEST_CASE("simulation: a host draws other random numbers in each life") {
    weft::sim::Simulation simulation(1);
    std::set<std::uint64_t> drawn;
    simulation.add("host", [&](Runtime& runtime) {
        for (int i = 0; i < 100; ++i) drawn.insert(node_of(runtime).context.random().next());
        return nullptr;
    });
    simulation.kill("host");
    simulation.start("host");
    CHECK(simulation.starts("host") == 2);
    CHECK(drawn.size() == 200);
}

TEST_CASE("simulation: last_events() returns the last arrivals in order") {
    SimulatedPair pair(1);
    CHECK(pair.ask().status.ok());
    std::vector<weft::sim::Simulation::LoggedEvent> last = pair.simulation.last_events();
    REQUIRE(last.size() >= 3);
    CHECK(last.front().what.starts_with("client -> server: connect, "));
    CHECK(last.back().what.starts_with("server -> client: message #"));
    CHECK(last.back().at == pair.simulation.last_received("client", "server"));
    CHECK(pair.simulation.last_received("server", "server") == TimePoint::min());
    for (int i = 0; i < 100; ++i) CHECK(pair.ask().status.ok());
    last = pair.simulation.last_events();
    CHECK(last.size() == 48);
    CHECK(std::is_sorted(last.begin(), last.end(),
                         [](const auto& a, const auto& b) { return a.at < b.at; }));
}

TEST_CASE("simulation: the same seed gives the same run, another seed another") {
    const auto run = [](std::uint64_t seed) {
        weft::sim::Link bad;
        bad.loss = 0.1;
        bad.jitter = 30us;
        bad.reorder = 0.2;
        SimulatedPair pair(seed, bad);
        for (int i = 0; i < 50; ++i) CHECK(pair.ask().status.ok());
        return std::pair(pair.simulation.trace_hash(), pair.simulation.now());
    };
    CHECK(run(1) == run(1));
    CHECK(run(1) != run(2));
}
