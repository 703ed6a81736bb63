// An operation that is awaited twice: after it completed, and while another coroutine awaits it. An
// operation that is awaited on another context than its own.
#include <stdexcept>
#include <string>

#include "support/operations.h"

namespace misuse_operation_test {

using namespace weft;
using namespace weft::test;

template <class Operation>
OwnedCoroutine await_into(Operation& operation, int& resumed, std::string& thrown) {
    try {
        (void)co_await operation;
        ++resumed;
    } catch (const std::logic_error& error) {
        thrown = error.what();
    }
}

void check_refused(const std::string& sentence) {
    CAPTURE(sentence);
    CHECK(sentence.find("co_await of an operation that was awaited before: ") == 0);
    CHECK(sentence.find("once") != sentence.npos);
}

TEST_CASE("an operation that has returned its result is refused when it is awaited again") {
    Operations all;
    all.each([&](const char* name, auto make) {
        INFO(name);
        decltype(make_stored(make)) operation;
        int resumed = 0;
        std::string first, second;
        OwnedCoroutine one, two;
        all.in_turn([&] {
            operation = make_stored(make);
            one = await_into(*operation, resumed, first);
        });
        all.pair.rig.run_for(10ms);
        CHECK(resumed == 1);
        all.in_turn([&] { two = await_into(*operation, resumed, second); });
        CHECK(resumed == 1);
        CHECK(first.empty());
        check_refused(second);
        all.in_turn([&] { operation.reset(); });
    });
}

TEST_CASE("a second awaiter of an operation is refused, and the first one gets the result") {
    Operations all;
    all.each([&](const char* name, auto make) {
        INFO(name);
        decltype(make_stored(make)) operation;
        int resumed = 0, resumed_too = 0;
        std::string first, second;
        OwnedCoroutine one, two;
        all.in_turn([&] {
            operation = make_stored(make);
            one = await_into(*operation, resumed, first);
            two = await_into(*operation, resumed_too, second);
        });
        all.pair.rig.run_for(10ms);
        CHECK(resumed == 1);
        CHECK(resumed_too == 0);
        CHECK(first.empty());
        check_refused(second);
        all.in_turn([&] { operation.reset(); });
    });
}

// Awaits each transfer of its call twice.
struct Twice final : Service {
    int refused = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("test.Twice/Twice"), [this](Call call) {
            detail::run_detached(serve(std::move(call), refused), [] {});
        });
    }
    static Task<void> serve(Call call, int& refused) {
        auto read = get(call, {}, 0, {});
        auto write = put(call, {}, 0, {});
        for (TransferOperation* operation : {&read, &write}) {
            (void)co_await *operation;
            try {
                (void)co_await *operation;
            } catch (const std::logic_error& error) {
                ++refused;
                check_refused(error.what());
            }
        }
        call.reply({});
    }
};

TEST_CASE("a transfer of a call is refused when it is awaited again") {
    Twice service;
    EchoPair pair;
    REQUIRE(pair.server.add(service).ok());
    struct {
        Task<Status> operator()(Channel channel) {
            co_return (co_await call(channel, MethodId("test.Twice/Twice"), {})).status();
        }
    } ask;
    CHECK(pair.run(ask(pair.channel)).ok());
    CHECK(service.refused == 2);
}

// ---- on another context -------------------------------------------------------------------------

void check_refused_elsewhere(const std::string& sentence) {
    CAPTURE(sentence);
    CHECK(sentence.find("co_await of an operation on another context than its own: ") == 0);
}

TEST_CASE("an operation is refused when it is awaited in a turn of another runtime") {
    Operations all;
    all.each([&](const char* name, auto make) {
        INFO(name);
        decltype(make_stored(make)) operation;
        int resumed = 0;
        std::string first, early, late, last;
        OwnedCoroutine one, two, three, four;
        const auto await_in_other = [&](OwnedCoroutine& coroutine, std::string& thrown) {
            all.other.executor().post([&] { coroutine = await_into(*operation, resumed, thrown); });
        };
        all.in_turn([&] {
            operation = make_stored(make);
            one = await_into(*operation, resumed, first);  // Begins offloaded work.
            one.destroy();
            await_in_other(two, early);
        });
        all.pair.rig.run_for(10ms);
        REQUIRE(operation->await_ready());
        await_in_other(three, late);
        all.pair.rig.run_until_idle();
        CHECK(resumed == 0);
        check_refused_elsewhere(early);
        check_refused_elsewhere(late);
        all.in_turn([&] { four = await_into(*operation, resumed, last); });
        CHECK(resumed == 1);
        CHECK((first + last).empty());
        all.in_turn([&] { operation.reset(); });
    });
}

TEST_CASE("an operation of an ended runtime may be awaited in a turn of another one") {
    const bool is_destroyed = GENERATE(false, true);  // Its context, too.
    CAPTURE(is_destroyed);
    Operations all;
    std::unique_ptr<Sleep> sleep;
    all.in_turn([&] { sleep.reset(new Sleep(sleep_for(1h))); });
    std::erase_if(all.pair.rig.runtimes,
                  [&](const auto& one) { return one.get() == &all.pair.client; });
    if (is_destroyed) {
        all.pair.channel = Channel();
        all.group = Group();
    }
    int resumed = 0;
    std::string thrown;
    OwnedCoroutine one;
    all.other.executor().post([&] { one = await_into(*sleep, resumed, thrown); });
    all.pair.rig.run_until_idle();
    CHECK(resumed == 1);
    CHECK(thrown.empty());
}

// ---- tasks --------------------------------------------------------------------------------------

Task<int> number() { co_return 7; }
Task<void> nothing() { co_return; }

OwnedCoroutine await_task(Task<int>& task) { (void)co_await task; }
OwnedCoroutine await_task(Task<void>& task) { co_await task; }

template <class T>
OwnedCoroutine await_into(Task<T> task, std::string& thrown) {
    try {
        (void)co_await task;
    } catch (const std::logic_error& error) {
        thrown = error.what();
    }
}

template <class T>
void check_task_refused(Task<T> combined) {
    std::string thrown;
    const OwnedCoroutine one = await_into(std::move(combined), thrown);
    CAPTURE(thrown);
    CHECK(thrown.find("co_await of a weft::Task that was awaited before") == 0);
}

TEST_CASE("a task that was awaited is refused by when_all, when_any, with_timeout and spawn") {
    EchoPair pair;
    const auto awaited = [] {
        Task<int> task = number();
        const OwnedCoroutine once = await_task(task);
        return task;
    };
    const auto awaited_many = [&] {
        std::vector<Task<int>> tasks;
        tasks.push_back(number());
        tasks.push_back(awaited());
        return tasks;
    };
    check_task_refused(when_all(number(), awaited()));
    check_task_refused(when_all(awaited_many()));
    check_task_refused(when_any(number(), awaited()));
    check_task_refused(when_any(awaited_many()));
    check_task_refused(with_timeout(1ms, awaited()));
    CHECK_THROWS_AS(pair.client.block_on(awaited()), std::logic_error);
    Task<void> task = nothing();
    const OwnedCoroutine once = await_task(task);
    CHECK_THROWS_AS(pair.client.spawn(std::move(task)), std::logic_error);
}

TEST_CASE("when_all refuses a task that another coroutine awaits, and drops its awaiter") {
    Gate gate;
    struct {
        Task<int> operator()(Gate& at) {
            co_await at;
            co_return 1;
        }
    } wait;
    Task<int> task = wait(gate);
    const OwnedCoroutine first = await_task(task);
    check_task_refused(when_all(std::move(task)));
    CHECK_FALSE(first.done());
}

}  // namespace misuse_operation_test
