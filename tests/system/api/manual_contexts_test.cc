// Contexts that the program turns, on one thread or on several.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/child.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/gate.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/turning_threads.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

// The threads on which the handlers of each context have run.
struct Handled {
    std::mutex mutex;
    std::map<unsigned, std::set<std::thread::id>> threads;
    void note(unsigned context) {
        const std::lock_guard lock(mutex);
        threads[context].insert(std::this_thread::get_id());
    }
};

struct NotingService final : Service {
    NotingService(unsigned k, Handled& in) : index(k), handled(in) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(number_method, [this](Call call) {
            handled.note(index);
            call.reply(as_bytes(std::to_string(index)));
        });
    }
    const unsigned index;
    Handled& handled;
};

ServiceFactory noting(Handled& handled) {
    return [&handled](const Here& here) {
        return std::make_unique<NotingService>(here.index, handled);
    };
}

Task<unsigned> number_of(Channel channel) {
    const auto reply = co_await call(channel, number_method, {}, {.timeout = test_timeout});
    co_return reply ? static_cast<unsigned>(std::stoul(std::string(as_text(*reply)))) : 99;
}

// The calling thread has ended its part; the last one to do so wakes no context.
void turn_until_all_end(const ContextRef& own, std::atomic<unsigned>& ended, unsigned threads) {
    ++ended;
    const auto all = [&] { return ended == threads; };
    while (!all()) own.turn_until(all, 1ms);
}

Task<void> visit(ContextRef at, std::atomic<int>& visiting) {
    const auto there = [&]() -> Task<void> {
        ++visiting;
        (void)co_await sleep_for(1h);
    };
    co_await at.submit(there);
}

bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}

}  // namespace

// ---- several threads ----------------------------------------------------------------------------

TEST_CASE("manual contexts: each serves on the thread of the program that turns it") {
    for (const std::string& scheme : steering) {
        for (const unsigned contexts : {2u, 4u}) {
            CAPTURE(scheme, contexts);
            Handled handled;
            Runtime server = Runtime::create(by_hand(contexts)).value();
            REQUIRE(server.serve(noting(handled), fresh_uri(scheme)).ok());
            const TurningThreads threads(server);
            Runtime client = Runtime::create(with_contexts(1)).value();
            const Channel channel = client.connect(server.addresses().front()).value();
            for (int round = 0; round < 3; ++round) {
                for (unsigned k = 0; k < contexts; ++k)
                    CHECK(client.block_on(number_of(channel.on(k))) == k);
            }
            const std::lock_guard lock(handled.mutex);
            REQUIRE(handled.threads.size() == contexts);
            for (const auto& [k, on] : handled.threads)
                CHECK(on == std::set<std::thread::id>{threads.id(k)});
        }
    }
}

TEST_CASE("manual contexts: threads that turn them call, submit and wait on their own context") {
    constexpr unsigned contexts = 4;
    NumberedServer server(contexts, fresh_uri("sm"));
    Runtime client = Runtime::create(by_hand(contexts)).value();
    const Channel channel = client.connect(server.address()).value();
    std::atomic<int> answered{0}, visited{0};
    std::atomic<unsigned> ended{0};
    std::vector<std::thread> threads;
    for (unsigned k = 0; k < contexts; ++k) {
        threads.emplace_back([&, k] {
            const ContextRef own = client.context(k);
            const auto work = [&]() -> Task<void> {
                for (int i = 0; i < 50; ++i) {
                    answered += co_await number_of(channel.on(k)) == k && client.here() == k;
                    const unsigned next = (k + 1) % contexts;
                    const auto there = [&] { return client.here() == next; };
                    visited += co_await client.context(next).submit(there);
                }
            };
            own.block_on(work());
            turn_until_all_end(own, ended, contexts);  // They may still submit to this one.
        });
    }
    for (std::thread& one : threads) one.join();
    CHECK(answered == 50 * contexts);
    CHECK(visited == 50 * contexts);
}

