// Runtimes with several contexts: services of each context, channels with a connection for each,
// work that is submitted from one to another, and their end.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/test_timeout.h"
#include "support/usable.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId number("test.Contexts/Number");  // Replies with the number of its context.
constexpr MethodId hold("test.Contexts/Hold");      // Held until it is cancelled.

struct Shard final : Service {
    explicit Shard(unsigned k) : index(k) {}
    ~Shard() override { destroyed_on = std::this_thread::get_id(); }
    void register_methods(MethodRegistrar& registrar) override {
        made_on = std::this_thread::get_id();
        registrar.add(number, [this](Call call) {
            if (std::this_thread::get_id() != made_on) is_on_own_thread = false;
            ++handled;
            const std::string text = std::to_string(index);
            call.reply(as_bytes(text));
        });
        registrar.add(hold, [this](Call call) {
            held.push_back(std::move(call));
            ++begun;
            Call& kept = held.back();
            kept.on_cancel([this] { ++cancelled; });
        });
    }
    const unsigned index;
    std::thread::id made_on;
    static inline std::thread::id destroyed_on;
    static inline std::atomic<bool> is_on_own_thread{true};
    static inline std::atomic<int> handled{0};
    static inline std::atomic<int> begun{0};  // Held calls.
    static inline std::atomic<int> cancelled{0};
    std::list<Call> held;
};

ServiceFactory shards() {
    return [](const Here& here) { return std::make_unique<Shard>(here.index); };
}

struct Server {
    Runtime runtime;
    explicit Server(unsigned contexts, const std::string& uri)
        : runtime(Runtime::create(with_contexts(contexts)).value()) {
        const Status served = runtime.serve(shards(), uri);
        INFO(served.to_string());
        REQUIRE(served.ok());
    }
    std::string address() const { return runtime.addresses().front(); }
};

Task<Result<std::vector<std::byte>>> ask_number(Channel channel) {
    co_return co_await call(channel, number, {});
}

// The context that answers.
unsigned ask(Runtime& client, const Channel& channel) {
    const auto reply = client.block_on(ask_number(channel));
    INFO(reply.status().to_string());
    REQUIRE(reply);
    return static_cast<unsigned>(std::stoul(std::string(as_text(*reply))));
}

}  // namespace

TEST_CASE("contexts: each has a service with handlers on its own thread") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Shard::is_on_own_thread = true;
        Shard::handled = 0;
        {
            Server server(4, fresh_uri(scheme));
            CHECK(server.runtime.contexts() == 4);
            std::map<unsigned, int> answered;
            std::vector<Runtime> clients;
            std::vector<Channel> channels;
            for (int i = 0; i < 8; ++i) {
                clients.push_back(Runtime::create(with_contexts(1)).value());
                channels.push_back(clients.back().connect(server.address()).value());
                ++answered[ask(clients.back(), channels.back())];
            }
            CHECK(answered.size() == 4);
            for (const auto& [context, times] : answered) CHECK(times <= 3);
            const std::string state = server.runtime.state();
            for (int k = 0; k < 4; ++k)
                CHECK(state.find("context " + std::to_string(k) + " of 4") != std::string::npos);
        }
        CHECK(Shard::is_on_own_thread);
        CHECK(Shard::handled == 8);
        CHECK(Shard::destroyed_on == std::this_thread::get_id());  // The one that ends the runtime.
    }
}

TEST_CASE("contexts: a service for one thread is refused by a sentence that names both ways") {
    Shard shard(0);
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    for (const Status& refused : {runtime.serve(shard, fresh_uri("sm")), runtime.add(shard)}) {
        CHECK(refused.code() == Code::invalid_argument);
        CHECK(refused.text() ==
              "this runtime has 2 contexts (RuntimeOptions::contexts), and would run the handlers "
              "of one service on as many threads: give Runtime::serve() a function that makes a "
              "service for each context, or weft::shared(service) if its handlers may run on "
              "several threads at once");
    }
    // With one context it is served as before.
    Runtime single = Runtime::create(with_contexts(1)).value();
    CHECK(single.serve(shard, fresh_uri("sm")).ok());
}

