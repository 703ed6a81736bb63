// Channels of runtimes with several contexts, and to them.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "rpc/channel_impl.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

// Each would wait for the other's context, which is in the callback.
TEST_CASE("contexts: on(k) in callbacks of two runtimes waits for neither") {
    NumberedServer servers[] = {NumberedServer(2, fresh_uri("unix")),
                                NumberedServer(2, fresh_uri("unix"))};
    Runtime clients[] = {Runtime::create(with_contexts(1)).value(),
                         Runtime::create(with_contexts(2)).value()};
    const Channel channels[] = {clients[0].connect(servers[0].address()).value(),
                                clients[1].connect(servers[1].address()).value()};
    std::latch both(2);
    std::promise<Channel> made[2];
    for (const unsigned i : {0u, 1u}) {
        clients[i].executor().post([&, i] {
            both.arrive_and_wait();
            made[i].set_value(channels[1 - i].on(1));
        });
    }
    for (const unsigned i : {0u, 1u}) {
        const Channel pinned = made[i].get_future().get();
        CHECK(ask_context(clients[1 - i], pinned) == 1);
        CHECK(ask_context(clients[1 - i], channels[1 - i].on(1)) == 1);
    }
}

// Its operations then choose nothing.
TEST_CASE("contexts: on(k) has its peer at once where nothing has to wait") {
    NumberedServer server(4, fresh_uri("unix"));
    for (const unsigned contexts : {1u, 2u}) {
        CAPTURE(contexts);
        Runtime client = Runtime::create(with_contexts(contexts)).value();
        const Channel channel = client.connect(server.address()).value();
        const auto is_ready = [&](unsigned k) {
            return rpc::ChannelImpl::of(channel.on(k))->peer().generation != 0;
        };
        CHECK(is_ready(0));
        const auto at_home = [&]() -> Task<bool> {
            co_return co_await client.context(0).submit([&] { return is_ready(1); });
        };
        CHECK(client.block_on(at_home()));
    }
}

TEST_CASE("contexts: on(k) is of its channel's context, wherever it is used first") {
    NumberedServer server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(3)).value();
    const Channel channel = client.connect(server.address()).value();
    // The context where a call completes that is made there; else by a thread of the program.
    const auto completes_at = [&](std::optional<unsigned> there) {
        std::promise<unsigned> completed;
        const auto ask = [&] {
            channel.on(1).call(
                number_method, {}, {.timeout = test_timeout}, [&](const Status& status, ByteView) {
                    completed.set_value(status.ok() ? client.here().value_or(98) : 99);
                });
        };
        if (there) {
            client.context(*there).executor().post(ask);
        } else {
            ask();
        }
        return completed.get_future().get();
    };
    CHECK(completes_at(2) == 2);
    CHECK(completes_at(std::nullopt) == 0);
    CHECK(completes_at(1) == 1);
    CHECK(&channel.on(1).executor() == &channel.executor());
}

TEST_CASE("contexts: a channel has a connection for each of its runtime's contexts") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        NumberedServer server(2, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(3)).value();
        const Channel channel = client.connect(server.address()).value();
        const auto from = [&](unsigned k) -> Task<bool> {
            bool is_right = client.here() == k;
            for (int i = 0; i < 20; ++i) {
                const auto reply = co_await call(channel, number_method, {});
                is_right = is_right && reply && client.here() == k;
            }
            // By a completion, which runs on the context of the call, too.
            std::atomic<int> completed{0};
            for (int i = 0; i < 20; ++i) {
                channel.call(number_method, {}, {}, [&, k](const Status& status, ByteView) {
                    is_right = is_right && status.ok() && client.here() == k;
                    ++completed;
                });
            }
            const auto all = [&] { return completed == 20; };
            const bool is_complete = co_await until(all);
            co_return is_right&& is_complete;
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
    NumberedService::begun = 0;
    NumberedServer server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address()).value();
    const auto cancel_one = [&](unsigned) -> Task<Code> {
        std::optional<Code> ended;
        const OperationId id = channel.call(
            hold_method, {}, {}, [&](const Status& status, ByteView) { ended = status.code(); });
        const auto held = [] { return NumberedService::begun == 2; };
        const bool is_held = co_await until(held);
        channel.cancel_call(id);
        const auto is_over = [&] { return ended.has_value(); };
        const bool has_ended = co_await until(is_over);
        if (!is_held) co_return Code::unknown;
        if (!has_ended) co_return Code::deadline_exceeded;
        co_return *ended;
    };
    for (const Code code : client.block_on(client.on_all(cancel_one)))
        CHECK(code == Code::cancelled);
}