TEST_CASE("manual contexts: threads that wait for each other's context turn their own") {
    Runtime runtime = Runtime::create(by_hand(2)).value();
    std::latch turned(2);
    std::atomic<int> right{0};
    std::atomic<unsigned> ended{0};
    const auto thread = [&](unsigned k) {
        runtime.context(k).turn();
        turned.arrive_and_wait();
        const auto where = [&]() -> Task<unsigned> {
            (void)co_await sleep_for(1ms);
            co_return runtime.here().value_or(99);
        };
        for (int i = 0; i < 20; ++i) right += runtime.context(1 - k).block_on(where()) == 1 - k;
        turn_until_all_end(runtime.context(k), ended, 2);
    };
    std::thread other([&] { thread(1); });
    thread(0);
    other.join();
    CHECK(right == 40);
}

TEST_CASE("manual contexts: threads that turn them may serve and listen at once") {
    NumberedService service(7);
    Runtime runtime = Runtime::create(by_hand(3)).value();
    std::latch turned(3);
    std::atomic<int> ok{0};
    std::atomic<unsigned> ended{0};
    std::mutex uris_mutex;
    const auto thread = [&](unsigned k) {
        runtime.context(k).turn();
        turned.arrive_and_wait();
        std::string uri;
        {
            const std::lock_guard lock(uris_mutex);
            uri = fresh_uri("unix");
        }
        ok += k == 0 ? runtime.serve(shared(service), uri).ok() : runtime.listen(uri).ok();
        turn_until_all_end(runtime.context(k), ended, 3);
    };
    std::thread first([&] { thread(0); }), second([&] { thread(1); });
    thread(2);
    first.join();
    second.join();
    CHECK(ok == 3);
    CHECK(runtime.addresses().size() == 3);
}

// It is registered outside of turns, on the thread of the call that serves it.
struct NestingService final : Service {
    explicit NestingService(std::function<void()> nested_calls) : nested(std::move(nested_calls)) {}
    void register_methods(MethodRegistrar&) override { nested(); }
    const std::function<void()> nested;
};

// In a child: such a call would wait for itself.
TEST_CASE("manual contexts: a function that makes or registers a service serves no other") {
    const ChildOutput output = output_of_child([] {
        ::alarm(20);
        std::optional<Runtime> runtime;
        NumberedService other(7);
        int right = 0;
        const auto try_all = [&] {
            for (const Status& status :
                 {runtime->add(shared(other)), runtime->add(numbered_services()),
                  runtime->serve(shared(other), fresh_uri("unix")),
                  runtime->listen(fresh_uri("unix"))}) {
                right += status.code() == Code::failed_precondition &&
                         status.text().find("call it on another thread") != std::string::npos;
            }
        };
        const auto make = [&](const Here&) {
            try_all();
            return std::make_unique<NestingService>(try_all);
        };
        NestingService shared_one(try_all);
        runtime.emplace(Runtime::create(by_hand(2)).value());
        if (!runtime->add(make).ok() || right != 16) return 1;
        if (!runtime->add(shared(shared_one)).ok() || right != 24) return 2;
        if (!runtime->serve(shared(other), fresh_uri("unix")).ok()) return 3;
        runtime.reset();
        return 0;
    });
    CAPTURE(output.text);
    CHECK(output.end == 0);
}

TEST_CASE("manual contexts: outside of turns a thread uses the context that it turned last") {
    NumberedServer server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(by_hand(3)).value();
    Channel made;
    std::thread([&] {
        CHECK(&client.executor() == &client.context(0).executor());
        client.context(2).turn();
        CHECK(&client.executor() == &client.context(2).executor());
        CHECK(client.here() == std::nullopt);
        made = client.connect(server.address()).value();
        const auto where = [&]() -> Task<unsigned> { co_return client.here().value_or(99); };
        CHECK(client.block_on(where()) == 2);
        CHECK(made.on_thread());
        CHECK(client.block_on(number_of(made)) < 2);
    }).join();
    // This thread has turned none.
    CHECK(&made.executor() == &client.context(2).executor());
    CHECK(&client.executor() == &client.context(0).executor());
}

// ---- one thread ---------------------------------------------------------------------------------

