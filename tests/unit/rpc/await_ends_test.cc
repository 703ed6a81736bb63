// Each awaitable by each order of ends: of the runtime on which it is awaited, of its channel's
// runtime, of the server; and with a coroutine that is destroyed, or throws when resumed. On
// virtual time with one thread, and in real time with a thread for each runtime. Scatters and
// member collectives are awaited as collectives are, transfers of a Call only on its own context;
// for offloaded work see combine_end_test.cc and misuse_coroutine_test.cc.
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include <weft/combine.h>
#include <weft/protobuf_group.h>

#include "support/awaited.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/owned_coroutine.h"
#include "support/seed.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;

namespace {
namespace ends_of_waits {

constexpr MethodId held_method("test.Ends/Held");

// A service that never answers.
struct Silent final : Service {
    std::vector<Call> held;
    std::atomic<std::size_t> asked{0};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(held_method, [this](Call call) {
            held.push_back(std::move(call));
            ++asked;
        });
    }
};

// The targets of operations: channels and a group of the home runtime or of another one.
struct Targets {
    Channel channel;  // To the silent server.
    Channel asleep;   // To a server that is never turned.
    Group group;      // Of that server.
    Duration timeout;
};

// The progress of a coroutine. Atomic, since the coroutine may run on another thread.
struct Progress {
    std::atomic<int> begun{0}, resumed{0}, over{0};
    std::atomic<Code> code{Code::ok};
};

// ---- awaitables ---------------------------------------------------------------------------------

Task<Status> call_in_bytes(const Targets& at) {
    return awaited::call(at.channel, held_method, at.timeout);
}
Task<Status> stub(const Targets& at) {
    const EchoClient client(at.asleep);
    co_return (co_await client.Later(request_of("x"), {.timeout = at.timeout})).status();
}
Task<Status> get_of_bytes(const Targets& at) { return awaited::get(at.asleep, at.timeout); }
Task<Status> put_of_bytes(const Targets& at) { return awaited::put(at.asleep, at.timeout); }
Task<Status> collective(const Targets& at) { return awaited::collective(at.group, at.timeout); }
Task<Status> sleep(const Targets& at) { co_return co_await sleep_for(at.timeout); }
Task<Status> task(const Targets& at) { co_return co_await call_in_bytes(at); }
Task<Status> all_of_two(const Targets& at) {
    const auto both = co_await when_all(call_in_bytes(at), get_of_bytes(at));
    co_return both.get<0>().ok() ? both.get<1>() : both.get<0>();
}
Task<Status> first_of_two(const Targets& at) {
    const auto first = co_await when_any(call_in_bytes(at), collective(at));
    co_return first.value();
}
Task<Status> within_time(const Targets& at) {
    co_return co_await with_timeout(60s, call_in_bytes(at));
}

struct Kind {
    const char* name;
    Task<Status> (*await)(const Targets&);
    bool is_of_channel;  // Ends with the channel's runtime.
    bool is_of_server;
};
constexpr Kind kinds[] = {
    {"call in bytes", call_in_bytes, true, true},
    {"stub", stub, true, false},
    {"get", get_of_bytes, true, false},
    {"put", put_of_bytes, true, false},
    {"collective", collective, true, false},
    {"sleep_for", sleep, false, false},
    {"task", task, true, true},
    {"when_all", all_of_two, true, false},
    {"when_any", first_of_two, true, false},
    {"with_timeout", within_time, true, true},
};

// ---- coroutines ---------------------------------------------------------------------------------

struct Over {
    Progress& progress;
    ~Over() { ++progress.over; }
};

Task<void> wait(Kind kind, std::shared_ptr<const Targets> at, Progress& progress, bool throws) {
    const Over over{progress};
    ++progress.begun;
    const Status status = co_await kind.await(*at);
    progress.code = status.code();
    ++progress.resumed;
    if (throws) throw std::runtime_error("on purpose");
}

OwnedCoroutine wait_owned(Kind kind, std::shared_ptr<const Targets> at, Progress& progress) {
    const Over over{progress};
    ++progress.begun;
    (void)co_await kind.await(*at);
    ++progress.resumed;
}

Task<void> begin_owned(OwnedCoroutine& owned, Kind kind, std::shared_ptr<const Targets> at,
                       Progress& progress) {
    owned = wait_owned(kind, std::move(at), progress);
    co_return;
}

Task<void> destroy_owned(OwnedCoroutine& owned) {
    owned.destroy();
    co_return;
}

// ---- environments -------------------------------------------------------------------------------

// On virtual time, with one thread.
struct Simulated {
    SimRig rig;
    std::unique_ptr<Runtime> asleep;
    Runtime* add() { return &rig.add(""); }
    std::string serve(Runtime& runtime, Service& service) {
        REQUIRE(runtime.serve(service, "sim://server").ok());
        return "sim://server";
    }
    // This runtime listens and is never turned.
    std::string listen_asleep() {
        rig.add("asleep");
        asleep = std::move(rig.runtimes.back());
        rig.runtimes.pop_back();
        return "sim://asleep";
    }
    bool wait_for(Function<bool()> done) { return rig.run_until(std::move(done), 60s); }
    void go_on() { rig.run_for(10ms); }
    void end(Runtime* runtime) {
        std::erase_if(rig.runtimes, [&](const auto& one) { return one.get() == runtime; });
    }
};

// In real time, with a thread for each runtime.
struct Real {
    std::vector<std::unique_ptr<Runtime>> runtimes;
    std::unique_ptr<Runtime> asleep;
    std::minstd_rand random{static_cast<std::uint32_t>(seed_of(0))};
    Runtime* add() {
        RuntimeOptions options;
        options.log_level = LogLevel::off;
        return runtimes.emplace_back(std::make_unique<Runtime>(Runtime::create(options).value()))
            .get();
    }
    static std::string serve(Runtime& runtime, Service& service) {
        const std::string uri = fresh_uri("sm");
        REQUIRE(runtime.serve(service, uri).ok());
        return uri;
    }
    std::string listen_asleep() {
        asleep = std::make_unique<Runtime>(
            Runtime::create({.log_level = LogLevel::off, .manual = true}).value());
        const std::string uri = fresh_uri("sm");
        REQUIRE(asleep->listen(uri).ok());
        return uri;
    }
    static bool wait_for(Function<bool()> done) {
        const auto deadline = std::chrono::steady_clock::now() + test_timeout;
        while (!done()) {
            if (std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::yield();
        }
        return true;
    }
    // Waits until a random moment between the start of an operation and its reply.
    void go_on() {
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300);
        while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }
    void end(Runtime* runtime) {
        std::erase_if(runtimes, [&](const auto& one) { return one.get() == runtime; });
    }
};

template <class Environment>
struct World {
    explicit World(bool apart, Duration timeout = 60s)
        : server(where.add()), home(where.add()), through(apart ? where.add() : home) {
        const std::string uri = where.serve(*server, service), asleep = where.listen_asleep();
        GroupView view = GroupView::make("ends", 1, {{0, {asleep}}}).value();
        at = std::make_shared<Targets>(Targets{through->connect(uri).value(),
                                               through->connect(asleep).value(),
                                               through->group(std::move(view)).value(), timeout});
    }
    ~World() {
        at.reset();
        where.end(home);
        where.end(through);
        end_server();
    }
    void end_server() {
        if (!server) return;
        node_of(*server).on_context([&] { service.held.clear(); });
        where.end(std::exchange(server, nullptr));
    }
    void begin(const Kind& kind, bool throws = false) {
        home->spawn(wait(kind, at, progress, throws));
        REQUIRE(where.wait_for([&] { return progress.begun == 1; }));
        where.go_on();
    }
    void check_over(bool was_resumed = true) {
        REQUIRE(where.wait_for([&] { return progress.over == 1; }));
        CHECK(progress.resumed == (was_resumed ? 1 : 0));
        CHECK((progress.code.load() != Code::ok) == was_resumed);
        where.go_on();
        CHECK(progress.over == 1);
    }

