// Runtimes with several contexts: the services of each, and their end.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("contexts: each has a service with handlers on its own thread") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        NumberedService::is_on_own_thread = true;
        NumberedService::handled = 0;
        {
            NumberedServer server(4, fresh_uri(scheme));
            CHECK(server.runtime.contexts() == 4);
            std::map<unsigned, int> answered;
            std::vector<Runtime> clients;
            std::vector<Channel> channels;
            for (int i = 0; i < 8; ++i) {
                clients.push_back(Runtime::create(with_contexts(1)).value());
                channels.push_back(clients.back().connect(server.address()).value());
                ++answered[ask_context(clients.back(), channels.back())];
            }
            CHECK(answered.size() == 4);
            for (const auto& [context, times] : answered) CHECK(times <= 3);
            const std::string state = server.runtime.state();
            for (int k = 0; k < 4; ++k)
                CHECK(state.find("context " + std::to_string(k) + " of 4") != std::string::npos);
        }
        CHECK(NumberedService::is_on_own_thread);
        CHECK(NumberedService::handled == 8);
        CHECK(NumberedService::destroyed_on ==
              std::this_thread::get_id());  // The one that ends the runtime.
    }
}

namespace {

// Reaches the services of the other contexts by a table that the function fills.
struct TabledService final : Service {
    using Table = std::vector<TabledService*>;
    TabledService(const Here& here, Runtime& of, Table& in)
        : runtime(of), all(in), index(here.index) {
        all[index] = this;
    }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(number_method, [this](Call call) { runtime.spawn(sum(std::move(call))); });
    }
    // Counts the call on each context, and replies with the sum of all counts.
    Task<void> sum(Call call) {
        const auto count = [this](unsigned k) { return ++all[k]->counted; };
        int total = 0;
        for (const int counts : co_await runtime.on_all(count)) total += counts;
        call.reply(as_bytes(std::to_string(total)));
    }
    Runtime& runtime;
    Table& all;
    const unsigned index;
    int counted = 0;
    // Of a thread, released on it.
    std::thread::id acquired_on = std::this_thread::get_id(), released_on;
};

}  // namespace

TEST_CASE("contexts: services reach each other by a table, and release what is their thread's") {
    constexpr unsigned contexts = 3;
    std::optional<Runtime> server = Runtime::create(with_contexts(contexts)).value();
    TabledService::Table table(contexts);
    const auto make = [&](const Here& here) {
        return std::make_unique<TabledService>(here, *server, table);
    };
    REQUIRE(server->serve(make, fresh_uri("unix")).ok());
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server->addresses().front()).value();
    for (unsigned k = 0; k < contexts; ++k)
        CHECK(ask_context(client, channel.on(k)) == (k + 1) * contexts);
    server->stop();
    REQUIRE(server->run().ok());
    const auto release = [&](unsigned k) { table[k]->released_on = std::this_thread::get_id(); };
    server->block_on(server->on_all(release));
    for (const TabledService* const one : table) {
        CHECK(one->released_on == one->acquired_on);
        CHECK(one->released_on != std::this_thread::get_id());
    }
    server.reset();
}

