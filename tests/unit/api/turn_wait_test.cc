// Operations on a manually turned runtime from threads that do not turn it; and the end of a
// follower's thread that waits in such an operation.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/group_authority.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/child.h"
#include "support/fresh_uri.h"
#include "support/group_file.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace weft::turn_wait_test {
namespace {

using namespace weft::test;

// Not under the thread sanitizer: in the tests of weft's own check two threads begin to turn at
// once.
#ifdef __SANITIZE_THREAD__
constexpr bool can_begin_amid_turns = false;
#else
constexpr bool can_begin_amid_turns = true;
#endif

Runtime by_hand() { return Runtime::create({.log_level = LogLevel::off, .manual = true}).value(); }

Task<int> seven() { co_return 7; }

template <class Body>
auto elsewhere(Body body) {
    return std::async(std::launch::async, body);
}

template <class Future>
bool is_ready(const Future& future, Duration limit = 0s) {
    return future.wait_for(limit) == std::future_status::ready;
}

// The end of the other thread does not wake this one.
template <class T>
bool turns_until_ready(Runtime& runtime, const std::future<T>& other) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    const auto is_over = [&] { return is_ready(other); };
    while (!is_over() && std::chrono::steady_clock::now() < end) runtime.turn_until(is_over, 10ms);
    return is_over();
}

// Whether `other` completes without a turn of this thread; if not, this thread turns, so that the
// test fails and does not hang.
template <class T>
bool ends_unturned(Runtime& runtime, const std::future<T>& other) {
    if (is_ready(other, test_timeout)) return true;
    turns_until_ready(runtime, other);
    return false;
}

struct Other final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        static constexpr MethodId method("test.Other/Other");
        registrar.add(method, [](Call call) { call.reply(call.request()); });
    }
};

TEST_CASE("operations on other threads complete before any thread has turned the runtime") {
    Echo served;
    Other added;
    Runtime runtime = by_hand();
    const Group own = runtime.group(GroupDirectory::view()).value();
    const GroupView joined = GroupView::make("joined", 1, {{0, {"sm://a"}}}).value();
    const std::string serve_at = fresh_uri("sm"), listen_at = fresh_uri("sm");
    const struct {
        const char* name;
        std::function<Status()> body;
    } operations[] = {
        {"serve()", [&] { return runtime.serve(served, serve_at); }},
        {"add()", [&] { return runtime.add(added); }},
        {"listen()", [&] { return runtime.listen(listen_at); }},
        {"connect()", [&] { return runtime.connect("sm://absent").status(); }},
        {"expose()", [&] { return runtime.expose(runtime.allocate(100).value(), {}).status(); }},
        {"group()", [&] { return runtime.group(GroupDirectory::view(2)).status(); }},
        {"join()", [&] { return runtime.join(joined, 0); }},
        {"addresses()", [&] { return (void)runtime.addresses(), Status(); }},
        {"Group::install()", [&] { return own.install(GroupDirectory::view(3)); }},
        {"Group::channel()", [&] { return own.channel(0).status(); }},
    };
    std::vector<std::future<Status>> all;
    for (const auto& one : operations) all.push_back(elsewhere(one.body));
    for (std::size_t i = 0; i < all.size(); ++i) {
        INFO(operations[i].name);
        CHECK(ends_unturned(runtime, all[i]));
        CHECK(all[i].get().to_string() == Status().to_string());
    }
    CHECK(own.view().epoch() == 3);
    CHECK(runtime.addresses().size() == 2);
}

TEST_CASE("a thread that serves before its first turn turns the runtime from then on") {
    Echo service;
    Runtime runtime = by_hand();
    const std::string at = fresh_uri("sm");
    std::promise<Status> serves;
    std::promise<void> end;
    const auto ends = end.get_future().share();
    auto loop = elsewhere([&] {
        serves.set_value(runtime.serve(service, at));
        while (!is_ready(ends)) runtime.turn_until([&] { return is_ready(ends); }, 1ms);
        return 0;
    });
    auto served = serves.get_future();
    CHECK(ends_unturned(runtime, served));
    CHECK(served.get().ok());
    Runtime client = Runtime::create({.log_level = LogLevel::off}).value();
    const Channel channel = client.connect(at).value();
    std::promise<Status> called;
    channel.call(echo_method, as_bytes("x"), {.timeout = test_timeout},
                 [&](const Status& status, ByteView) { called.set_value(status); });
    CHECK(called.get_future().get().ok());
    end.set_value();
    CHECK(loop.get() == 0);
}