    Progress progress;
    Silent service;
    Environment where;
    Runtime* server;
    Runtime* home;
    Runtime* through;
    std::shared_ptr<const Targets> at;
};

template <class Environment>
void check_home_ends_first(const Kind& kind, bool apart) {
    World<Environment> world(apart);
    world.begin(kind);
    world.where.end(world.home);
    CHECK(world.progress.over == 1);
    CHECK(world.progress.code.load() == Code::cancelled);
    world.check_over();
}

template <class Environment>
void check_channel_ends_first(const Kind& kind) {
    if (!kind.is_of_channel) return;
    World<Environment> world(true);
    world.begin(kind);
    world.where.end(world.through);
    world.check_over();
}

template <class Environment>
void check_server_ends_first(const Kind& kind, bool apart) {
    if (!kind.is_of_server) return;
    World<Environment> world(apart, 2s);
    world.begin(kind);
    REQUIRE(world.where.wait_for([&] { return world.service.asked == 1; }));
    world.end_server();
    world.check_over();
}

template <class Environment>
void check_destroyed(const Kind& kind, bool apart) {
    World<Environment> world(apart);
    OwnedCoroutine owned;
    world.home->spawn(begin_owned(owned, kind, world.at, world.progress));
    REQUIRE(world.where.wait_for([&] { return world.progress.begun == 1; }));
    world.where.go_on();
    world.home->spawn(destroy_owned(owned));
    world.check_over(false);
}

template <class Environment>
void check_thrown_through(const Kind& kind, bool apart) {
    if (kind.await == sleep) return;  // It completes with OK.
    World<Environment> world(apart, 20ms);
    world.begin(kind, true);
    world.check_over();
}

template <class Environment>
void check_all() {
    for (const Kind& kind : kinds) {
        for (const bool apart : {false, true}) {
            INFO(kind.name << (apart ? ", through another runtime" : ""));
            check_home_ends_first<Environment>(kind, apart);
            check_server_ends_first<Environment>(kind, apart);
            check_destroyed<Environment>(kind, apart);
            check_thrown_through<Environment>(kind, apart);
        }
        INFO(kind.name << ", the channel's runtime ends");
        check_channel_ends_first<Environment>(kind);
    }
}

}  // namespace ends_of_waits
}  // namespace

TEST_CASE("each awaitable ends once in each order of ends, simulated") {
    ends_of_waits::check_all<ends_of_waits::Simulated>();
}

TEST_CASE("each awaitable ends once in each order of ends, with threads", "[seeded]") {
    for (int round = 0; round < 3; ++round) ends_of_waits::check_all<ends_of_waits::Real>();
}