TEST_CASE("contexts: a shared service answers on all of them") {
    struct Counter final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(number, [this](Call call) {
                const std::lock_guard lock(mutex);
                threads.insert(std::this_thread::get_id());
                call.reply({});
            });
        }
        std::mutex mutex;
        std::set<std::thread::id> threads;
    } counter;
    Runtime server = Runtime::create(with_contexts(3)).value();
    REQUIRE(server.serve(shared(counter), fresh_uri("unix")).ok());
    std::vector<Runtime> clients;
    std::vector<Channel> channels;
    for (int i = 0; i < 6; ++i) {
        clients.push_back(Runtime::create(with_contexts(1)).value());
        channels.push_back(clients.back().connect(server.addresses().front()).value());
        REQUIRE(clients.back().block_on(ask_number(channels.back())));
    }
    CHECK(counter.threads.size() == 3);
}

TEST_CASE("contexts: a service that is refused on one is served on none, and may be served again") {
    struct Fussy final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(number, [](Call call) { call.reply({}); });
            if (is_bad) registrar.add(number, [](Call call) { call.reply({}); });
        }
        bool is_bad = false;
    };
    Runtime runtime = Runtime::create(with_contexts(3)).value();
    int made = 0;
    const std::string uri = fresh_uri("sm");
    const auto make = [&](unsigned bad) {
        return [&made, bad](const Here& here) {
            ++made;
            auto fussy = std::make_unique<Fussy>();
            fussy->is_bad = here.index == bad;
            return fussy;
        };
    };
    CHECK(runtime.serve(make(2), uri).code() == Code::already_exists);
    CHECK(made == 3);
    CHECK(runtime.addresses().empty());
    const auto none = [](const Here&) { return std::unique_ptr<Service>(); };
    CHECK(runtime.serve(none, uri).code() == Code::invalid_argument);
    const auto thrower = [](const Here& here) -> std::unique_ptr<Service> {
        if (here.index == 1) throw std::runtime_error("no");
        return std::make_unique<Fussy>();
    };
    CHECK_THROWS_AS(runtime.serve(thrower, uri), std::runtime_error);
    CHECK(runtime.serve(make(7), uri).ok());
    CHECK(runtime.addresses().size() == 1);
    Runtime second = Runtime::create(with_contexts(2)).value();
    CHECK(second.serve(make(7), uri).code() == Code::already_exists);
}

// ---- channels -----------------------------------------------------------------------------------

TEST_CASE("contexts: a channel has a connection for each of its runtime's contexts") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Server server(2, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(3)).value();
        const Channel channel = client.connect(server.address()).value();
        const auto from = [&](unsigned k) -> Task<bool> {
            bool is_right = client.here() == k;
            for (int i = 0; i < 20; ++i) {
                const auto reply = co_await call(channel, number, {});
                is_right = is_right && reply && client.here() == k;
            }
            // By a completion, which runs on the context of the call, too.
            std::atomic<int> completed{0};
            for (int i = 0; i < 20; ++i) {
                channel.call(number, {}, {}, [&, k](const Status& status, ByteView) {
                    is_right = is_right && status.ok() && client.here() == k;
                    ++completed;
                });
            }
            while (completed != 20) (void)co_await sleep_for(100us);
            co_return is_right;
        };
        for (const bool is_right : client.block_on(client.on_all(from))) CHECK(is_right);
        const auto peers = [&](unsigned k) {
            core::Context& context = static_cast<core::Context&>(*Executor::current());
            (void)k;
            std::size_t up = 0;
            for (const auto& slot : context.endpoints()) {
                for (const core::Peer* peer : slot->peers)
                    up += peer && peer->state == core::PeerState::up;
            }
            return up;
        };
        for (const std::size_t up : client.block_on(client.on_all(peers))) CHECK(up == 1);
    }
}

TEST_CASE("contexts: an operation is cancelled by its id on the context that began it") {
    Server server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address()).value();
    const auto cancel_one = [&](unsigned) -> Task<Code> {
        std::optional<Code> ended;
        const OperationId id = channel.call(
            hold, {}, {}, [&](const Status& status, ByteView) { ended = status.code(); });
        (void)co_await sleep_for(1ms);
        channel.cancel_call(id);
        while (!ended) (void)co_await sleep_for(100us);
        co_return *ended;
    };
    for (const Code code : client.block_on(client.on_all(cancel_one)))
        CHECK(code == Code::cancelled);
}

