// The orderly end of a runtime: sent replies arrive, handlers are notified, and drain_timeout
// bounds all of it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "api/runtime_impl.h"
#include "support/fresh_uri.h"
#include "support/hold_server.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"
#include "support/usable.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId fetch("test.End/Fetch");

// Replies with as many bytes as the request names, and counts its replies.
struct Source final : Service {
    std::atomic<std::uint64_t> answered{0};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(fetch, [this](Call call) {
            std::uint32_t bytes = 0;
            std::memcpy(&bytes, call.request().data(), sizeof bytes);
            call.reply(std::vector<std::byte>(bytes, std::byte{7}));
            ++answered;
        });
    }
};

// A runtime that serves in a thread that waits in run() until end() is called, and then destroys
// it.
struct Serving {
    std::optional<Runtime> runtime;
    Status ended;
    std::thread runs;

    Serving(Service& service, const std::string& uri, RuntimeOptions options)
        : runtime(Runtime::create(options).value()) {
        REQUIRE(runtime->serve(service, uri).ok());
        runs = std::thread([this] {
            ended = runtime->run();
            runtime.reset();
        });
    }
    Status end() {
        runtime->stop();
        runs.join();
        return ended;
    }
};

// Several clients send many calls at once and do not read the replies, which the handlers have
// made, until the server has been ending for a while. Returns the number of lost replies.
std::size_t replies_lost(const std::string& scheme, std::size_t clients, std::size_t calls,
                         std::uint32_t bytes, Duration busy) {
    Source service;
    Serving server(service, fresh_uri(scheme), {.drain_timeout = test_timeout});
    struct Client {
        Runtime runtime = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
        Channel channel;
        std::size_t good = 0, ended = 0;
    };
    std::vector<std::unique_ptr<Client>> all;
    const auto ask = [&](Client& client, std::uint32_t size) {
        client.channel.call(fetch, std::as_bytes(std::span(&size, 1)), {.timeout = test_timeout},
                            [&client, size](const Status& status, ByteView body) {
                                ++client.ended;
                                client.good += status.ok() && body.size() == size;
                            });
    };
    for (std::size_t i = 0; i < clients; ++i) {
        Client& client = *all.emplace_back(std::make_unique<Client>());
        client.channel = client.runtime.connect(server.runtime->addresses().front()).value();
        ask(client, 8);
        REQUIRE(client.runtime.turn_until([&] { return client.good == 1; }, test_timeout));
    }
    for (const auto& client : all) {
        for (std::size_t i = 0; i < calls; ++i) ask(*client, bytes);
        client->runtime.turn();
    }
    const auto deadline = std::chrono::steady_clock::now() + test_timeout;
    while (service.answered < clients * (calls + 1)) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
    }
    std::thread ends([&] { (void)server.end(); });
    // The clients do not turn meanwhile.
    for (const auto until = std::chrono::steady_clock::now() + busy;
         std::chrono::steady_clock::now() < until;) {
        std::this_thread::yield();
    }
    // No process reads these requests.
    for (const auto& client : all) ask(*client, 8);
    const auto have_ended = [&] {
        return std::all_of(all.begin(), all.end(),
                           [&](const auto& one) { return one->ended == calls + 2; });
    };
    while (!have_ended() && std::chrono::steady_clock::now() < deadline) {
        for (const auto& client : all) client->runtime.turn();
    }
    std::size_t lost = 0;
    for (const auto& client : all) lost += calls + 1 - std::min(calls + 1, client->good);
    ends.join();
    CHECK(server.ended.ok());
    return lost;
}

// Rounds of `make soak`.
std::size_t rounds() {
    const char* const text = std::getenv("ENDS");
    return text ? static_cast<std::size_t>(std::atoi(text)) : 4;
}

}  // namespace

TEST_CASE("an orderly end loses no reply made before it began, even when clients are busy",
          "[ends]") {
    const std::string scheme = GENERATE(as<std::string>(), "sm", "unix", "tcp", "ofi+tcp");
    if (!is_usable(scheme)) return;
    INFO(scheme);
    std::size_t lost = 0;
    for (std::size_t round = 0; round < rounds(); ++round) {
        lost += replies_lost(scheme, 3, 60, round % 2 == 0 ? 60'000 : 9'000, 150ms);
    }
    CHECK(lost == 0);
}

