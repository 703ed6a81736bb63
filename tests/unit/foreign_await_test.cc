// What a task awaits that is the program's own: every form of it, and its end with its runtime.
#include <functional>
#include <memory>
#include <stdexcept>
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
#include "support/sim_rig.h"

namespace weft::foreign_await_test {
namespace {

using namespace weft::test;

void resume_soon(std::coroutine_handle<> awaiting) {
    Executor::current()->post([awaiting] { awaiting.resume(); });
}

// ---- forms --------------------------------------------------------------------------------------

const std::string text = "a text that is too long to be kept in place";

// In place, with what has to be destroyed once.
class Fixed {
  public:
    explicit Fixed(std::string of) : text_(std::make_unique<std::string>(std::move(of))) {}
    Fixed(const Fixed&) = delete;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { resume_soon(awaiting); }
    std::string& await_resume() { return *text_; }

  private:
    std::unique_ptr<std::string> text_;
};

// Goes on at once; its result can only be moved.
class Taken {
  public:
    explicit Taken(int value) : value_(std::make_unique<int>(value)) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<>) const { return false; }
    std::unique_ptr<int> await_resume() { return std::move(value_); }

  private:
    std::unique_ptr<int> value_;
};

struct Transfers {
    bool await_ready() const { return false; }
    template <class Promise>
    std::coroutine_handle<Promise> await_suspend(std::coroutine_handle<Promise> self) const {
        return self;
    }
    int await_resume() const { return 3; }
};

class OnlyTemporary {
  public:
    explicit OnlyTemporary(std::string of) : text_(std::move(of)) {}
    Fixed operator co_await() && { return Fixed(std::move(text_)); }

  private:
    std::string text_;
};

class ByReference {
  public:
    Fixed& operator co_await() { return fixed_; }

  private:
    Fixed fixed_{text};
};

class Free {
  public:
    explicit Free(std::string of) : text_(std::move(of)) {}
    friend Fixed operator co_await(const Free& free) { return Fixed(free.text_); }

  private:
    std::string text_;
};

// Found only where the program looks, since its argument is nothing of the program's.
Taken operator co_await(Duration time) { return Taken(static_cast<int>(time / 1ms)); }

enum class Where : std::uint8_t { ready, suspend, resume };

struct Throws {
    Where where;
    bool await_ready() const {
        return where == Where::ready ? throw std::runtime_error("") : false;
    }
    void await_suspend(std::coroutine_handle<> awaiting) const {
        if (where == Where::suspend) throw std::runtime_error("");
        resume_soon(awaiting);
    }
    void await_resume() const { throw std::runtime_error(""); }
};

Fixed made_of(const std::string& of) { return Fixed(of + "!"); }

Task<int> temporaries() {
    int right = 0;
    std::string got = co_await Fixed(text);
    right += got == text;
    got = co_await made_of(text + text);
    right += got == text + text + "!";
    const std::unique_ptr<int> five = co_await Taken(5);
    right += *five == 5;
    const int three = co_await Transfers();
    right += three == 3;
    got = co_await OnlyTemporary(text);
    right += got == text;
    got = co_await ByReference();
    right += got == text;
    got = co_await Free(text);
    right += got == text;
    const std::unique_ptr<int> nine = co_await Duration(9ms);
    right += *nine == 9;
    co_return right;
}

Task<int> variables() {
    int right = 0;
    Fixed fixed(text);
    std::string* const one = &co_await fixed;
    std::string* const other = &co_await std::move(fixed);
    right += one == other && *one == text;
    const auto pointer = std::make_unique<Fixed>(text);
    right += &co_await *pointer == &co_await *pointer;
    Taken taken(6);
    const std::unique_ptr<int> six = co_await taken, none = co_await taken;
    right += *six == 6 && !none;
    OnlyTemporary moved(text);
    right += co_await std::move(moved) == text;
    ByReference by_reference;
    right += &co_await by_reference == &co_await by_reference;
    const Free free(text);
    right += co_await free == text;
    const Transfers transfers;
    right += co_await transfers == 3;
    co_return right;
}

Task<int> thrown() {
    int caught = 0;
    for (const Where where : {Where::ready, Where::suspend, Where::resume}) {
        const Throws throws{where};
        try {
            co_await throws;
        } catch (const std::runtime_error&) {
            ++caught;
        }
    }
    co_return caught;
}

TEST_CASE("a task awaits every form of awaitable of a program's own, where it was made") {
    Runtime runtime = Runtime::create().value();
    CHECK(runtime.block_on(temporaries()) == 8);
    CHECK(runtime.block_on(variables()) == 7);
    CHECK(runtime.block_on(thrown()) == 3);
}

// ---- ends ---------------------------------------------------------------------------------------

// What each coroutine holds: a part of its runtime.
struct Held {
    Channel channel;
    std::shared_ptr<int> rounds = std::make_shared<int>(0);
};

struct GiveWay {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) const { resume_soon(awaiting); }
    void await_resume() const {}
};