TEST_CASE("contexts: threads of the program share one channel") {
    Server server(2, fresh_uri("tcp"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address()).value();
    std::atomic<int> answered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 100; ++i) {
                channel.call(number, {}, {},
                             [&](const Status& status, ByteView) { answered += status.ok(); });
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wait_for([&] { return answered == 300; }));
}

// ---- submit -------------------------------------------------------------------------------------

TEST_CASE("submit: work runs on the other context, and its result and exception come back") {
    Runtime runtime = Runtime::create(with_contexts(3)).value();
    const auto visit = [&](unsigned from) -> Task<int> {
        int visited = 0;
        for (unsigned k = 0; k < 3; ++k) {
            const auto where = [&] { return runtime.here().value_or(99) * 10 + from; };
            const unsigned got = co_await runtime.context(k).submit(where);
            visited += got == k * 10 + from && runtime.here() == from;
            const auto task = [&]() -> Task<std::string> {
                (void)co_await sleep_for(100us);
                co_return "at " + std::to_string(runtime.here().value_or(99));
            };
            const std::string text = co_await runtime.context(k).submit(task);
            visited += text == "at " + std::to_string(k);
            bool has_thrown = false;
            const auto thrower = []() -> Task<void> {
                (void)co_await sleep_for(10us);
                throw std::runtime_error("there");
            };
            try {
                co_await runtime.context(k).submit(thrower);
            } catch (const std::runtime_error& error) {
                has_thrown = error.what() == std::string("there");
            }
            visited += has_thrown;
        }
        co_return visited;
    };
    for (const int visited : runtime.block_on(runtime.on_all(visit))) CHECK(visited == 9);
}

TEST_CASE("submit: contexts that submit in a circle all end") {
    constexpr unsigned contexts = 8;
    Runtime runtime = Runtime::create(with_contexts(contexts)).value();
    std::atomic<int> rounds{0};
    const auto go = [&](unsigned k) -> Task<void> {
        std::vector<Task<void>> all;
        const auto one = [&runtime, &rounds, k]() -> Task<void> {
            const auto there = [&]() -> Task<void> {
                const auto further = [&] { ++rounds; };
                co_await runtime.context((k + 2) % contexts).submit(further);
            };
            for (int i = 0; i < 50; ++i) co_await runtime.context((k + 1) % contexts).submit(there);
        };
        for (int i = 0; i < 20; ++i) all.push_back(one());
        co_await when_all(std::move(all));
    };
    runtime.block_on(runtime.on_all(go));
    CHECK(rounds == 8 * 20 * 50);
}

TEST_CASE("submit: outside of the runtime's contexts it is refused") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    Runtime other = Runtime::create(with_contexts(1)).value();
    const auto nothing = [] {};
    const auto attempt = [&]() -> Task<void> { co_await runtime.context(1).submit(nothing); };
    CHECK_THROWS_AS(other.block_on(attempt()), std::logic_error);
    runtime.block_on(attempt());
}

namespace {

// Calls a handler that never answers, from the other context.
struct Forwarding final : EchoServer {
    Forwarding(const Here& here, Runtime& of, Channel to)
        : runtime(of), next(1 - here.index), channel(std::move(to)) {}
    Task<Status> Later(Call& call, const Request&, Reply&) override {
        (void)call;
        const auto forward = [this]() -> Task<Status> {
            co_return (co_await weft::call(channel, hold, {}, {.timeout = no_timeout})).status();
        };
        const Status status = co_await runtime.context(next).submit(forward);
        ended = static_cast<int>(status.code());
        co_return status;
    }
    Runtime& runtime;
    const unsigned next;
    const Channel channel;
    static inline std::atomic<int> ended{0};
};

}  // namespace