TEST_CASE("a runtime can be used while a thread makes its first turn") {
    if (!can_begin_amid_turns) return;
    Echo service;
    Runtime server = Runtime::create({.log_level = LogLevel::off}).value();
    REQUIRE(server.serve(service, fresh_uri("sm")).ok());
    for (int round = 0; round < 40; ++round) {
        std::atomic<bool> ends{false};
        Runtime runtime = by_hand();
        auto loop = elsewhere([&] {
            const auto is_over = [&] { return ends.load(); };
            while (!is_over()) runtime.turn_until(is_over, 1ms);
            return 0;
        });
        const Channel channel = runtime.connect(server.addresses().front()).value();
        const auto echo = [](Channel to) -> Task<bool> {
            co_return (co_await call(to, echo_method, as_bytes("y"), {.timeout = test_timeout}))
                .ok();
        };
        CHECK(runtime.block_on(echo(channel)));
        CHECK(runtime.block_on(seven()) == 7);
        ends = true;
        loop.get();
    }
}

TEST_CASE("the thread that created a runtime may use it before the first turn") {
    Echo service;
    service.hold = true;
    Runtime server = Runtime::create({.log_level = LogLevel::off}).value();
    REQUIRE(server.serve(service, fresh_uri("sm")).ok());
    Runtime runtime = by_hand();
    const Channel channel = runtime.connect(server.addresses().front()).value();
    CallOutcome outcome;
    const OperationId id = channel.call(echo_method, {}, {.timeout = test_timeout}, outcome.done());
    CallOperation made = call(channel, echo_method, as_bytes("x"), {.timeout = 1ms});
    const auto finish = [](CallOperation& operation) -> Task<Code> {
        co_return (co_await operation).status().code();
    };
    CHECK(runtime.block_on(finish(made)) == Code::deadline_exceeded);
    channel.cancel_call(id);
    REQUIRE(runtime.turn_until([&] { return outcome.completions == 1; }, test_timeout));
    CHECK(outcome.status.code() == Code::cancelled);
}

TEST_CASE("a borrowed turn completes on its thread while another one begins to turn") {
    if (!can_begin_amid_turns) return;
    Runtime runtime = by_hand();
    const Channel channel = runtime.connect("sm://absent").value();
    std::promise<void> inside, waits;
    auto borrower = elsewhere([&] {
        const auto drops = [&](Channel to) -> Task<int> {
            std::unique_ptr<CallOperation> made(
                new CallOperation(call(to, echo_method, as_bytes("x"), {.timeout = 1h})));
            std::unique_ptr<Sleep> sleep(new Sleep(sleep_for(1h)));
            inside.set_value();
            waits.get_future().wait();
            made.reset();
            sleep.reset();
            co_return 7;
        };
        return runtime.block_on(drops(channel));
    });
    inside.get_future().wait();
    // Its turn waits until the borrowed one has completed.
    auto loop = elsewhere([&] { return runtime.turn(); });
    while (!node_of(runtime).context.is_first_turn_pending()) std::this_thread::yield();
    waits.set_value();
    loop.get();
    CHECK(turns_until_ready(runtime, borrower));
    CHECK(borrower.get() == 7);
}

