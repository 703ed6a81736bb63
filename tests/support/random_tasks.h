// Random programs of coroutines: a seed decides calls, sleeps, offloaded work and concurrent tasks,
// through the runtime that they run on and through others.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <weft/combine.h>
#include <weft/offload.h>

#include "base/random.h"
#include "support/awaited.h"
#include "support/owned_coroutine.h"

namespace weft::test::random_tasks {

struct Chance {
    std::uint64_t seed;
    std::uint64_t next() {
        base::SeededRandom random(seed);
        return seed = random.next();
    }
    std::uint64_t below(std::uint64_t limit) { return next() % limit; }
    Duration up_to(Duration limit) {
        return Duration(
            static_cast<Duration::rep>(below(static_cast<std::uint64_t>(limit.count()))));
    }
    Chance fork() { return {next()}; }
};

// The targets reachable through one runtime: a channel to each server, and a group of all.
struct Ways {
    std::vector<Channel> channels;
    Group group;
    Channel channel(Chance& chance) const {
        return channels.empty() ? Channel() : channels[chance.below(channels.size())];
    }
};

// The state shared by a whole run.
struct Run {
    // A local of a coroutine, to check that it is destroyed once.
    struct Local {
        explicit Local(Run& of) : run(of) { ++run.alive; }
        Local(const Local&) = delete;
        ~Local() {
            if (std::exchange(is_alive, false)) {
                --run.alive;
            } else {
                ++run.destroyed_twice;
            }
        }
        Run& run;
        bool is_alive = true;
    };

    // Of any runtime, live or ended; empty when there is none.
    Channel any_channel(Chance& chance) {
        const std::lock_guard lock(mutex);
        return ways[chance.below(ways.size())].channel(chance);
    }
    Group any_group(Chance& chance) {
        const std::lock_guard lock(mutex);
        return ways[chance.below(ways.size())].group;
    }
    void set_ways(std::size_t of, Ways now) {
        const std::lock_guard lock(mutex);
        passed.push_back(std::exchange(ways[of], std::move(now)));
    }

    std::atomic<long> alive{0}, destroyed_twice{0}, steps{0};
    std::atomic<int> handlers{0};
    std::mutex mutex;
    std::array<Ways, 3> ways;
    std::vector<Ways> passed;  // Of runtimes that have ended.
};

// The place in which coroutines run: a runtime, or a life of a simulated host.
struct Place {
    Run& run;
    Ways ways{};
    std::function<void(Task<void>)> spawn{};
    std::function<void(Chance&)> fault = [](Chance&) {};
    std::array<OwnedCoroutine, 8> owned{};
    // Awaited here, and replaced or destroyed by any other coroutine.
    std::array<std::unique_ptr<Sleep>, 4> sleeps{};
    std::array<std::optional<Task<Status>>, 4> kept{};
};
using At = std::shared_ptr<Place>;

// A program's own awaitable: posts itself to its executor, and may be destroyed before it runs.
struct Hop {
    Hop() = default;
    Hop(const Hop&) = delete;
    ~Hop() { *waiting = nullptr; }
    struct Awaiter {
        explicit Awaiter(Hop& of) : hop(of) {}
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiting) {
            *hop.waiting = awaiting;
            Executor::current()->post([waiting = hop.waiting] {
                if (*waiting) std::exchange(*waiting, nullptr).resume();
            });
        }
        void await_resume() const {}
        Hop& hop;
    };
    Awaiter operator co_await() { return Awaiter(*this); }
    std::shared_ptr<std::coroutine_handle<>> waiting = std::make_shared<std::coroutine_handle<>>();
};

enum class Method : std::uint8_t { now, later, held };

inline Task<int> call(Run& run, Channel channel, Method method, Duration timeout) {
    const Run::Local local(run);
    if (!channel) co_return -1;
    const echo::v1::EchoClient stub(channel);
    const echo::v1::EchoRequest request = request_of("x");
    const CallOptions options{.timeout = timeout};
    Status status;
    if (method == Method::now) {
        status = (co_await stub.Now(request, options)).status();
    } else if (method == Method::later) {
        status = (co_await stub.Later(request, options)).status();
    } else {
        status = (co_await stub.Held(request, options)).status();
    }
    co_return status.ok() ? 1 : 0;
}

inline Task<int> tasks(At at, Chance chance, int depth);

// Destroyed by its handle, whether it waits or not.
inline OwnedCoroutine owned_tasks(Place& at, Chance chance) {
    const Run::Local local(at.run);
    for (int i = 0; i < 3; ++i) {
        try {
            const Channel own = at.ways.channel(chance), any = at.run.any_channel(chance);
            switch (chance.below(4)) {
                case 0: (void)co_await sleep_for(chance.up_to(3ms)); break;
                case 1: (void)co_await call(at.run, own, Method::later, 5ms); break;
                case 2: (void)co_await call(at.run, any, Method::held, 5ms); break;
                default: {
                    auto one = call(at.run, own, Method::held, 50ms);
                    auto other = call(at.run, any, Method::held, 50ms);
                    (void)co_await when_any(std::move(one), std::move(other));
                }
            }
        } catch (const std::exception&) {  // The exception of dropped work.
        }
    }
}

inline Task<void> root(At at, Chance chance) {
    const Run::Local local(at->run);
    const auto depth = static_cast<int>(1 + chance.below(5));
    if (chance.below(4) == 0) {
        (void)co_await tasks(at, chance.fork(), depth);
    } else {
        try {
            (void)co_await tasks(at, chance.fork(), depth);
        } catch (const std::exception&) {
        }
    }
}