TEST_CASE("replies made between turns arrive when the runtime ends at once") {
    const std::string scheme = GENERATE(as<std::string>(), "sm", "unix", "tcp");
    INFO(scheme);
    HoldServer service;
    const RuntimeOptions manual{.wait = WaitMode::spin, .manual = true};
    auto server = std::make_unique<Runtime>(Runtime::create(manual).value());
    REQUIRE(server->serve(service, fresh_uri(scheme)).ok());
    Runtime client = Runtime::create(manual).value();
    Channel channel = client.connect(server->addresses().front()).value();
    std::array<CallOutcome, 7> outcomes;
    for (CallOutcome& outcome : outcomes) {
        channel.call(HoldServer::hold, {}, {.timeout = test_timeout}, outcome.done());
    }
    REQUIRE(client.turn_until(
        [&] {
            server->turn();
            return service.held.size() == outcomes.size();
        },
        test_timeout));
    const std::vector<std::byte> body(1000, std::byte{4});
    for (Call& call : service.held) call.reply(body);
    service.held.clear();
    server.reset();
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(client.turn_until(
        [&] {
            return std::all_of(outcomes.begin(), outcomes.end(),
                               [](const CallOutcome& one) { return one.completions == 1; });
        },
        test_timeout));
    // A client that must retry fails after 3 s, because no server exists.
    CHECK(std::chrono::steady_clock::now() - begin < promised(1s));
    for (const CallOutcome& outcome : outcomes) CHECK(outcome.status.ok());
}

namespace {

// Replies when there is an event, or when the server begins to drain.
struct LongPoll final : Service {
    std::vector<Call> held;
    std::atomic<bool> was_draining = false, ran_at_once = false;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(HoldServer::hold, [this](Call call) {
            held.push_back(std::move(call));
            if (held.back().draining()) was_draining = true;
            held.back().on_drain([this, place = held.size() - 1] {
                Call ends = std::move(held[place]);
                was_draining = ends.draining();
                ends.on_drain([this] { ran_at_once = true; });
                ends.reply(as_bytes("nothing yet"));
            });
        });
    }
};

}  // namespace

TEST_CASE("waiting handlers are notified of a drain, so that long polls do not delay it") {
    LongPoll service;
    Serving server(service, fresh_uri("sm"), {.drain_timeout = test_timeout});
    Runtime client = Runtime::create().value();
    Channel channel = client.connect(server.runtime->addresses().front()).value();
    std::atomic<int> completions{0};
    std::string reply;
    for (int i = 0; i < 3; ++i) {
        channel.call(HoldServer::hold, {}, {.timeout = test_timeout},
                     [&](const Status&, ByteView body) {
                         reply = as_text(body);
                         ++completions;
                     });
    }
    const auto held = [&] {
        std::size_t count = 0;
        node_of(*server.runtime).on_context([&] { count = service.held.size(); });
        return count;
    };
    const auto begin = std::chrono::steady_clock::now();
    while (held() < 3) REQUIRE(std::chrono::steady_clock::now() - begin < test_timeout);
    CHECK_FALSE(service.was_draining);
    CHECK(server.end().ok());
    while (completions < 3) REQUIRE(std::chrono::steady_clock::now() - begin < test_timeout);
    CHECK(reply == "nothing yet");
    CHECK(service.was_draining);
    CHECK(service.ran_at_once);
    CHECK(std::chrono::steady_clock::now() - begin < test_timeout / 2);
}

TEST_CASE("handlers are notified of an end without a drain before they are cancelled") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome outcome;
    int drains = 0, cancels = 0;
    bool was_first = false;
    pair.channel.call(echo_method, {}, {.timeout = 60s}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return pair.service.held.size() == 1; }));
    pair.service.held[0].on_drain([&] {
        ++drains;
        was_first = cancels == 0;
    });
    pair.service.held[0].on_cancel([&] { ++cancels; });
    pair.rig.runtimes.clear();
    CHECK(drains == 1);
    CHECK(cancels == 1);
    CHECK(was_first);
    pair.service.held.clear();
}

TEST_CASE("a client that does not turn delays an orderly end no longer than a silent one") {
    const std::string scheme = GENERATE(as<std::string>(), "ofi+tcp", "tcp", "unix", "sm");
    if (!is_usable(scheme)) return;
    INFO(scheme);
    Source service;
    Serving server(service, fresh_uri(scheme),
                   {.heartbeat_interval = 100ms, .drain_timeout = test_timeout});
    std::array<CallOutcome, 50> outcomes;
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Channel channel = client.connect(server.runtime->addresses().front()).value();
    const std::uint32_t bytes = 60'000;
    const ByteView request = std::as_bytes(std::span(&bytes, 1));
    for (CallOutcome& outcome : outcomes) {
        channel.call(fetch, request, {.timeout = test_timeout}, outcome.done());
        client.turn_until([&] { return outcomes[0].completions == 1; }, test_timeout);
    }
    client.turn();
    CHECK(wait_for([&] { return service.answered == outcomes.size(); }));
    const auto begin = std::chrono::steady_clock::now();
    CHECK(server.end().ok());
    CHECK(std::chrono::steady_clock::now() - begin < test_timeout / 2);
}

TEST_CASE("run() drains a runtime that the program turns") {
    LongPoll service;
    Runtime server = Runtime::create({.drain_timeout = test_timeout, .manual = true}).value();
    REQUIRE(server.serve(service, fresh_uri("tcp")).ok());
    Runtime client = Runtime::create().value();
    Channel channel = client.connect(server.addresses().front()).value();
    std::atomic<int> completions{0};
    channel.call(HoldServer::hold, {}, {.timeout = test_timeout},
                 [&](const Status& status, ByteView) { completions += status.ok(); });
    REQUIRE(server.turn_until([&] { return service.held.size() == 1; }, test_timeout));
    server.stop();
    CHECK(server.run().ok());
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (completions < 1) REQUIRE(std::chrono::steady_clock::now() < end);
}