TEST_CASE("manual contexts: an event loop turns all of them by one descriptor and deadline") {
    for (const unsigned contexts : {2u, 4u}) {
        CAPTURE(contexts);
        NumberedServer server(contexts, fresh_uri("tcp"));
        Runtime client = Runtime::create(by_hand(contexts)).value();
        const Channel channel = client.connect(server.address()).value();
        int waits = 0;
        const auto run_until = [&](const std::function<bool()>& done) {
            const TimePoint end = std::chrono::steady_clock::now() + test_timeout;
            while (!done()) {
                REQUIRE(std::chrono::steady_clock::now() < end);
                // A timer is no event, but may have ended it.
                if (client.turn() > 0 || done() || !client.arm()) continue;
                const TimePoint next = std::min(client.next_deadline(), end);
                const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                    next - std::chrono::steady_clock::now());
                pollfd watched{client.wait_fd(), POLLIN, 0};
                ::poll(&watched, 1, static_cast<int>(std::max<long>(left.count(), 0)));
                ++waits;
            }
        };
        for (unsigned k = 0; k < contexts; ++k) {
            bool answered = false, slept = false, posted = false;
            const auto ask = [&]() -> Task<void> {
                answered = co_await number_of(channel.on(k)) == k && client.here() == k;
                (void)co_await sleep_for(20ms);
                slept = true;
            };
            client.context(k).spawn(ask());
            run_until([&] { return slept; });
            CHECK(answered);
            std::thread other([&] { client.context(k).executor().post([&] { posted = true; }); });
            run_until([&] { return posted; });
            other.join();
        }
        CHECK(waits < 2000);
    }
}

TEST_CASE("manual contexts: the descriptor and the deadline of one context are its own") {
    Runtime runtime = Runtime::create(by_hand(2)).value();
    const ContextRef contexts[] = {runtime.context(0), runtime.context(1)};
    for (const ContextRef& one : contexts) {
        while (one.turn() > 0 || !one.arm()) {
        }
    }
    contexts[1].executor().post([] {});
    CHECK_FALSE(is_readable(contexts[0].wait_fd()));
    CHECK(is_readable(contexts[1].wait_fd()));
    CHECK(is_readable(runtime.wait_fd()));
    contexts[0].turn();
    CHECK(is_readable(runtime.wait_fd()));
    CHECK(contexts[1].turn() == 1);
    REQUIRE((contexts[0].arm() && contexts[1].arm()));
    CHECK_FALSE(is_readable(runtime.wait_fd()));
    bool slept = false;
    const auto sleeper = [&]() -> Task<void> {
        (void)co_await sleep_for(1h);
        slept = true;
    };
    contexts[1].spawn(sleeper());
    runtime.turn();
    CHECK(contexts[0].next_deadline() == never);
    CHECK(contexts[1].next_deadline() < never);
    CHECK(runtime.next_deadline() == contexts[1].next_deadline());
    CHECK_FALSE(slept);
}

TEST_CASE("manual contexts: a wait on one thread sleeps until any of them has work") {
    Runtime runtime = Runtime::create(by_hand(4)).value();
    for (unsigned k = 0; k < 4; ++k) {
        bool has_run = false;
        std::thread other([&] {
            while (!node_of(runtime).context.has_turned()) std::this_thread::yield();
            runtime.context(k).executor().post([&] { has_run = true; });
        });
        CHECK(runtime.turn_until([&] { return has_run; }, test_timeout));
        other.join();
        const auto visit_it = [&]() -> Task<bool> {
            const auto there = [&]() -> Task<bool> {
                (void)co_await sleep_for(2ms);
                co_return runtime.here() == k;
            };
            co_return co_await runtime.context(k).submit(there);
        };
        CHECK(runtime.block_on(visit_it()));
        CHECK(runtime.context(3 - k).block_on(visit_it()));
    }
}

// ---- a context that no thread turns; the end ----------------------------------------------------