TEST_CASE("submit: the deadline and the cancel of a call reach the work that it has submitted") {
    Shard::begun = Shard::cancelled = 0;
    Server last(1, fresh_uri("unix"));
    Runtime middle = Runtime::create(with_contexts(2)).value();
    const Channel further = middle.connect(last.address()).value();
    const auto make = [&](const Here& here) {
        return std::make_unique<Forwarding>(here, middle, further);
    };
    REQUIRE(middle.serve(make, fresh_uri("unix")).ok());
    Runtime client = Runtime::create(with_contexts(1)).value();
    const echo::v1::EchoClient stub(client.connect(middle.addresses().front()).value());
    const auto with_deadline = [&]() -> Task<Code> {
        const echo::v1::EchoRequest request;
        co_return (co_await stub.Later(request, {.timeout = 50ms})).status().code();
    };
    CHECK(client.block_on(with_deadline()) == Code::deadline_exceeded);
    CHECK(wait_for([&] { return Shard::cancelled == 1; }));
    CHECK(wait_for([&] { return Forwarding::ended == static_cast<int>(Code::deadline_exceeded); }));
    // The client is gone: its calls are cancelled.
    {
        Runtime second = Runtime::create(with_contexts(1)).value();
        const Channel channel = second.connect(middle.addresses().front()).value();
        const echo::v1::EchoClient other(channel);
        second.spawn([&]() -> Task<void> {
            const echo::v1::EchoRequest request;
            (void)co_await other.Later(request, {.timeout = no_timeout});
        });
        CHECK(wait_for([&] { return Shard::begun == 2; }));
    }
    CHECK(wait_for([&] { return Shard::cancelled == 2; }));
    CHECK(wait_for([&] { return Forwarding::ended == static_cast<int>(Code::cancelled); }));
}

// ---- the end ------------------------------------------------------------------------------------

TEST_CASE("contexts: a runtime that waits for its contexts is not waited for on one of them") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    Shard shard(0);
    const auto attempt = [&](unsigned) {
        std::vector<Code> codes{runtime.serve(shared(shard), "sm://never").code(),
                                runtime.add(shared(shard)).code(),
                                runtime.listen("sm://never").code()};
        const bool is_partial =
            runtime.state().find("read the state on another thread") != std::string::npos;
        return is_partial && std::ranges::all_of(codes, [](Code code) {
                   return code == Code::failed_precondition;
               });
    };
    for (const bool is_right : runtime.block_on(runtime.on_all(attempt))) CHECK(is_right);
}

TEST_CASE("contexts: the end cancels the calls of all, and drains the handlers of all") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Shard::cancelled = 0;
        std::optional<Server> server(std::in_place, 3, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(3)).value();
        const Channel channel = client.connect(server->address()).value();
        std::atomic<int> ended{0};
        const auto begin = [&](unsigned) {
            for (int i = 0; i < 10; ++i) {
                channel.call(hold, {}, {}, [&](const Status& status, ByteView) {
                    ended += status.code() == Code::cancelled;
                });
            }
        };
        client.block_on(client.on_all(begin));
        const auto answered = [&](unsigned) -> Task<bool> {
            co_return bool(co_await call(channel, number, {}));
        };
        for (const bool is_ok : client.block_on(client.on_all(answered))) CHECK(is_ok);
        { const Runtime last = std::move(client); }
        CHECK(ended == 30);
        CHECK(wait_for([&] { return Shard::cancelled == 30; }));
        server.reset();
    }
}

TEST_CASE("contexts: run() ends once the handlers of all contexts have ended") {
    struct Late final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(number, [this](Call call) {
                auto kept = std::make_shared<Call>(std::move(call));
                ++begun;
                runtime->spawn([kept]() -> Task<void> {
                    (void)co_await sleep_for(50ms);
                    kept->reply(as_bytes(std::string_view("late")));
                });
            });
        }
        Runtime* runtime = nullptr;
        std::atomic<int> begun{0};
    } late;
    Runtime server = Runtime::create(with_contexts(3)).value();
    late.runtime = &server;
    REQUIRE(server.serve(shared(late), fresh_uri("unix")).ok());
    Runtime client = Runtime::create(with_contexts(3)).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    std::atomic<int> answered{0};
    const auto begin = [&](unsigned) {
        channel.call(number, {}, {},
                     [&](const Status& status, ByteView) { answered += status.ok(); });
    };
    client.block_on(client.on_all(begin));
    CHECK(wait_for([&] { return late.begun == 3; }));
    server.stop();
    CHECK(server.run().ok());
    CHECK(wait_for([&] { return answered == 3; }));
}