TEST_CASE("contexts: threads of the program share one channel") {
    NumberedServer server(2, fresh_uri("tcp"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address()).value();
    std::atomic<int> answered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 100; ++i) {
                channel.call(number_method, {}, {},
                             [&](const Status& status, ByteView) { answered += status.ok(); });
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wait_for([&] { return answered == 300; }));
}

TEST_CASE("contexts: a client chooses the context of the server, by number and by hash") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        NumberedServer server(3, fresh_uri(scheme));
        Runtime client = Runtime::create(with_contexts(2)).value();
        const Channel channel = client.connect(server.address()).value();
        CHECK(channel.contexts() == 0);
        (void)ask_context(client, channel.by(17));  // Anywhere: the number is not known yet.
        CHECK(channel.contexts() == 3);
        for (unsigned k = 0; k < 3; ++k) CHECK(ask_context(client, channel.on(k)) == k);
        for (std::uint64_t hash = 0; hash < 50; ++hash)
            CHECK(ask_context(client, channel.by(hash)) == place(hash, 3));
        // From both contexts of the client, on the channels of either.
        const auto from = [&](unsigned) -> Task<bool> {
            bool is_right = true;
            for (unsigned k = 0; k < 3; ++k) {
                const Channel other = channel.on((k + 1) % 3);
                for (const Channel& to : {channel.on(k), other.on(k), channel.on(k).here(),
                                          channel.here().on(k), other.here().on(k)}) {
                    const auto reply = co_await call(to, number_method, {});
                    is_right = is_right && reply && as_text(*reply) == std::to_string(k);
                }
            }
            const Channel local = channel.here();
            const auto none = co_await call(local.on(7), number_method, {});
            is_right =
                is_right && local.contexts() == 3 && none.status().code() == Code::out_of_range;
            for (std::uint64_t hash = 0; hash < 20; ++hash) {
                const auto reply = co_await call(local.by(hash), number_method, {});
                is_right = is_right && reply && as_text(*reply) == std::to_string(place(hash, 3));
            }
            co_return is_right;
        };
        for (const bool is_right : client.block_on(client.on_all(from))) CHECK(is_right);
    }
}

TEST_CASE("contexts: one that the server does not have is out of range, and nothing ran") {
    NumberedServer server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.address()).value();
    for (int i = 0; i < 2; ++i) {
        const auto reply = client.block_on(ask_number(channel.on(5)));
        CHECK(reply.status().code() == Code::out_of_range);
        CHECK(reply.status().effect() == Effect::none);
        CHECK(reply.status().text() == "the server has 2 contexts, and none with the number 5");
    }
    CHECK(ask_context(client, channel.on(1)) == 1);
    // A server with one context has no second one.
    NumberedServer single(1, fresh_uri("unix"));
    const Channel to_single = client.connect(single.address()).value();
    CHECK(ask_context(client, to_single.on(0)) == 0);
    CHECK(client.block_on(ask_number(to_single.on(1))).status().code() == Code::out_of_range);
}

TEST_CASE("contexts: a pinned channel keeps the channel that it was made from") {
    NumberedServer server(2, fresh_uri("sm"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    Channel pinned = client.connect(server.address()).value().on(1);
    CHECK(ask_context(client, pinned) == 1);
    pinned = pinned.on(0);
    CHECK(ask_context(client, pinned) == 0);
    const Channel copy = std::exchange(pinned, Channel());
    CHECK(ask_context(client, copy) == 0);
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

static constexpr MethodId large_method("test.Contexts/Large");

struct LargeService final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(large_method, [](Call call) {
            const std::vector<std::byte> body(1 << 20);
            call.reply(body);
        });
    }
};

// The ids of its calls are large numbers, because they have the context's number in them.
TEST_CASE(
    "contexts: a large reply to the last context of a client takes no memory for its number") {
    LargeService service;
    Runtime server = Runtime::create(with_contexts(1)).value();
    const std::string uri = fresh_uri("unix");
    REQUIRE(server.serve(service, uri).ok());
    Runtime client = Runtime::create(with_contexts(8)).value();
    const Channel channel = client.connect(uri).value();
    const auto ask = [&](unsigned) -> Task<std::size_t> {
        const auto reply = co_await call(channel, large_method, {});
        co_return reply ? reply->size() : 0;
    };
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    for (const std::size_t bytes : client.block_on(client.on_all(ask))) CHECK(bytes == 1 << 20);
    ::getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 256 << 10);  // KiB.
}
