// Tasks that loop for ever over awaitables of the program end with their runtime.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/offload.h>
#include <weft/runtime.h>
#include <weft/sim.h>
#include <weft/sleep.h>

#include "support/catch.h"
#include "support/open_files.h"
#include "support/resume_soon.h"
#include "support/sim_rig.h"

namespace weft::foreign_end_test {
namespace {

using namespace weft::test;

// State that each coroutine holds; the channel keeps a part of the runtime.
struct Held {
    Channel channel;
    std::shared_ptr<int> rounds = std::make_shared<int>(0);
};

struct Yield {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) const { resume_soon(awaiting); }
    void await_resume() const {}
};

// May be destroyed while it waits.
class YieldOrReturn {
  public:
    YieldOrReturn() = default;
    YieldOrReturn(const YieldOrReturn&) = delete;
    ~YieldOrReturn() { *waiting_ = nullptr; }
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        *waiting_ = awaiting;
        Executor::current()->post([waiting = waiting_] {
            if (*waiting) waiting->resume();
        });
    }
    void await_resume() const {}

  private:
    std::shared_ptr<std::coroutine_handle<>> waiting_ = std::make_shared<std::coroutine_handle<>>();
};

struct GiveWayIf {
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<> awaiting) const {
        resume_soon(awaiting);
        return true;
    }
    void await_resume() const {}
};

struct GiveWayTo {
    bool await_ready() const { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const {
        resume_soon(awaiting);
        return std::noop_coroutine();
    }
    void await_resume() const {}
};

struct Wrapped {
    Yield operator co_await() const { return {}; }
};

template <class Awaited>
Task<void> again(Held held) {
    for (;;) {
        ++*held.rounds;
        co_await Awaited();
    }
}

Task<int> once(Held held) {
    ++*held.rounds;
    co_await YieldOrReturn();
    co_return 1;
}

Task<void> begun(std::shared_ptr<int> rounds) {
    while (*rounds == 0) co_await Yield();
}

Task<void> nested(Held held) {
    for (;;) (void)co_await once(held);
}

// One task begins to wait while the other one starts.
template <bool is_any>
Task<void> forks(Held held) {
    for (;;) {
        auto one = once(held), other = once(held);
        if constexpr (is_any) {
            (void)co_await when_any(std::move(one), std::move(other));
        } else {
            (void)co_await when_all(std::move(one), std::move(other));
        }
    }
}

Task<void> within_a_timeout(Held held) {
    for (;;) (void)co_await with_timeout(1h, once(held));
}

Task<void> beside(Held held) { (void)co_await when_any(again<Yield>(held), again<Wrapped>(held)); }

// The waking task resumes the waiting one inside its own step.
struct Turns {
    std::coroutine_handle<> waiting;
    struct Next {
        explicit Next(Turns& in) : turns(in) {}
        Next(const Next&) = delete;
        ~Next() {
            if (turns.waiting == own) turns.waiting = nullptr;
        }
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiting) { turns.waiting = own = awaiting; }
        void await_resume() const {}
        Turns& turns;
        std::coroutine_handle<> own;
    };
};

Task<void> waits(Held, Turns& turns) {
    for (;;) {
        Turns::Next next(turns);
        co_await next;
    }
}

Task<void> wakes(Held held, Turns& turns) {
    for (;;) {
        ++*held.rounds;
        co_await Yield();
        if (turns.waiting) std::exchange(turns.waiting, nullptr).resume();
    }
}

Task<void> wakes_the_other(Held held) {
    Turns turns;
    (void)co_await when_all(waits(held, turns), wakes(held, turns));
}

Task<void> sleeps(Held) {
    for (;;) (void)co_await sleep_for(1us);
}

constexpr MethodId no_method("test.None/None");

Task<void> calls(Held held) {
    for (;;) (void)co_await call(held.channel, no_method, {});
}

Task<void> beside_sleeps(Held held) { (void)co_await when_all(again<Yield>(held), sleeps(held)); }
Task<void> beside_calls(Held held) { (void)co_await when_all(again<Yield>(held), calls(held)); }

Task<void> offloads(Held held) {
    for (;;) {
        for (int i = 0; i < 50; ++i) (void)co_await once(held);
        const auto work = [] {};
        try {
            co_await offload(work);
        } catch (const std::exception&) {  // Dropped.
        }
    }
}

Task<void> works(Duration time) {
    const auto work = [time] { std::this_thread::sleep_for(time); };
    try {
        co_await offload(work);
    } catch (const std::exception&) {  // Dropped.
    }
}

Task<void> works_beside_two(Held held) {
    (void)co_await when_all(again<Yield>(held), again<Yield>(held), works(0ms), works(2ms));
}

