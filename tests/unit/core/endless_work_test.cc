// Endless work, of which each completion begins the next operation, when its runtime ends.
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/offload.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/echo.h"
#include "support/open_files.h"
#include "support/owned_coroutine.h"
#include "support/raw_echo.h"

namespace weft::endless_work_test {
namespace {

using namespace weft::test;

// State that each round holds.
struct Held {
    Runtime& runtime;
    Channel channel;
    Group group;
    Executor* executor = &runtime.executor();
    bool repeats = true;
    std::shared_ptr<int> rounds = std::make_shared<int>(0);
};

Task<void> after_call(Held held) {
    ++*held.rounds;
    (void)co_await call(held.channel, echo_method, {});
    if (held.repeats) held.runtime.spawn(after_call(held));
}

Task<void> after_sleep(Held held) {
    ++*held.rounds;
    (void)co_await sleep_for(1us);
    if (held.repeats) held.runtime.spawn(after_sleep(held));
}

Task<void> after_both(Held held) {
    ++*held.rounds;
    (void)co_await call(held.channel, echo_method, {});
    (void)co_await sleep_for(1us);
    if (held.repeats) held.runtime.spawn(after_both(held));
}

Task<void> after_offload(Held held) {
    ++*held.rounds;
    const auto work = [] {};
    co_await offload(work);
    if (held.repeats) held.runtime.spawn(after_offload(held));
}

void call_again(const Held& held) {
    ++*held.rounds;
    held.channel.call(echo_method, {}, {}, [held](const Status&, ByteView) { call_again(held); });
}

void get_again(const Held& held) {
    ++*held.rounds;
    held.channel.get(RegionRef(), 0, Buffer(), {}, [held](const Status&) { get_again(held); });
}

void collect_again(const Held& held) {
    ++*held.rounds;
    held.group.collective(echo_method, BodyWriter::of({}), {},
                          [held](const GroupOutcome&) { collect_again(held); });
}

void post_again(const Held& held) {
    ++*held.rounds;
    held.runtime.executor().post([held] { post_again(held); });
}

TEST_CASE("endless work is destroyed with its runtime, with all that it holds") {
    using Begin = void (*)(const Held&);
    const std::pair<const char*, Begin> forms[] = {
        {"a coroutine after a call",
         [](const Held& held) { held.runtime.spawn(after_call(held)); }},
        {"a coroutine after a sleep",
         [](const Held& held) { held.runtime.spawn(after_sleep(held)); }},
        {"a coroutine after both", [](const Held& held) { held.runtime.spawn(after_both(held)); }},
        {"a coroutine after offloaded work",
         [](const Held& held) { held.runtime.spawn(after_offload(held)); }},
        {"a completion of a call", call_again},
        {"a completion of a get", get_again},
        {"a completion of a collective", collect_again},
        {"posted work", post_again},
    };
    for (const auto& [name, begin] : forms) {
        INFO(name);
        const int before = open_files();
        std::weak_ptr<int> rounds;
        std::weak_ptr<api::RuntimeImpl> node;
        {
            SimRig rig;
            rig.add("server");
            Runtime& client = rig.add("", {.log_level = LogLevel::off});
            node = impl_of(client).weak_from_this();
            const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
            Held held{client, client.connect("sim://server").value(), client.group(view).value()};
            rounds = held.rounds;
            begin(held);
            for (int i = 0; i < 10; ++i) client.turn();
            CHECK(*held.rounds > 0);
        }
        CHECK(rounds.expired());
        CHECK(node.expired());
        CHECK(open_files() == before);
    }
}

OwnedCoroutine sleeps_for_ever(Held held) {
    while (held.repeats) (void)co_await sleep_for(1us);
}

OwnedCoroutine calls_for_ever(Held held) {
    while (held.repeats) (void)co_await call(held.channel, echo_method, {});
}

OwnedCoroutine gets_for_ever(Held held) {
    while (held.repeats) (void)co_await get(held.channel, RegionRef(), 0, Buffer());
}

OwnedCoroutine asks_for_ever(Held held) {
    const echo::v1::EchoRequestText request;
    while (held.repeats) (void)co_await echo::v1::EchoGroupClient(held.group).Everywhere(request);
}

Task<int> short_sleep() {
    (void)co_await sleep_for(1us);
    co_return 1;
}

OwnedCoroutine combines_for_ever(Held held) {
    while (held.repeats) {
        auto first = short_sleep(), second = short_sleep();
        (void)co_await when_any(std::move(first), std::move(second));
    }
}

Task<void> calls(Held held) { (void)co_await call(held.channel, echo_method, {}); }

OwnedCoroutine awaits_tasks_for_ever(Held held) {
    while (held.repeats) co_await calls(held);
}

// Posts itself when it is destroyed.
struct PostsAgain {
    PostsAgain(const Held& held, int& posts) : of(held), count(&posts) {}
    PostsAgain(PostsAgain&& other) noexcept
        : of(std::move(other.of)), count(std::exchange(other.count, nullptr)) {}
    ~PostsAgain() {
        if (!count) return;
        ++*count;
        of.executor->post(PostsAgain(of, *count));
    }
    void operator()() {}
    Held of;
    int* count;
};

TEST_CASE("a callback that posts itself when destroyed does not delay its runtime's end") {
    // In a child process, since the last callback is never destroyed.
    CHECK(end_of_child([] {
              ::alarm(20);
              int posts = 0;
              SimRig rig;
              Runtime& runtime = rig.add("", {.log_level = LogLevel::off});
              runtime.executor().post(PostsAgain({runtime, {}, {}}, posts));
              runtime.turn();
              rig.runtimes.clear();
              return posts > 1000 ? 0 : 1;
          }) == 0);
}

// Returns a channel of a runtime that has ended.
Channel channel_of_ended() {
    SimRig rig;
    return rig.add("", {.log_level = LogLevel::off}).connect("sim://nowhere").value();
}

TEST_CASE("loops that begin after the end of their runtime end after a bounded time") {
    constexpr int loops = 5000;
    const Channel channel = channel_of_ended();
    struct Loop {
        Channel channel;
        int& rounds;
        void call() const {
            ++rounds;
            channel.call(echo_method, {}, {},
                         [loop = *this](const Status&, ByteView) { loop.call(); });
        }
    };
    int rounds = 0;
    channel.executor().post([&] {
        for (int i = 0; i < loops; ++i) Loop{channel, rounds}.call();
    });
    CHECK(rounds > loops);
    CHECK(rounds < 200 * loops);
}

TEST_CASE("long chains of posts on an ended runtime run to their end") {
    constexpr int chains = 600, rounds = 900;
    const Channel channel = channel_of_ended();
    struct Chain {
        Executor& executor;
        int& ended;
        int left = rounds;
        void go_on() const {
            if (left == 0) {
                ++ended;
            } else {
                executor.post([next = Chain{executor, ended, left - 1}] { next.go_on(); });
            }
        }
    };
    int ended = 0;
    for (int i = 0; i < chains; ++i) Chain{channel.executor(), ended}.go_on();
    CHECK(ended == chains);
}

// Two runtimes; work of each begins the next work at the other one.
struct Pair {
    Held here, there;
    Pair turned() const { return {there, here}; }
};

void post_across(const Pair& pair) {
    ++*pair.here.rounds;
    pair.there.executor->post([pair] { post_across(pair.turned()); });
}

void call_across(const Pair& pair) {
    ++*pair.here.rounds;
    pair.here.channel.call(echo_method, {}, {}, [pair](const Status&, ByteView) {
        pair.there.executor->post([pair] { call_across(pair.turned()); });
    });
}

void call_from_across(const Pair& pair) {
    ++*pair.here.rounds;
    pair.here.executor->post([pair] {
        pair.there.channel.call(echo_method, {}, {},
                                [pair](const Status&, ByteView) { call_from_across(pair); });
    });
}

TEST_CASE("endless work between two runtimes is destroyed with the second one") {
    using Begin = void (*)(const Pair&);
    const std::pair<const char*, Begin> forms[] = {
        {"posted work", post_across},
        {"completions that post", call_across},
        {"work that calls", call_from_across},
    };
    for (const auto& [name, begin] : forms) {
        for (const std::size_t first : {1, 2}) {
            INFO(name << ", first " << first);
            const int before = open_files();
            std::weak_ptr<int> rounds;
            {
                SimRig rig;
                rig.add("server");
                const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
                const auto make = [&] {
                    Runtime& client = rig.add("", {.log_level = LogLevel::off});
                    return Held{client, client.connect("sim://server").value(),
                                client.group(view).value()};
                };
                Pair pair{make(), make()};
                rounds = pair.here.rounds;
                begin(pair);
                for (int i = 0; i < 10; ++i) {
                    pair.here.runtime.turn();
                    pair.there.runtime.turn();
                }
                CHECK(*pair.here.rounds > 0);
                rig.runtimes[first].reset();
                rig.runtimes[3 - first].reset();
            }
            CHECK(rounds.expired());
            CHECK(open_files() == before);
        }
    }
}

OwnedCoroutine offloads_for_ever(Held held) {
    const auto work = [] {};
    while (held.repeats) {
        try {
            co_await offload(work);
        } catch (const std::system_error&) {  // Dropped.
        }
    }
}

Task<void> offloads() {
    const auto work = [] {};
    co_await offload(work);
}

OwnedCoroutine offloads_in_tasks_for_ever(Held held) {
    while (held.repeats) {
        try {
            co_await offloads();
        } catch (const std::system_error&) {
        }
    }
}

OwnedCoroutine offloads_within_time_for_ever(Held held) {
    while (held.repeats) {
        try {
            (void)co_await with_timeout(1s, offloads());
        } catch (const std::system_error&) {
        }
    }
}

TEST_CASE("a loop in the program's own coroutine type stays suspended when its runtime ends") {
    using Begin = OwnedCoroutine (*)(Held);
    const std::pair<const char*, Begin> forms[] = {
        {"sleeps", sleeps_for_ever},
        {"calls", calls_for_ever},
        {"gets", gets_for_ever},
        {"collectives", asks_for_ever},
        {"combined tasks", combines_for_ever},
        {"tasks", awaits_tasks_for_ever},
        {"offloaded work", offloads_for_ever},
        {"tasks of offloaded work", offloads_in_tasks_for_ever},
        {"combined tasks of offloaded work", offloads_within_time_for_ever},
    };
    for (const auto& [name, begin] : forms) {
        INFO(name);
        const int before = open_files();
        std::weak_ptr<api::RuntimeImpl> node;
        OwnedCoroutine coroutine;
        {
            SimRig rig;
            rig.add("server");
            Runtime& client = rig.add("", {.log_level = LogLevel::off});
            node = impl_of(client).weak_from_this();
            const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
            const Held held{client, client.connect("sim://server").value(),
                            client.group(view).value()};
            client.executor().post([&, first = begin] { coroutine = first(held); });
            for (int i = 0; i < 10; ++i) client.turn();
        }
        CHECK_FALSE(coroutine.done());
        coroutine.destroy();
        CHECK(node.expired());
        CHECK(open_files() == before);
    }
}

}  // namespace
}  // namespace weft::endless_work_test