// May be destroyed meanwhile.
class GiveWayOrGo {
  public:
    GiveWayOrGo() = default;
    GiveWayOrGo(const GiveWayOrGo&) = delete;
    ~GiveWayOrGo() { *waiting_ = nullptr; }
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
    GiveWay operator co_await() const { return {}; }
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
    co_await GiveWayOrGo();
    co_return 1;
}

Task<void> begun(std::shared_ptr<int> rounds) {
    while (*rounds == 0) co_await GiveWay();
}

Task<void> nested(Held held) {
    for (;;) (void)co_await once(held);
}

// The one begins to wait within the other's start.
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

Task<void> beside(Held held) {
    (void)co_await when_any(again<GiveWay>(held), again<Wrapped>(held));
}

// Resumes the other one in the middle of itself.
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

Task<void> waits(Held held, Turns& turns) {
    const Held own = held;
    for (;;) {
        Turns::Next next(turns);
        co_await next;
    }
}

Task<void> wakes(Held held, Turns& turns) {
    for (;;) {
        ++*held.rounds;
        co_await GiveWay();
        if (turns.waiting) std::exchange(turns.waiting, nullptr).resume();
    }
}

Task<void> wakes_the_other(Held held) {
    Turns turns;
    (void)co_await when_all(waits(held, turns), wakes(held, turns));
}

Task<void> sleeps(Held held) {
    const Held own = held;
    for (;;) (void)co_await sleep_for(1us);
}

constexpr MethodId no_method("test.None/None");

Task<void> calls(Held held) {
    for (;;) (void)co_await call(held.channel, no_method, {});
}

Task<void> beside_sleeps(Held held) { (void)co_await when_all(again<GiveWay>(held), sleeps(held)); }
Task<void> beside_calls(Held held) { (void)co_await when_all(again<GiveWay>(held), calls(held)); }

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

Task<void> offloads_beside(Held held) { (void)co_await when_any(offloads(held), nested(held)); }

using Form = Task<void> (*)(Held);
const std::pair<const char*, Form> forms[] = {
    {"a class", again<GiveWay>},
    {"one that may go on at once", again<GiveWayIf>},
    {"one that transfers", again<GiveWayTo>},
    {"operator co_await", again<Wrapped>},
    {"a task that does", nested},
    {"when_any anew", forks<true>},
    {"when_all anew", forks<false>},
    {"with_timeout anew", within_a_timeout},
    {"two beside each other", beside},
    {"one that wakes the other", wakes_the_other},
    {"beside sleeps", beside_sleeps},
    {"beside calls", beside_calls},
    {"offloaded work between", offloads},
    {"offloaded work beside", offloads_beside},
};

TEST_CASE("a task that gives way for ever by the program's own awaitable ends with its runtime") {
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

TEST_CASE("a thread that waits in block_on() for such a task goes on when its runtime ends") {
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

TEST_CASE("simulation: such tasks end when their host crashes, however often") {
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
}  // namespace weft::foreign_await_test