TEST_CASE("contexts: a service for one thread is refused by a sentence that names both ways") {
    NumberedService shard(0);
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
            registrar.add(number_method, [this](Call call) {
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
            registrar.add(number_method, [](Call call) { call.reply({}); });
            if (is_bad) registrar.add(number_method, [](Call call) { call.reply({}); });
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

// Its constructor begins a coroutine that uses it.
struct TickingService final : Service {
    explicit TickingService(const Here& here) {
        here.context.spawn([this]() -> Task<void> {
            while ((co_await sleep_for(1ms)).ok()) ++(is_whole ? ticks : ticks_of_destroyed);
        });
    }
    ~TickingService() override {
        is_whole = false;
        ++destroyed;
    }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(number_method, [](Call call) { call.reply({}); });
        if (throws) throw std::runtime_error("no");
    }
    static inline std::atomic<int> ticks{0}, ticks_of_destroyed{0}, destroyed{0};
    bool is_whole = true;
    bool throws = false;
};

TEST_CASE("contexts: services of a serve() that fails stay for the coroutines that they began") {
    enum class Failure { returns_none, throws, methods_throw, methods_twice };
    struct Case {
        Failure failure;
        unsigned contexts, made;
    };
    for (const Case& one :
         {Case{Failure::returns_none, 3, 2}, Case{Failure::throws, 3, 2},
          Case{Failure::methods_throw, 1, 1}, Case{Failure::methods_throw, 3, 3},
          Case{Failure::methods_twice, 1, 1}, Case{Failure::methods_twice, 3, 1}}) {
        CAPTURE(static_cast<int>(one.failure), one.contexts);
        std::optional<Runtime> runtime = Runtime::create(with_contexts(one.contexts)).value();
        if (one.failure == Failure::methods_twice) REQUIRE(runtime->add(numbered_services()).ok());
        TickingService::destroyed = TickingService::ticks_of_destroyed = 0;
        const auto make = [&](const Here& here) -> std::unique_ptr<Service> {
            const bool is_last = here.index + 1 == here.count;
            if (is_last && one.failure == Failure::returns_none) return nullptr;
            if (is_last && one.failure == Failure::throws) throw std::runtime_error("no");
            auto service = std::make_unique<TickingService>(here);
            service->throws = is_last && one.failure == Failure::methods_throw;
            return service;
        };
        const auto serve = [&] { return runtime->serve(make, fresh_uri("unix")).ok(); };
        if (one.failure == Failure::throws || one.failure == Failure::methods_throw) {
            CHECK_THROWS_AS(serve(), std::runtime_error);
        } else {
            CHECK_FALSE(serve());
        }
        TickingService::ticks = 0;
        CHECK(wait_for([&] { return TickingService::ticks > 20; }));
        CHECK(TickingService::destroyed == 0);
        runtime.reset();
        CHECK(TickingService::destroyed == static_cast<int>(one.made));
        CHECK(TickingService::ticks_of_destroyed == 0);
    }
}

// ---- the end ------------------------------------------------------------------------------------

TEST_CASE("contexts: a runtime that waits for its contexts is not waited for on one of them") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    NumberedService shard(0);
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
        NumberedService::cancelled = 0;
        std::optional<NumberedServer> server(std::in_place, 3, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(3)).value();
        const Channel channel = client.connect(server->address()).value();
        std::atomic<int> ended{0};
        const auto begin = [&](unsigned) {
            for (int i = 0; i < 10; ++i) {
                channel.call(hold_method, {}, {}, [&](const Status& status, ByteView) {
                    ended += status.code() == Code::cancelled;
                });
            }
        };
        client.block_on(client.on_all(begin));
        const auto answered = [&](unsigned) -> Task<bool> {
            co_return bool(co_await call(channel, number_method, {}));
        };
        for (const bool is_ok : client.block_on(client.on_all(answered))) CHECK(is_ok);
        { const Runtime last = std::move(client); }
        CHECK(ended == 30);
        CHECK(wait_for([&] { return NumberedService::cancelled == 30; }));
        server.reset();
    }
}

TEST_CASE("contexts: run() ends once the handlers of all contexts have ended") {
    struct Late final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(number_method, [this](Call call) {
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
        channel.call(number_method, {}, {},
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
    REQUIRE(runtime.serve(numbered_services(), fresh_uri("sm")).ok());
    const auto is_there = [&](unsigned k) { return runtime.here() == k; };
    for (const bool is_right : runtime.block_on(runtime.on_all(is_there))) CHECK(is_right);
    const Channel channel = runtime.connect(runtime.addresses().front()).value();
    const auto from = [&](unsigned) -> Task<bool> {
        co_return bool(co_await call(channel, number_method, {}));
    };
    for (const bool is_ok : runtime.block_on(runtime.on_all(from))) CHECK(is_ok);
    CHECK(runtime.turn() == 0);
}

TEST_CASE("contexts: groups are on context 0, and members call from all contexts") {
    struct Rank final : EchoServer {
        Status Everywhere(Call&, const echo::v1::EchoRequestText&, Reply&) override {
            on_first += runtime->here() == 0u;
            return {};
        }
        Runtime* runtime = nullptr;
        std::atomic<int> on_first{0};
    } services[2];
    std::vector<Runtime> runtimes;
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < 2; ++rank)
        runtimes.push_back(Runtime::create(with_contexts(3)).value());
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        services[rank].runtime = &runtimes[rank];
        REQUIRE(runtimes[rank].serve(shared(services[rank]), fresh_uri("unix")).ok());
        Member member;
        member.rank = rank;
        member.uris = runtimes[rank].addresses();
        members.push_back(std::move(member));
    }
    const GroupView view = GroupView::make("contexts", 1, members).value();
    for (std::uint32_t rank = 0; rank < 2; ++rank) REQUIRE(runtimes[rank].join(view, rank).ok());
    const Group group = runtimes[0].group(view).value();
    const auto everywhere = [&](unsigned k) -> Task<bool> {
        const echo::v1::EchoGroupClient client(group);
        const echo::v1::EchoRequestText request;
        const auto outcome = co_await client.Everywhere(request);
        const bool is_home = runtimes[0].here() == k;
        // In a turn of another context than 0 the groups can't be waited for.
        const bool may_wait = runtimes[0].group(view).ok();
        const Code expected = k == 0 ? Code::ok : Code::failed_precondition;
        const bool is_refused = group.channel(1).status().code() == expected &&
                                (k == 0 || group.install(view).code() == expected);
        group.on_change([](const MemberChange&) {});
        co_return outcome.status().ok() && is_home&& may_wait == (k == 0) && is_refused;
    };
    for (const bool is_right : runtimes[0].block_on(runtimes[0].on_all(everywhere)))
        CHECK(is_right);
    for (const Rank& service : services) CHECK(service.on_first == 3);
    for (Runtime& runtime : runtimes) {
        const Runtime last = std::move(runtime);
    }
}
