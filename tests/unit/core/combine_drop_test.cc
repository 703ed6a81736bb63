// Dropped tasks, where the end of one resumes another: in each order, by each way to drop them, and
// for each next step of the resumed task.
#include <algorithm>
#include <coroutine>
#include <memory>

#include <weft/offload.h>

#include "support/combined.h"
#include "support/owned_coroutine.h"

namespace combine_test {

// A lock that tasks wait for: unlock() resumes the next task inside itself. A waiting task may be
// destroyed.
class Lock {
  public:
    struct Unlock {
        void operator()(Lock* lock) const { lock->unlock(); }
    };
    using Held = std::unique_ptr<Lock, Unlock>;
    class Waiting {
      public:
        explicit Waiting(Lock& lock) : lock_(lock) {}
        Waiting(const Waiting&) = delete;
        ~Waiting() { std::erase(lock_.waiting_, this); }
        bool await_ready() { return !std::exchange(lock_.is_taken_, true); }
        void await_suspend(std::coroutine_handle<> awaiting) {
            awaiting_ = awaiting;
            lock_.waiting_.push_back(this);
        }
        Held await_resume() { return Held(&lock_); }

      private:
        friend Lock;
        Lock& lock_;
        std::coroutine_handle<> awaiting_;
    };
    Waiting take() { return Waiting(*this); }
    bool is_taken() const { return is_taken_; }