Task<void> offloads_beside(Held held) { (void)co_await when_any(offloads(held), nested(held)); }

using Form = Task<void> (*)(Held);
const std::pair<const char*, Form> forms[] = {
    {"a class", again<Yield>},
    {"await_suspend with a bool", again<GiveWayIf>},
    {"await_suspend with a handle", again<GiveWayTo>},
    {"operator co_await", again<Wrapped>},
    {"nested tasks", nested},
    {"when_any anew", forks<true>},
    {"when_all anew", forks<false>},
    {"with_timeout anew", within_a_timeout},
    {"two beside each other", beside},
    {"one task wakes the other", wakes_the_other},
    {"beside sleeps", beside_sleeps},
    {"beside calls", beside_calls},
    {"offloaded work between", offloads},
    {"offloaded work beside", offloads_beside},
    {"offloaded work beside two", works_beside_two},
};

TEST_CASE("a task that yields for ever through the program's awaitables ends with its runtime") {
    for (const auto& [name, form] : forms) {
        for (const bool is_simulated : {false, true}) {
            INFO(name << ", " << is_simulated);
            const int before = open_files();
            std::weak_ptr<int> rounds;
            {
                SimRig rig;
                Runtime own = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
                Runtime& runtime = is_simulated ? rig.add("", {.log_level = LogLevel::off}) : own;
                Held held{
                    runtime.connect(is_simulated ? "sim://none" : "tcp://127.0.0.1:9").value()};
                rounds = held.rounds;
                runtime.spawn(form(held));
                for (int i = 0; i < 10; ++i) runtime.turn();
                CHECK(*held.rounds > 1);
            }
            CHECK(rounds.expired());
            CHECK(open_files() == before);
        }
    }
}

TEST_CASE("block_on() of a task that yields for ever ends with its runtime") {
    for (const auto& [name, form] : forms) {
        INFO(name);
        std::weak_ptr<int> rounds;
        auto runtime =
            std::make_unique<Runtime>(Runtime::create({.log_level = LogLevel::off}).value());
        std::thread waits;
        {
            Held held{runtime->connect("tcp://127.0.0.1:9").value()};
            rounds = held.rounds;
            waits = std::thread([of = runtime.get(), task = form(std::move(held))]() mutable {
                try {
                    of->block_on(std::move(task));
                } catch (const BadResult&) {  // Cancelled.
                }
            });
        }
        runtime->block_on(begun(rounds.lock()));
        runtime.reset();
        waits.join();
        CHECK(rounds.expired());
    }
}

// Another thread, which posts the coroutine that awaits it back to the executor `home`.
class OtherThread {
  public:
    explicit OtherThread(Executor& home) : home_(home), thread_([this] { run(); }) {}
    ~OtherThread() {
        {
            const std::lock_guard lock(mutex_);
            has_ended_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    // Requires: no coroutine awaits this object when it is destroyed.
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        const std::lock_guard lock(mutex_);
        waiting_ = awaiting;
        changed_.notify_one();
    }
    void await_resume() const {}

  private:
    void run() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return waiting_ || has_ended_; });
            if (!waiting_) return;
            const std::coroutine_handle<> awaiting = std::exchange(waiting_, nullptr);
            lock.unlock();
            home_.post([awaiting] { awaiting.resume(); });
            lock.lock();
        }
    }
    Executor& home_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::coroutine_handle<> waiting_;
    bool has_ended_ = false;
    std::thread thread_;
};

Task<void> by_another_thread(Held held, OtherThread& other, bool sleeps) {
    for (;;) {
        ++*held.rounds;
        co_await other;
        if (sleeps) (void)co_await sleep_for(1us);
    }
}

TEST_CASE("a task that the program's thread resumes for ever ends with its runtime") {
    for (const bool sleeps : {false, true}) {
        for (const bool is_manual : {false, true}) {
            INFO(sleeps << is_manual);
            std::optional<Runtime> runtime =
                Runtime::create({.log_level = LogLevel::off, .manual = is_manual}).value();
            Held held{runtime->connect("tcp://127.0.0.1:9").value()};
            const std::weak_ptr<int> rounds = held.rounds;
            const Channel kept = held.channel;
            OtherThread other(kept.executor());
            runtime->spawn(by_another_thread(std::move(held), other, sleeps));
            (void)runtime->block_on(begun(rounds.lock()));
            runtime.reset();
            // The task ends within late work of that thread, which runs for a while.
            while (!rounds.expired()) kept.executor().post([] {});
            CHECK(rounds.expired());
        }
    }
}