namespace {

// Calls every five milliseconds, each caller at another moment.
struct Caller {
    std::chrono::steady_clock::time_point next;
    std::atomic<std::uint64_t> good{0};
    std::atomic<bool> is_open{false};
    Runtime runtime = Runtime::create().value();
    Channel channel;

    Caller(const std::string& uri, std::chrono::steady_clock::time_point first)
        : next(first), channel(runtime.connect(uri).value()) {}
    void turn() {
        const auto now = std::chrono::steady_clock::now();
        if (is_open || now < next) return;
        while (next <= now) next += 5ms;
        is_open = true;
        const std::uint32_t size = 8;
        channel.call(fetch, std::as_bytes(std::span(&size, 1)), {.timeout = test_timeout},
                     [this](const Status& status, ByteView) {
                         good += status.ok();
                         is_open = false;
                     });
    }
};

}  // namespace

TEST_CASE("clients that keep calling do not delay an orderly end") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm", "ofi+tcp");
    if (!is_usable(scheme)) return;
    INFO(scheme);
    Source service;
    Serving server(service, fresh_uri(scheme), {.drain_timeout = test_timeout});
    std::vector<std::unique_ptr<Caller>> callers;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 24; ++i) {
        callers.push_back(
            std::make_unique<Caller>(server.runtime->addresses().front(), begin + i * 5000us / 24));
    }
    const auto turn = [&] {
        for (const auto& caller : callers) caller->turn();
        std::this_thread::yield();
    };
    const auto has_all = [&](std::uint64_t calls) {
        return std::all_of(callers.begin(), callers.end(),
                           [&](const auto& one) { return one->good >= calls; });
    };
    // By then the kernel delays its acknowledgements.
    for (; !has_all(50); turn()) REQUIRE(std::chrono::steady_clock::now() - begin < test_timeout);
    const auto ends = std::chrono::steady_clock::now();
    std::atomic<bool> has_ended{false};
    std::thread end([&] {
        (void)server.end();
        has_ended = true;
    });
    while (!has_ended) turn();
    end.join();
    CHECK(server.ended.ok());
    // Without an acknowledgement that is delayed by 40 ms it takes one or two milliseconds.
    CHECK(std::chrono::steady_clock::now() - ends < promised(1s));
}

TEST_CASE("a call after an orderly end never ran, and reaches the next server") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm");
    const std::size_t bytes = GENERATE(8u, 1000u);
    const bool is_followed = GENERATE(true, false);
    const bool runs = GENERATE(true, false);
    INFO(scheme << ", a request of " << bytes << " bytes, " << (runs ? "run()" : "no run()"));
    Source service;
    std::string uri = fresh_uri(scheme);
    Source next_service;
    std::optional<Serving> server;
    std::optional<Runtime> alone;
    if (runs) {
        server.emplace(service, uri, RuntimeOptions{.drain_timeout = test_timeout});
    } else {
        alone = Runtime::create().value();
        REQUIRE(alone->serve(service, uri).ok());
    }
    uri = (runs ? *server->runtime : *alone).addresses().front();
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Channel channel = client.connect(uri).value();
    std::vector<std::byte> request(bytes);
    request[0] = std::byte{8};
    std::array<CallOutcome, 3> outcomes;
    channel.call(fetch, request, {.timeout = test_timeout}, outcomes[0].done());
    REQUIRE(client.turn_until([&] { return outcomes[0].completions == 1; }, test_timeout));
    // The client neither reads the server's frames nor sees its end.
    if (runs) CHECK(server->end().ok());
    alone.reset();
    server.reset();
    if (is_followed)
        server.emplace(next_service, uri, RuntimeOptions{.drain_timeout = test_timeout});
    channel.call(fetch, request, {.timeout = test_timeout}, outcomes[1].done());
    channel.call(fetch, request, {.timeout = test_timeout}, outcomes[2].done());
    REQUIRE(client.turn_until(
        [&] { return outcomes[1].completions == 1 && outcomes[2].completions == 1; },
        test_timeout));
    for (const int i : {1, 2}) {
        INFO(outcomes[i].status.to_string());
        if (outcomes[i].status.ok()) continue;
        CHECK(outcomes[i].status.code() == Code::unavailable);
        CHECK(outcomes[i].status.effect() == Effect::none);
        // A large request that is not idempotent is not kept for a retry.
        CHECK((!is_followed || bytes > 128));
    }
    CHECK(service.answered == 1);
    if (is_followed && bytes <= 128) {
        CHECK(wait_for([&] { return next_service.answered == 2; }));
        CHECK(next_service.answered == 2);
    }
    if (is_followed) CHECK(server->end().ok());
}