  private:
    void unlock() {
        if (waiting_.empty()) {
            is_taken_ = false;
            return;
        }
        const std::coroutine_handle<> next = waiting_.front()->awaiting_;
        waiting_.erase(waiting_.begin());
        next.resume();
    }
    std::vector<Waiting*> waiting_;
    bool is_taken_ = false;
};

// The next step of a task that has the lock.
enum class Then { end, throws, sleeps, offloads, combines };

struct Dropped {
    Bench bench;
    Lock lock;
    Then then = Then::end;
    int resumed = 0;    // Tasks that got the lock by the end of another.
    int offloaded = 0;  // Work that has begun.
};

Task<int> works(Dropped& all) {
    const auto work = [&all] { return ++all.offloaded; };
    co_return co_await offload(work);
}

Task<int> goes_on(Dropped& all) {
    const Alive local(all.bench.alive);
    if (all.then == Then::throws) throw std::runtime_error("resumed");
    if (all.then == Then::sleeps) (void)co_await sleep_for(1ms);
    if (all.then == Then::offloads) co_return co_await works(all);
    if (all.then == Then::combines) {
        (void)co_await when_any(with_timeout(1ms, works(all)),
                                with_timeout(1h, value_after(1h, 1, all.bench)));
    }
    co_return 1;
}

// Holds the lock and does not end; or waits for it.
Task<int> member(Dropped& all, bool has_lock) {
    const Alive local(all.bench.alive);
    if (!has_lock) (void)co_await sleep_for(1ms);
    const Lock::Held held = co_await all.lock.take();
    if (has_lock) co_await std::suspend_always();
    ++all.resumed;
    co_return co_await goes_on(all);
}

constexpr int members = 3;

// Awaits a task that waits for the lock; the awaiting coroutine releases the lock first.
Task<int> awaits(Dropped& all) {
    const Alive local(all.bench.alive);
    auto task = member(all, false);
    const Lock::Held held = co_await all.lock.take();
    const int value = co_await task;
    all.bench.ended.push_back("awaited");
    co_return value;
}

constexpr int shapes = 7;

Task<int> combined(Dropped& all, int shape, int holder) {
    const Alive local(all.bench.alive);
    const auto at = [&](int i) { return member(all, i == holder); };
    std::vector<Task<int>> tasks;
    const bool is_vector = shape % 2 == 0;
    for (int i = 0; i < members && is_vector; ++i) tasks.push_back(at(i));
    if (shape == 0) co_return (co_await when_all(std::move(tasks))).front();
    if (shape == 1) co_return (co_await when_all(at(0), at(1), at(2))).get<0>();
    if (shape == 2) co_return (co_await when_any(std::move(tasks))).value();
    if (shape == 3) co_return (co_await when_any(at(0), at(1), at(2))).value();
    if (shape == 4) {
        auto both = co_await when_all(with_timeout(1h, when_any(std::move(tasks))), awaits(all));
        co_return both.get<1>();
    }
    if (shape == 5) {
        auto any =
            co_await when_any(with_timeout(1h, at(0)), with_timeout(1h, with_timeout(1h, at(1))),
                              with_timeout(1h, at(2)));
        co_return any.value().value();
    }
    auto some = when_all(std::move(tasks));
    co_return (co_await some).back();
}

Task<int> quick(Dropped& all) { co_return co_await value_after(5ms, 7, all.bench); }

OwnedCoroutine own(Task<int> task) {
    try {
        (void)co_await task;
    } catch (const std::exception&) {
    }
}

enum class Drop { by_time, by_another, by_its_owner, after_its_runtime };

// Drops the task that `make` returns, after 5 ms.
template <class Make>
void drop(Dropped& all, Drop how, Make make) {
    Alone alone;
    if (how == Drop::by_time) {
        CHECK(alone.run(with_timeout(5ms, make())).status().code() == Code::deadline_exceeded);
    } else if (how == Drop::by_another) {
        CHECK(alone.run(when_any(make(), quick(all))).value() == 7);
    } else {
        OwnedCoroutine coroutine;
        alone.runtime.executor().post([&] { coroutine = own(make()); });
        alone.rig.run_for(5ms);
        if (how == Drop::after_its_runtime) {
            alone.rig.runtimes.pop_back();
            coroutine.destroy();
        } else {
            alone.runtime.executor().post([&] { coroutine.destroy(); });
            alone.rig.run_for(1ms);
        }
    }
    if (!alone.rig.runtimes.empty()) {
        alone.rig.run_for(1s);
        CHECK(node_of(alone.runtime).context.timers().armed() == 0);
    }
    CHECK(all.bench.alive == 0);
    CHECK_FALSE(all.lock.is_taken());
}

constexpr Then each_then[] = {Then::end, Then::throws, Then::sleeps, Then::offloads,
                              Then::combines};
constexpr Drop each_drop[] = {Drop::by_time, Drop::by_another, Drop::by_its_owner,
                              Drop::after_its_runtime};

TEST_CASE("combined tasks are dropped in each order when the end of one resumes another") {
    for (int shape = 0; shape < shapes; ++shape) {
        int resumed = 0;
        for (int holder = 0; holder < members; ++holder) {
            for (const Then then : each_then) {
                for (const Drop how : each_drop) {
                    CAPTURE(shape, holder, then, how);
                    Dropped all;
                    all.then = then;
                    drop(all, how, [&] { return combined(all, shape, holder); });
                    // A dropped task begins no work. When limits end with their runtime, each one
                    // drops its own task.
                    const bool one_by_one = shape == 5 && how == Drop::after_its_runtime;
                    if (!one_by_one) CHECK(all.offloaded == 0);
                    resumed += all.resumed;
                }
            }
        }
        CHECK(resumed > 0);
    }
}

TEST_CASE("a dropped coroutine is not resumed when its awaited task ends") {
    for (const Then then : each_then) {
        for (const Drop how : each_drop) {
            CAPTURE(then, how);
            const bool is_in_a_branch = how == Drop::by_time || how == Drop::by_another;
            // Otherwise its work is running when it is destroyed, which ends the program.
            const bool has_work = then == Then::offloads || then == Then::combines;
            if (has_work && !is_in_a_branch) continue;
            Dropped all;
            all.then = then;
            drop(all, how, [&] { return awaits(all); });
            CHECK(all.resumed == 1);
            CHECK(all.offloaded == 0);
            CHECK(std::count(all.bench.ended.begin(), all.bench.ended.end(), "awaited") == 0);
        }
    }
}

TEST_CASE("when_any: a task resumed by another's end begins nothing when both are dropped") {
    for (int holder = 0; holder < members - 1; ++holder) {
        CAPTURE(holder);
        Alone alone;
        Dropped all;
        all.then = Then::offloads;
        const auto at = [&](int i) { return member(all, i == holder); };
        CHECK(alone.run(when_any(at(0), at(1), quick(all), at(2))).index() == 2);
        CHECK(all.resumed > 0);
        CHECK(all.offloaded == 0);
        CHECK(all.bench.alive == 0);
    }
}

Task<void> holds_for_ever(Dropped& all) {
    const Alive local(all.bench.alive);
    const Lock::Held held = co_await all.lock.take();
    while (true) (void)co_await sleep_for(1ms);
}

Task<void> race(Dropped& all, bool& has_ended) {
    (void)co_await when_any(member(all, false), member(all, false));
    has_ended = true;
}

// The first task ends in the destructor of the lock's holder, and the second one within the first.
TEST_CASE("when_any: tasks end within each other when the runtime destroys their lock's holder") {
    Dropped all;
    bool has_ended = false;
    {
        Alone alone;
        alone.runtime.spawn(holds_for_ever(all));
        alone.rig.run_for(1ms);
        alone.runtime.spawn(race(all, has_ended));
        alone.rig.run_for(5ms);
        CHECK(all.bench.alive == 3);
    }
    CHECK(all.resumed == 2);
    CHECK(all.bench.alive == 0);
    CHECK_FALSE(all.lock.is_taken());
}

}  // namespace combine_test
