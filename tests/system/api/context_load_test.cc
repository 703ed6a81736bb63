// Everything at once on runtimes with several contexts: a channel that all threads share, submits,
// regions that come and go, clients that come and go, and servers that end in the middle.
// TEST_SECONDS sets how long each transport is loaded; `make soak` runs it with ThreadSanitizer.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "base/random.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/seed.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId echo_load("test.Load/Echo");
constexpr MethodId forward("test.Load/Forward");  // Echoes by way of another context.
constexpr MethodId lend("test.Load/Lend");        // Replies with a reference, for a moment.
constexpr std::size_t lent_bytes = 64 * 1024;

Duration time_of_load() { return std::chrono::seconds(setting("TEST_SECONDS", 1)); }

std::vector<std::byte> copy_of(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// One for each context.
struct LoadService final : Service {
    LoadService(Runtime& of, const Here& here)
        : runtime(of), index(here.index), count(here.count) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_load, [](Call call) { call.reply(call.request()); });
        registrar.add(forward, [this](Call call) {
            const auto kept = std::make_shared<Call>(std::move(call));
            const unsigned next = (index + ++served) % count;
            runtime.spawn([this, kept, next]() -> Task<void> {
                const std::vector<std::byte> request = copy_of(kept->request());
                const auto turn_over = [&] { return request; };
                const std::vector<std::byte> reply =
                    co_await runtime.context(next).submit(turn_over);
                if (runtime.here() == index) kept->reply(reply);
            });
        });
        registrar.add(lend, [this](Call call) {
            Result<Buffer> memory = runtime.allocate(lent_bytes);
            if (!memory) return call.fail(memory.status());
            std::ranges::fill(memory->bytes(), std::byte{0x5e});
            Result<Region> region = runtime.expose(*memory, {.access = Access::read});
            if (!region) return call.fail(region.status());
            std::array<std::byte, RegionRef::wire_bytes> wire{};
            region->ref().encode(wire);
            call.reply(wire);
            const auto kept = std::make_shared<Region>(*std::move(region));
            runtime.spawn([kept, memory = *memory, pause = ++served % 5]() -> Task<void> {
                (void)co_await sleep_for(Duration(100'000 * pause));
                bool is_fenced = false;
                kept->close([&] { is_fenced = true; });
                const auto fenced = [&] { return is_fenced; };
                const bool has_come = co_await until(fenced);
                if (!has_come) std::abort();  // Its memory can't be used again.
                std::ranges::fill(memory.bytes(), std::byte{0});
            });
        });
    }
    Runtime& runtime;
    const unsigned index;
    const unsigned count;
    unsigned served = 0;
};

// Empty: all bytes are those that were lent.
std::string strange_bytes(const Buffer& got) {
    const auto is_strange = [](std::byte one) { return one != std::byte{0x5e}; };
    const ByteView all = got.bytes();
    const auto first = std::ranges::find_if(all, is_strange);
    if (first == all.end()) return {};
    const auto count = std::ranges::count_if(all, is_strange);
    return std::to_string(count) + " bytes of a get, the first at " +
           std::to_string(first - all.begin()) + ": " + std::to_string(static_cast<int>(*first));
}

struct Load {
    explicit Load(const std::string& scheme) : uri(uri_of(scheme)) {}

    // A port that the next server can have, too.
    static std::string uri_of(const std::string& scheme) {
        if (scheme != "tcp" && scheme != "verbs") return fresh_uri(scheme);
        Runtime probe = Runtime::create(with_contexts(1)).value();
        REQUIRE(probe.listen(scheme + "://127.0.0.1:0").ok());
        return probe.addresses().front();
    }

    // `what` names the check in the output if it fails.
    void judge(const Status& status, bool is_right, const char* what) {
        switch (status.code()) {
            case Code::ok: is_right ? void(++good) : note_wrong(what); break;
            case Code::unavailable:
            case Code::cancelled:
            case Code::aborted:
            case Code::deadline_exceeded:
            case Code::permission_denied:  // A region that is closed.
            case Code::unimplemented:      // The server does not serve yet.
            case Code::resource_exhausted: ++failed; break;
            default: ++odd;
        }
    }
    void note_wrong(const std::string& what) {
        ++wrong;
        const std::lock_guard guard(lock);
        if (what_is_wrong.size() < 4096) what_is_wrong += what + "\n";
    }

    Task<void> call_from(Runtime& client, Channel channel, unsigned k) {
        std::uint64_t round = k;
        while (!is_over) {
            const std::uint64_t number = ++round * 1000 + k;
            const std::vector<std::byte> body = copy_of(
                as_bytes(std::string_view(reinterpret_cast<const char*>(&number), sizeof number)));
            const MethodId& method = round % 2 == 0 ? echo_load : forward;
            const auto reply = co_await call(channel, method, body, {.timeout = 2s});
            judge(reply.status(), reply && *reply == body, "the reply");
            if (client.here() != k) note_wrong("the context after a call");
            const auto elsewhere = [&]() -> Task<bool> {
                const auto answer = co_await call(channel, echo_load, body, {.timeout = 2s});
                judge(answer.status(), answer && *answer == body, "the reply elsewhere");
                co_return client.here() == (k + 1) % client.contexts();
            };
            const unsigned next = (k + 1) % client.contexts();
            const bool was_there = co_await client.context(next).submit(elsewhere);
            if (!was_there) note_wrong("the context of submitted work");
            if (!reply) (void)co_await sleep_for(1ms);
        }
    }

    Task<void> read_from(Runtime& client, Channel channel) {
        const Buffer local = client.allocate(lent_bytes).value();
        while (!is_over) {
            const auto lent = co_await call(channel, lend, {}, {.timeout = 2s});
            judge(lent.status(), true, "a reference");
            if (!lent) {
                (void)co_await sleep_for(1ms);
                continue;
            }
            const Result<RegionRef> ref = RegionRef::decode(*lent);
            if (!ref) {
                ++odd;
                continue;
            }
            for (int i = 0; i < 4; ++i) {
                const Status got = co_await get(channel, *ref, 0, local, {.timeout = 2s});
                judge(got, strange_bytes(local).empty(), strange_bytes(local).c_str());
            }
        }
    }

    // A thread of the program, on the channel that all share.
    void call_by_thread(Channel channel) {
        std::atomic<int> in_flight{0};
        while (!is_over) {
            if (in_flight >= 32) {
                std::this_thread::yield();
                continue;
            }
            ++in_flight;
            channel.call(echo_load, as_bytes(std::string_view("thread")), {.timeout = 2s},
                         [&](const Status& status, ByteView reply) {
                             judge(status, as_text(reply) == "thread", "the reply to a thread");
                             --in_flight;
                         });
        }
        while (in_flight != 0) std::this_thread::yield();
    }

    void come_and_go() {
        unsigned contexts = 1;
        while (!is_over) {
            Runtime client = Runtime::create(with_contexts(contexts)).value();
            contexts = contexts % 3 + 1;
            const Channel channel = client.connect(uri).value();
            const auto some = [&](unsigned) -> Task<void> {
                for (int i = 0; i < 3; ++i) {
                    const auto reply = co_await call(channel, echo_load, {}, {.timeout = 1s});
                    judge(reply.status(), true, "a reply");
                }
            };
            client.block_on(client.on_all(some));
        }
    }

    void run(base::Random& random) {
        Runtime client = Runtime::create(with_contexts(3)).value();
        const Channel channel = client.connect(uri).value();
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) threads.emplace_back([&] { call_by_thread(channel); });
        threads.emplace_back([&] { come_and_go(); });
        threads.emplace_back([&] {
            const auto from = [&](unsigned k) -> Task<void> {
                std::vector<Task<void>> all;
                all.push_back(call_from(client, channel, k));
                all.push_back(call_from(client, channel, k));
                all.push_back(read_from(client, channel));
                co_await when_all(std::move(all));
            };
            client.block_on(client.on_all(from));
        });
        const TimePoint end = now() + time_of_load();
        while (now() < end) {
            Runtime server = Runtime::create(with_contexts(4)).value();
            const auto make = [&](const Here& here) {
                return std::make_unique<LoadService>(server, here);
            };
            const Status served = server.serve(make, uri);
            INFO(served.to_string());
            REQUIRE(served.ok());
            std::this_thread::sleep_for(
                std::chrono::milliseconds(50 + static_cast<int>(random.next() % 250)));
            (void)server.state();
            // It ends with calls, submits and transfers under way.
        }
        is_over = true;
        for (std::thread& thread : threads) thread.join();
    }

    const std::string uri;
    std::atomic<bool> is_over{false};
    std::atomic<std::uint64_t> good{0}, failed{0}, wrong{0}, odd{0};
    std::mutex lock;
    std::string what_is_wrong;
};

}  // namespace

TEST_CASE("context load: calls, submits, regions and clients while servers end in the middle") {
    base::SeededRandom random(seed_of(0));
    for (const std::string& scheme : steering) {
        Load load(scheme);
        load.run(random);
        CAPTURE(scheme, load.good.load(), load.failed.load(), load.what_is_wrong);
        CHECK(load.wrong == 0);
        CHECK(load.odd == 0);
        CHECK(load.good > 100);
    }
}