TEST_CASE("the creator of a runtime may answer a call that a handler kept in a borrowed turn") {
    Echo service;
    service.hold = true;
    Runtime runtime = by_hand();
    REQUIRE(runtime.serve(service, fresh_uri("sm")).ok());
    const Channel channel = runtime.connect(runtime.addresses().front()).value();
    const auto ticks = []() -> Task<int> {
        (void)co_await sleep_for(1ms);
        co_return 1;
    };
    std::vector<CallOutcome> outcomes(3);
    for (CallOutcome& outcome : outcomes)
        channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    for (int i = 0; i < 5000 && service.held.size() < 3; ++i) runtime.block_on(ticks());
    REQUIRE(service.held.size() == 3);
    service.held[0].reply(service.held[0].request());
    CHECK_FALSE(service.held[1].cancelled());
    service.held[1].fail(fail(Code::aborted, "no"));
    service.held.clear();  // The third call is dropped without a reply.
    for (int i = 0; i < 5000 && outcomes[2].completions == 0; ++i) runtime.block_on(ticks());
    CHECK(outcomes[0].reply == "x");
    CHECK(outcomes[1].status.code() == Code::aborted);
    CHECK(outcomes[2].completions == 1);
    CHECK_FALSE(node_of(runtime).context.has_turned());
}