TEST_CASE("contexts: a manual runtime turns all of them on one thread") {
    RuntimeOptions options = with_contexts(3);
    options.manual = true;
    Runtime runtime = Runtime::create(options).value();
    REQUIRE(runtime.serve(shards(), fresh_uri("sm")).ok());
    const auto is_there = [&](unsigned k) { return runtime.here() == k; };
    for (const bool is_right : runtime.block_on(runtime.on_all(is_there))) CHECK(is_right);
    const Channel channel = runtime.connect(runtime.addresses().front()).value();
    const auto from = [&](unsigned) -> Task<bool> {
        co_return bool(co_await call(channel, number, {}));
    };
    for (const bool is_ok : runtime.block_on(runtime.on_all(from))) CHECK(is_ok);
    CHECK(runtime.turn() == 0);
}

// ---- contexts of the server ---------------------------------------------------------------------

TEST_CASE("contexts: a client chooses the context of the server, by number and by hash") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Server server(3, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(2)).value();
        const Channel channel = client.connect(server.address()).value();
        CHECK(channel.contexts() == 0);
        (void)ask(client, channel.by(17));  // Anywhere: the number is not known yet.
        CHECK(channel.contexts() == 3);
        for (unsigned k = 0; k < 3; ++k) CHECK(ask(client, channel.on(k)) == k);
        for (std::uint64_t hash = 0; hash < 50; ++hash)
            CHECK(ask(client, channel.by(hash)) == place(hash, 3));
        // From both contexts of the client, on the channels of either.
        const auto from = [&](unsigned) -> Task<bool> {
            bool is_right = true;
            for (unsigned k = 0; k < 3; ++k) {
                for (const Channel& to :
                     {channel.on(k), channel.on((k + 1) % 3).on(k), channel.on(k).here()}) {
                    const auto reply = co_await call(to, number, {});
                    is_right = is_right && reply && as_text(*reply) == std::to_string(k);
                }
            }
            co_return is_right;
        };
        for (const bool is_right : client.block_on(client.on_all(from))) CHECK(is_right);
    }
}

TEST_CASE("contexts: one that the server does not have is out of range, and nothing ran") {
    Server server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.address()).value();
    for (int i = 0; i < 2; ++i) {
        const auto reply = client.block_on(ask_number(channel.on(5)));
        CHECK(reply.status().code() == Code::out_of_range);
        CHECK(reply.status().effect() == Effect::none);
        CHECK(reply.status().text() == "the server has 2 contexts, and none with the number 5");
    }
    CHECK(ask(client, channel.on(1)) == 1);
    // A server with one context has no second one.
    Server single(1, fresh_uri("unix"));
    const Channel to_single = client.connect(single.address()).value();
    CHECK(ask(client, to_single.on(0)) == 0);
    CHECK(client.block_on(ask_number(to_single.on(1))).status().code() == Code::out_of_range);
}

TEST_CASE("contexts: a pinned channel keeps the channel that it was made from") {
    Server server(2, fresh_uri("sm"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    Channel pinned = client.connect(server.address()).value().on(1);
    CHECK(ask(client, pinned) == 1);
    pinned = pinned.on(0);
    CHECK(ask(client, pinned) == 0);
    const Channel copy = std::exchange(pinned, Channel());
    CHECK(ask(client, copy) == 0);
}

TEST_CASE("contexts: a key has the same place on every machine") {
    CHECK(place(0, 7) == 0);
    CHECK(place(1, 4) == 2);
    CHECK(place(0xdeadbeef, 64) == 0);
    std::array<int, 5> hits{};
    for (std::uint64_t hash = 0; hash < 5000; ++hash) ++hits[place(hash, 5)];
    for (const int times : hits) {
        CHECK(times > 950);
        CHECK(times < 1050);
    }
}
