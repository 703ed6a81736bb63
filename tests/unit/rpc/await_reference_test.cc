// Operations and tasks that live outside of the coroutine that awaits them, which is destroyed
// before or after them.
#include <stdexcept>
#include <string>

#include <weft/offload.h>

#include "support/operations.h"

namespace await_reference_test {

using namespace weft;
using namespace weft::test;

template <class Operation>
OwnedCoroutine await_owned(Operation& operation, int& resumed) {
    (void)co_await operation;
    ++resumed;
}

template <class Operation>
Task<int> await_in_task(std::unique_ptr<Operation>& operation, int& resumed) {
    (void)co_await *operation;
    co_return ++resumed;
}

Task<int> at_once() { co_return 1; }
Task<Status> sleep_long() { co_return co_await sleep_for(1h); }
Task<int> sleep_then() {
    (void)co_await sleep_long();
    co_return 1;
}

TEST_CASE("an operation may be awaited again when its first awaiter was destroyed") {
    Operations all;
    const bool is_over = GENERATE(false, true);  // Completed when it is awaited again.
    all.each([&](const char* name, auto make) {
        INFO(name << is_over);
        decltype(make_stored(make)) operation;
        int resumed = 0, resumed_again = 0;
        OwnedCoroutine one, two;
        all.in_turn([&] {
            operation = make_stored(make);
            one = await_owned(*operation, resumed);
            one.destroy();
            if (!is_over) two = await_owned(*operation, resumed_again);
        });
        all.pair.rig.run_for(10ms);
        CHECK(resumed == 0);
        if (is_over) all.in_turn([&] { two = await_owned(*operation, resumed_again); });
        CHECK(resumed_again == 1);
        all.in_turn([&] { operation.reset(); });
    });
}

TEST_CASE("an operation that is destroyed before its awaiter resumes nothing") {
    Operations all;
    all.each([&](const char* name, auto make) {
        if (name == std::string("offload")) return;  // Its destruction aborts the program.
        INFO(name);
        decltype(make_stored(make)) operation;
        int resumed = 0;
        OwnedCoroutine one;
        all.in_turn([&] {
            operation = make_stored(make);
            one = await_owned(*operation, resumed);
            operation.reset();
        });
        all.pair.rig.run_for(10ms);
        CHECK(resumed == 0);
        all.in_turn([&] { one.destroy(); });
    });
}

// ---- operations destroyed while a task awaits them ----------------------------------------------

template <class Awaited>
Task<std::string> why_lost(Awaited& awaited) {
    const auto result = co_await *awaited;
    Status status;
    if constexpr (requires { result.status(); }) {
        status = result.status();
    } else if constexpr (std::is_convertible_v<decltype(result), Status>) {  // Not offload().
        status = result;
    }
    co_return status.to_string();
}

const std::string lost_text =
    " was destroyed while a coroutine awaited it: keep what is awaited until co_await gives its "
    "result";
std::string lost(const std::string& what) {
    return fail(Code::cancelled, what + lost_text).with_effect(Effect::unknown).to_string();
}

template <class Awaited, class Make>
Task<std::string> lose_in_later_turn(EchoPair& pair, Awaited& awaited, Make make) {
    awaited = make();
    pair.client.executor().post([&] { awaited.reset(); });
    co_return co_await why_lost(awaited);
}

TEST_CASE("a task resumes with CANCELLED when the operation or task it awaits is destroyed") {
    Operations all;
    all.each([&](const char* name, auto make) {
        if (name == std::string("offload")) return;  // Its destruction aborts the program.
        INFO(name);
        decltype(make_stored(make)) operation;
        const auto kept = [&] { return make_stored(make); };
        CHECK(all.pair.run(lose_in_later_turn(all.pair, operation, kept)) == lost(operation->what));
    });
    std::optional<Task<Status>> task;
    const auto sleeps = [] { return std::optional<Task<Status>>(sleep_long()); };
    CHECK(all.pair.run(lose_in_later_turn(all.pair, task, sleeps)) == lost("a weft::Task"));
}

TEST_CASE("block_on() ends when the operation of its task is destroyed") {
    Runtime runtime = Runtime::create().value();
    std::unique_ptr<Sleep> sleep;
    std::optional<Task<int>> task;
    struct {
        Task<Status> operator()(std::unique_ptr<Sleep>& kept, Executor& executor) {
            std::unique_ptr<Sleep> made(new Sleep(sleep_for(1h)));
            kept = std::move(made);
            executor.post([&] { kept.reset(); });
            co_return co_await *kept;
        }
        Task<int> operator()(std::optional<Task<int>>& kept, Executor& executor) {
            kept.emplace(sleep_then());
            executor.post([&] { kept.reset(); });
            co_return co_await *kept;
        }
    } lose;
    CHECK(runtime.block_on(lose(sleep, runtime.executor())).code() == Code::cancelled);
    // An int carries no status, so the task throws.
    CHECK_THROWS_WITH(runtime.block_on(lose(task, runtime.executor())),
                      Catch::Matchers::Contains(lost_text));
}

template <class Awaited>
Task<void> tell_why_lost(Awaited& awaited, std::string& why) {
    why = co_await why_lost(awaited);
}

TEST_CASE("a task resumes in the next turn when its operation is destroyed between turns") {
    Operations all;
    std::string why;
    all.each([&](const char* name, auto make) {
        INFO(name);
        decltype(make_stored(make)) operation;
        all.in_turn([&] {
            operation = make_stored(make);
            all.pair.client.spawn(tell_why_lost(operation, why));
        });
        if (operation->await_ready()) return;
        why.clear();
        operation.reset();
        CHECK(why.empty());
        all.pair.rig.run_for(10ms);
        CHECK(why == lost(operation->what));
    });
    std::optional<Task<Status>> task = sleep_long();
    all.pair.client.spawn(tell_why_lost(task, why));
    all.pair.rig.run_for(10ms);
    why.clear();
    task.reset();
    CHECK(why.empty());
    all.pair.rig.run_for(10ms);
    CHECK(why == lost("a weft::Task"));
}

template <class Awaited>
Task<int> await_lost(Awaited& awaited, int& resumed) {
    (void)co_await *awaited;
    co_return ++resumed;
}

template <class Awaited, class Make>
Task<std::string> lose_both(EchoPair& pair, Awaited& awaited, Make make, int& resumed) {
    awaited = make();
    std::optional<Task<int>> middle = await_lost(awaited, resumed);
    pair.client.executor().post([&] {
        awaited.reset();
        middle.reset();
    });
    std::string why = "OK";
    try {
        (void)co_await *middle;
    } catch (const BadResult& bad) {
        why = bad.status().to_string();
    }
    co_return why;
}

TEST_CASE("a task may be destroyed before it resumes from a destroyed operation") {
    Operations all;
    int resumed = 0;
    all.each([&](const char* name, auto make) {
        if (name == std::string("offload")) return;
        INFO(name);
        decltype(make_stored(make)) operation;
        const auto kept = [&] { return make_stored(make); };
        CHECK(all.pair.run(lose_both(all.pair, operation, kept, resumed)) == lost("a weft::Task"));
    });
    std::optional<Task<Status>> task;
    const auto sleeps = [] { return std::optional<Task<Status>>(sleep_long()); };
    CHECK(all.pair.run(lose_both(all.pair, task, sleeps, resumed)) == lost("a weft::Task"));
    CHECK(resumed == 0);
}

template <class Operation, class Make>
Task<int> drop_awaiter(std::unique_ptr<Operation>& operation, Make make, int& resumed, bool by_time,
                       Duration pause) {
    operation = make_stored(make);
    if (by_time) {
        (void)co_await with_timeout(0ns, await_in_task(operation, resumed));
    } else {
        auto first = co_await when_any(await_in_task(operation, resumed), at_once());
        CHECK(first.index() == 1);
        CHECK(resumed == 0);
    }
    int again = resumed;
    (void)co_await sleep_for(pause);
    CHECK(resumed == again);
    if (again == 0) (void)co_await await_in_task(operation, again);
    co_return again;
}

TEST_CASE("an operation continues when its awaiter is dropped, and may be awaited again") {
    Operations all;
    const bool by_time = GENERATE(false, true);
    const Duration pause = GENERATE(0ms, 5ms);  // The time until it is awaited again.
    all.each([&](const char* name, auto make) {
        INFO(name << by_time << (pause / 1ms));
        decltype(make_stored(make)) operation;
        int resumed = 0;
        CHECK(all.pair.run(drop_awaiter(operation, make, resumed, by_time, pause)) == 1);
        all.in_turn([&] { operation.reset(); });
    });
}

// ---- tasks that outlive their awaiters ----------------------------------------------------------

enum class Then { ends, sleeps, offloads, combines, throws };
constexpr Then each_then[] = {Then::ends, Then::sleeps, Then::offloads, Then::combines,
                              Then::throws};

Task<int> goes_on(Gate& gate, Then then, int& alive) {
    const Alive local(alive);
    co_await gate;
    const auto work = [] { return 1; };
    if (then == Then::sleeps) (void)co_await sleep_for(1ms);
    if (then == Then::offloads) (void)co_await offload(work);
    if (then == Then::combines)
        (void)co_await when_any(sleep_long(), with_timeout(1ms, sleep_long()));
    if (then == Then::throws) throw std::runtime_error("on purpose");
    co_return 2;
}

Task<int> around(Gate& gate, Then then, int& alive) {
    const Alive local(alive);
    co_return co_await goes_on(gate, then, alive);
}

// Awaits a task that lives elsewhere.
Task<int> await_stored(Task<int>& kept) { co_return co_await kept; }

Task<int> drop_around(Task<int>& kept, int depth) {
    if (depth == 0) co_return (co_await when_any(await_stored(kept), at_once())).value();
    co_return (co_await when_any(drop_around(kept, depth - 1), at_once())).value();
}

TEST_CASE("a task continues when the branch that awaited it by reference is dropped") {
    for (const Then then : each_then) {
        for (const int depth : {0, 2}) {
            for (const bool is_nested : {false, true}) {
                CAPTURE(then, depth, is_nested);
                EchoPair pair;
                Gate gate;
                int alive = 0;
                Task<int> kept = is_nested ? around(gate, then, alive) : goes_on(gate, then, alive);
                CHECK(pair.run(drop_around(kept, depth)) == 1);
                CHECK(alive == (is_nested ? 2 : 1));
                pair.client.executor().post([&] { gate.release(); });
                pair.rig.run_for(10ms);
                CHECK(alive == 0);
            }
        }
    }
}

TEST_CASE("a task that is destroyed before its awaiter resumes nothing") {
    EchoPair pair;
    Gate gate;
    int alive = 0, resumed = 0;
    std::optional<Task<int>> kept = around(gate, Then::ends, alive);
    OwnedCoroutine one = await_owned(*kept, resumed);
    CHECK(alive == 2);
    kept.reset();
    CHECK(alive == 0);
    one.destroy();
    CHECK(resumed == 0);
}

// Work that ends when the test turns the client again.
Task<int> offloads(int& ended) {
    const auto work = [] { return 1; };
    (void)co_await offload(work);
    co_return ++ended;
}

OwnedCoroutine own(Task<FirstOf<int>> task) { (void)co_await task; }

TEST_CASE("a task in offloaded work continues when the program destroys its awaiter") {
    EchoPair pair;
    int ended = 0;
    Task<int> kept = offloads(ended);
    OwnedCoroutine one;
    Gate never;
    int alive = 0;
    pair.client.executor().post([&] {
        one = own(when_any(await_stored(kept), around(never, Then::ends, alive)));
        one.destroy();
    });
    pair.rig.run_for(10ms);
    CHECK(ended == 1);
    CHECK(alive == 0);
}

Task<int> await_kept_in(std::optional<Task<int>>& middle) { co_return co_await *middle; }

TEST_CASE("a branch is dropped when the task that it awaits is destroyed in offloaded work") {
    EchoPair pair;
    int ended = 0;
    Task<int> kept = offloads(ended);
    std::optional<Task<int>> middle = await_stored(kept);
    struct {
        Task<int> operator()(std::optional<Task<int>>& held) {
            held.reset();
            co_return 5;
        }
    } destroy;
    struct {
        Task<int> operator()(std::optional<Task<int>>& held, Task<int> other) {
            auto first = co_await when_any(await_kept_in(held), std::move(other));
            co_return first.value();
        }
    } race;
    CHECK(pair.run(race(middle, destroy(middle))) == 5);
    pair.rig.run_for(10ms);
    CHECK(ended == 1);
}

}  // namespace await_reference_test