TEST_CASE("operations of the creator complete before another thread's first turn") {
    for (int round = 0; round < 50; ++round) {
        Runtime runtime = by_hand();
        const Channel channel = runtime.connect("sm://absent").value();
        std::atomic<bool> begins{false}, ends{false};
        auto loop = elsewhere([&] {
            while (!begins) std::this_thread::yield();
            while (!ends) runtime.turn();
        });
        std::atomic<int> completions{0};
        constexpr int calls = 20, all = 3 * calls;
        begins = true;
        for (int i = 0; i < calls; ++i) {
            const auto count = [&](const Status&, auto...) { ++completions; };
            channel.cancel_call(channel.call(echo_method, {}, {.timeout = 5ms}, count));
            channel.call(echo_method, {}, {.timeout = 1ns}, count);
            channel.get({}, 0, Buffer(), {.timeout = 1ms}, count);
            (void)runtime.expose(runtime.allocate(64).value(), {});
        }
        (void)runtime.state();
        const auto end = std::chrono::steady_clock::now() + test_timeout;
        while (completions < all && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
        CHECK(completions == all);
        ends = true;
        loop.get();
    }
}

// The bug: an operation wrote its completion to memory that was reused.
TEST_CASE("an operation of the creator during another thread's first turn stays valid") {
    constexpr int rounds = 60, most = 256;
    struct Place {
        alignas(CallOperation) std::array<std::byte, sizeof(CallOperation)> bytes{};
    };
    for (int round = 0; round < rounds; ++round) {
        std::vector<Place> places(most);
        Runtime runtime = by_hand();
        const Channel channel = runtime.connect("sm://absent").value();
        std::atomic<bool> is_ready{false}, ends{false};
        std::atomic<int> destroyed{0};
        auto loop = elsewhere([&] {
            is_ready = true;
            while (!ends) runtime.turn();
        });
        while (!is_ready) {
        }
        int made = 0;
        for (; made < most && node_of(runtime).context.is_owner_or_creator(); ++made) {
            Place& place = places[made];
            auto* const operation = ::new (static_cast<void*>(place.bytes.data()))
                CallOperation(call(channel, echo_method, {}, {.timeout = 1ms}));
            channel.executor().post([&, operation] {
                operation->~CallOperation();
                place.bytes.fill(std::byte{});
                ++destroyed;
            });
        }
        while (destroyed < made) std::this_thread::yield();
        // As long as one of the operations may be pending.
        std::atomic<bool> is_over{false};
        channel.call(echo_method, {}, {.timeout = 3ms},
                     [&](const Status&, ByteView) { is_over = true; });
        while (!is_over) std::this_thread::yield();
        ends = true;
        loop.get();
        for (const Place& place : places) {
            CHECK(std::all_of(place.bytes.begin(), place.bytes.end(),
                              [](std::byte b) { return b == std::byte{}; }));
        }
    }
}

TEST_CASE("a thread that begins to turn takes over from one that borrows turns") {
    if (!can_begin_amid_turns) return;
    Runtime runtime = by_hand();
    std::promise<void> is_in;
    struct {
        Task<int> operator()(std::promise<void>& in, std::thread::id until_on) const {
            in.set_value();
            while (std::this_thread::get_id() != until_on) (void)co_await sleep_for(1ms);
            co_return 7;
        }
    } waits;
    auto other = elsewhere(
        [&, here = std::this_thread::get_id()] { return runtime.block_on(waits(is_in, here)); });
    is_in.get_future().wait();
    CHECK(turns_until_ready(runtime, other));
    CHECK(other.get() == 7);
}

TEST_CASE("an operation logs a warning when the turning thread has stopped turning") {
    std::promise<std::string> logged;
    RuntimeOptions options;
    options.manual = true;
    options.log_sink = [&](LogLevel, std::string_view line) {
        logged.set_value(std::string(line));
    };
    Runtime runtime = Runtime::create(options).value();
    runtime.turn();
    auto other = elsewhere([&] { return runtime.connect("sm://absent").ok(); });
    auto line = logged.get_future();
    CHECK(is_ready(line, test_timeout));
    CHECK_FALSE(is_ready(other));
    CHECK(turns_until_ready(runtime, other));
    CHECK(other.get());
    REQUIRE(is_ready(line));
    const std::string text = line.get();
    CHECK(text.find("an operation of weft::Runtime or weft::Group waits") != std::string::npos);
    CHECK(text.find("call turn() first") != std::string::npos);
}

// ---- a follower with a callback that waits for the runtime --------------------------------------

// A follower with a callback that has started and then waits for the runtime.
struct Followed {
    template <class Wait>
    Followed(const GroupDirectory& at, Wait wait) : authority(at.authority()) {
        const auto begun = std::make_shared<std::promise<void>>();
        const auto told = [begun, wait](const GroupView& view) {
            begun->set_value();
            wait(view);
        };
        if (authority->follow(told, {}).ok()) begun->get_future().wait();
    }
    std::unique_ptr<GroupAuthority> authority;
};

TEST_CASE("a follower's operation completes while the turning thread destroys its authority") {
    const GroupDirectory at;
    Runtime runtime = by_hand();
    const Group group = runtime.group(GroupDirectory::view()).value();
    int seen = 0;
    auto turns = elsewhere([&] {
        runtime.turn();
        Followed(at, [&](const GroupView&) {
            if (group.install(GroupDirectory::view(2)).ok()) ++seen;
            seen += runtime.block_on(seven());
        });
        return seen;
    });
    CHECK(ends_unturned(runtime, turns));
    CHECK(turns.get() == 8);
    CHECK(group.view().epoch() == 2);
}

TEST_CASE("an authority that a handler destroys ends while its follower waits for the runtime") {
    if (!can_start_threads_in_child) return;
    for (const bool manual : {false, true}) {
        INFO(manual);
        const ChildOutput output = output_of_child([manual] {
            ::alarm(20);
            const GroupDirectory at;
            Runtime runtime =
                Runtime::create({.log_level = LogLevel::off, .manual = manual}).value();
            const Group group = runtime.group(GroupDirectory::view()).value();
            const auto ends = [&]() -> Task<int> {
                Followed by(
                    at, [&](const GroupView&) { (void)group.install(GroupDirectory::view(2)); });
                by.authority.reset();
                co_return static_cast<int>(group.view().epoch());
            };
            return runtime.block_on(ends());
        });
        CAPTURE(output.text);
        CHECK(output.end == 2);
    }
}

TEST_CASE("destroying the authority of a follower in block_on from a handler ends the program") {
    if (!can_start_threads_in_child) return;
    const ChildOutput output = output_of_child([] {
        ::alarm(20);
        const GroupDirectory at;
        Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
        const auto ends = [&]() -> Task<int> {
            Followed by(at, [&](const GroupView&) { (void)runtime.block_on(seven()); });
            by.authority.reset();
            co_return 0;
        };
        return runtime.block_on(ends());
    });
    CAPTURE(output.text);
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("GroupAuthority::~GroupAuthority()") != std::string::npos);
    CHECK(output.text.find("block_on()") != std::string::npos);
}

}  // namespace
}  // namespace weft::turn_wait_test