// Resumes after 1 ms of virtual time.
struct Pause {
    sim::Simulation& simulation;
    Executor& home;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) const {
        simulation.in(1ms, [awaiting, to = &home] { to->post([awaiting] { awaiting.resume(); }); });
    }
    void await_resume() const {}
};

Task<void> calls_and_pauses(Held held, sim::Simulation& simulation) {
    const Pause pause{simulation, held.channel.executor()};
    for (;;) {
        (void)co_await call(held.channel, no_method, {});
        co_await pause;
    }
}

// Resumes on `executor`: of a runtime that has ended, or of the task's own, which has not.
struct To {
    Executor& executor;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) const {
        executor.post([awaiting] { awaiting.resume(); });
    }
    void await_resume() const {}
};

Task<int> goes_there_and_back(Executor& there, Executor& home) {
    int rounds = 0;
    for (; rounds < 3000; ++rounds) {
        const To away{there}, back{home};
        co_await away;
        co_await back;
    }
    co_return rounds;
}

TEST_CASE("a task of a live runtime continues after steps on an ended runtime") {
    Runtime home = Runtime::create({.log_level = LogLevel::off}).value();
    std::optional<Runtime> other = Runtime::create({.log_level = LogLevel::off}).value();
    const Channel kept = other->connect("tcp://127.0.0.1:9").value();
    other.reset();
    CHECK(home.block_on(goes_there_and_back(kept.executor(), home.executor())) == 3000);
}

Task<int> goes_there(Executor& there, Executor& home, std::shared_ptr<int> held) {
    const To away{there}, back{home};
    for (int round = 0; round < 3000; ++round) co_await away;
    co_await back;
    co_return *held;
}

Task<void> all_of(Executor& there, Executor& home, std::shared_ptr<int> held) {
    std::vector<Task<int>> two;
    two.push_back(goes_there(there, home, std::move(held)));
    two.push_back([]() -> Task<int> { co_return 1; }());
    co_await when_all(std::move(two));
}

Task<void> in_time(Executor& there, Executor& home, std::shared_ptr<int> held) {
    (void)co_await with_timeout(10s, goes_there(there, home, std::move(held)));
}

TEST_CASE("a task of a live runtime is not destroyed in a turn that runs a part of it") {
    Runtime home = Runtime::create({.log_level = LogLevel::off}).value();
    std::optional<Runtime> other = Runtime::create({.log_level = LogLevel::off}).value();
    const Channel kept = other->connect("tcp://127.0.0.1:9").value();
    other.reset();
    for (const auto form : {&all_of, &in_time}) {
        auto held = std::make_shared<int>(7);
        std::weak_ptr<int> left = held;
        try {
            home.block_on(form(kept.executor(), home.executor(), std::move(held)));
            FAIL("late work ran more often than its limit");
        } catch (const BadResult& ended) {
            CHECK(ended.status().code() == Code::cancelled);
            CHECK(ended.status().text().find("which has ended, resumed the task") !=
                  std::string_view::npos);
        }
        CHECK(left.expired());
        CHECK(home.block_on([]() -> Task<int> { co_return 3; }()) == 3);
    }
}

TEST_CASE("simulation: tasks that await virtual time themselves end after their host") {
    sim::Simulation simulation(1);
    std::vector<std::weak_ptr<int>> all;
    simulation.add("a",
                   [&](Runtime& runtime) {
                       Held held{runtime.connect("sim://b").value()};
                       all.push_back(held.rounds);
                       runtime.spawn(calls_and_pauses(std::move(held), simulation));
                       return std::shared_ptr<void>();
                   },
                   {.log_level = LogLevel::off});
    for (int i = 0; i < 20; ++i) {
        simulation.run_for(5ms);
        simulation.crash("a");
        simulation.start("a");
    }
    simulation.crash("a");
    simulation.run_for(5s);
    for (const auto& rounds : all) CHECK(rounds.expired());
}

TEST_CASE("simulation: tasks that yield for ever end with each crash of their host") {
    for (const auto& [name, form] : forms) {
        INFO(name);
        sim::Simulation simulation(1);
        std::vector<std::weak_ptr<int>> all;
        simulation.add("a",
                       [&all, form = form](Runtime& runtime) {
                           Held held{runtime.connect("sim://b").value()};
                           all.push_back(held.rounds);
                           runtime.spawn(form(held));
                           return std::shared_ptr<void>();
                       },
                       {.log_level = LogLevel::off});
        const int before = open_files();
        for (int i = 0; i < 5; ++i) {
            simulation.run_for(10us);
            CHECK(*all.back().lock() > 1);
            simulation.crash("a");
            CHECK(all.back().expired());
            simulation.start("a");
        }
        CHECK(open_files() <= before);
    }
}

}  // namespace
}  // namespace weft::foreign_end_test