TEST_CASE("manual contexts: the others serve while no thread turns one") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Runtime client = Runtime::create(with_contexts(1)).value();
        std::optional<Runtime> server = Runtime::create(by_hand(3)).value();
        Handled handled;
        REQUIRE(server->serve(noting(handled), fresh_uri(scheme)).ok());
        TurningThreads threads(*server, {0, 2});
        std::vector<Runtime> clients;
        std::vector<Channel> channels;  // They keep the connections, so that these are shared out.
        for (int i = 0; i < 8; ++i) {
            clients.push_back(Runtime::create(with_contexts(1)).value());
            channels.push_back(clients.back().connect(server->addresses().front()).value());
            CHECK(clients.back().block_on(number_of(channels.back())) % 2 == 0);
        }
        const Channel channel = client.connect(server->addresses().front()).value();
        const auto ask_it = [](Channel to) -> Task<Code> {  // Not connected by its deadline.
            co_return (co_await call(to, number_method, {}, {.timeout = 50ms})).status().code();
        };
        CHECK(client.block_on(ask_it(channel.on(1))) == Code::unavailable);
        const std::lock_guard lock(handled.mutex);
        CHECK(handled.threads.size() == 2);
        threads.stop();
        server.reset();  // It turns the contexts itself.
    }
}

TEST_CASE("manual contexts: a drain waits for drain_timeout when no thread turns one") {
    RuntimeOptions options = by_hand(3);
    options.drain_timeout = 100ms;
    Runtime server = Runtime::create(options).value();
    REQUIRE(server.serve(numbered_services(), fresh_uri("unix")).ok());
    std::thread([&] { server.context(1).turn(); }).join();
    const TurningThreads threads(server, {0, 2});
    server.stop();
    const Status drained = server.run();
    CHECK(drained.code() == Code::deadline_exceeded);
    CHECK(drained.text().find("RuntimeOptions::manual") != std::string::npos);
    // The others have begun to drain.
    for (const unsigned k : {0u, 2u}) {
        const auto look = [&]() -> Task<bool> {
            co_return impl_of(server).nodes[k]->server.is_draining();
        };
        CHECK(server.context(k).block_on(look()));
    }
}

TEST_CASE("manual contexts: the end cancels the calls and the submissions of all") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        NumberedServer server(2, fresh_uri(scheme));
        NumberedService::begun = NumberedService::cancelled = 0;
        std::optional<Runtime> client = Runtime::create(by_hand(3)).value();
        const Channel channel = client->connect(server.address()).value();
        TurningThreads threads(*client);
        std::atomic<int> cancelled{0}, visiting{0};
        for (unsigned k = 0; k < 3; ++k) {
            client->context(k).executor().post([&] {
                channel.call(hold_method, {}, {.timeout = no_timeout},
                             [&](const Status& status, ByteView) {
                                 cancelled += status.code() == Code::cancelled;
                             });
            });
            client->context(k).spawn(visit(client->context((k + 1) % 3), visiting));
        }
        REQUIRE(wait_for([&] { return NumberedService::begun == 3 && visiting == 3; }));
        threads.stop();
        client.reset();
        CHECK(cancelled == 3);
        CHECK(wait_for([&] { return NumberedService::cancelled == 3; }));
    }
}

TEST_CASE("manual contexts: a wait in block_on() on each ends with the runtime") {
    std::optional<Runtime> runtime = Runtime::create(by_hand(2)).value();
    const ContextRef contexts[] = {runtime->context(0), runtime->context(1)};
    TurningThreads threads(*runtime);
    std::atomic<int> begun{0};
    const auto wait = [&]() -> Task<void> {
        Gate closed;
        ++begun;
        co_await closed;
    };
    std::vector<std::future<bool>> waits;
    for (const ContextRef& one : contexts) {
        waits.push_back(std::async(std::launch::async, [&wait, one] {
            try {
                one.block_on(wait());
            } catch (const BadResult& why) {
                return why.status().code() == Code::cancelled;
            }
            return false;
        }));
    }
    REQUIRE(wait_for([&] { return begun == 2; }));
    threads.stop();
    runtime.reset();
    for (auto& one : waits) CHECK(one.get());
    // After the end, at once.
    for (const ContextRef& one : contexts) CHECK_THROWS_AS(one.block_on(wait()), BadResult);
}