inline Task<int> beside_each_other(At at, Chance chance, int depth) {
    const Run::Local local(at->run);
    std::vector<Task<int>> some;
    const std::uint64_t number = 1 + chance.below(4);
    for (std::uint64_t i = 0; i < number; ++i) some.push_back(tasks(at, chance.fork(), depth));
    if (chance.below(2) == 0) {
        auto first = co_await when_any(std::move(some));
        co_return first.value();
    }
    const std::vector<int> all = co_await when_all(std::move(some));
    co_return all.front();
}

inline Task<int> until_it_works(At at, Chance chance, int depth) {
    const Run::Local local(at->run);
    for (int i = 0; i < 1'000'000; ++i) {
        try {
            const int value = co_await tasks(at, chance.fork(), depth);
            if (value > 3) break;
        } catch (const std::exception&) {
        }
    }
    co_return 1;
}

inline Task<Status> sleep(Run& run, Duration time) {
    const Run::Local local(run);
    co_return co_await sleep_for(time);
}

inline Task<int> wait(At at, Chance chance) {
    const Run::Local local(at->run);
    const Duration some = chance.up_to(chance.below(8) == 0 ? 100ms : 3ms);
    const Channel own = at->ways.channel(chance), any = at->run.any_channel(chance);
    Status status;
    switch (chance.below(16)) {
        case 0: status = co_await sleep_for(some); break;
        case 1: co_return co_await call(at->run, own, Method::now, some);
        case 2: co_return co_await call(at->run, own, Method::later, 50ms);
        case 3: co_return co_await call(at->run, own, Method::held, some);
        case 4: co_return co_await call(at->run, any, Method::now, some);
        case 5: co_return co_await call(at->run, any, Method::later, some);
        case 6: co_return co_await call(at->run, any, Method::held, some);
        case 7: status = co_await awaited::get(own, some); break;
        case 8:
            if (any) status = co_await awaited::put(any, some);
            break;
        case 9: {
            const auto work = [&chance] {
                if (chance.below(8) == 0) throw std::runtime_error("offloaded");
            };
            co_await offload(work);
            break;
        }
        case 10: {
            Hop hop;
            co_await hop;
            break;
        }
        case 11: status = co_await awaited::collective(at->ways.group, some); break;
        case 12: {
            const Group group = at->run.any_group(chance);
            if (group) status = co_await awaited::collective(group, some);
            break;
        }
        case 13: {
            std::unique_ptr<Sleep>& kept = at->sleeps[chance.below(at->sleeps.size())];
            std::unique_ptr<Sleep> made(new Sleep(sleep_for(some)));
            kept = std::move(made);
            status = co_await *kept;
            break;
        }
        case 14: {
            std::optional<Task<Status>>& kept = at->kept[chance.below(at->kept.size())];
            kept.emplace(sleep(at->run, some));
            status = co_await *kept;
            break;
        }
        default: throw std::runtime_error("on purpose");
    }
    co_return status.ok() ? 1 : 0;
}

inline Task<int> step(At at, Chance chance, int depth) {
    const Run::Local local(at->run);
    ++at->run.steps;
    OwnedCoroutine& owned = at->owned[chance.below(at->owned.size())];
    switch (chance.below(depth > 0 ? 14 : 6)) {
        case 0: owned = owned_tasks(*at, chance.fork()); break;
        case 1: owned.destroy(); break;
        case 2:
            if (chance.below(8) == 0) at->fault(chance);
            break;
        case 3:
            at->sleeps[chance.below(at->sleeps.size())].reset();
            at->kept[chance.below(at->kept.size())].reset();
            break;
        case 6:
        case 7: co_return co_await beside_each_other(at, chance.fork(), depth - 1);
        case 8: {
            const Result<int> value =
                co_await with_timeout(chance.up_to(3ms), tasks(at, chance.fork(), depth - 1));
            co_return value ? *value : -1;
        }
        case 9: co_return co_await until_it_works(at, chance.fork(), depth - 1);
        case 10:
            if (chance.below(3) == 0 && at->run.alive < 1000) at->spawn(root(at, chance.fork()));
            break;
        case 11: {
            Task<int> kept = tasks(at, chance.fork(), depth - 1);
            if (chance.below(2) == 0) break;
            const int value = co_await kept;
            kept = Task<int>();
            co_return value;
        }
        default: co_return co_await wait(at, chance.fork());
    }
    co_return 1;
}

inline Task<int> tasks(At at, Chance chance, int depth) {
    const Run::Local local(at->run);
    int sum = 0;
    const std::uint64_t number = 1 + chance.below(3);
    for (std::uint64_t i = 0; i < number; ++i) {
        if (chance.below(3) == 0) {
            try {
                sum += co_await step(at, chance.fork(), depth);
            } catch (const std::exception&) {
                --sum;
            }
        } else {
            sum += co_await step(at, chance.fork(), depth);
        }
    }
    co_return sum;
}

// A service with handlers that run such tasks.
struct TaskServer : EchoServer {
    Task<Status> Later(Call&, const Request&, Reply& out) override {
        const Run::Local local(at->run);
        const At here = at;
        ++here->run.handlers;
        if (here->run.handlers < 20) (void)co_await tasks(here, chance.fork(), 2);
        --here->run.handlers;
        out.set_text("later");
        co_return Status();
    }
    At at;
    Chance chance{1};
};

}  // namespace weft::test::random_tasks
