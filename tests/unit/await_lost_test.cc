// Where a task goes on whose operation or task was destroyed while it awaited that.
#include <weft/combine.h>
#include <weft/sim.h>

#include <optional>
#include <vector>

#include "support/child.h"
#include "support/echo.h"
#include "support/gate.h"
#include "support/open_files.h"
#include "support/owned_coroutine.h"
#include "support/patience.h"

namespace await_lost_test {

using namespace weft;
using namespace weft::test;

// Knows when nothing waits there any more.
struct LeavableGate {
    std::coroutine_handle<> waiting;
    struct Awaiter {
        explicit Awaiter(LeavableGate& at) : gate(at) {}
        Awaiter(const Awaiter&) = delete;
        ~Awaiter() {
            if (is_waiting) gate.waiting = nullptr;
        }
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiting) {
            gate.waiting = awaiting;
            is_waiting = true;
        }
        void await_resume() { is_waiting = false; }
        LeavableGate& gate;
        bool is_waiting = false;
    };
    Awaiter operator co_await() { return Awaiter(*this); }
    void release() {
        if (waiting) std::exchange(waiting, nullptr).resume();
    }
};

Task<Status> sleep_long() { co_return co_await sleep_for(1h); }

// Handlers whose operation or task is destroyed while they await it.
struct Losing : EchoServer {
    Task<Status> Later(Call&, const Request& in, Reply&) override {
        Status lost;
        Executor* const here = Executor::current();
        if (in.text() == "task") {
            task.emplace(sleep_long());
            here->post([this] { task.reset(); });
            lost = co_await *task;
        } else {
            std::unique_ptr<Sleep> made(new Sleep(sleep_for(1h)));
            sleep = std::move(made);
            here->post([this] { sleep.reset(); });
            lost = co_await *sleep;
        }
        CHECK(lost.code() == Code::cancelled);
        after = (co_await sleep_for(1h)).code();
        co_return Status();
    }
    std::unique_ptr<Sleep> sleep;
    std::optional<Task<Status>> task;
    std::optional<Code> after;
};

TEST_CASE("what goes on after its operation was destroyed is in the call that it serves still") {
    const std::string kind = GENERATE(as<std::string>(), "task", "operation");
    INFO(kind);
    Losing service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    REQUIRE(server.add(service).ok());
    const Channel channel = client.connect("sim://server").value();
    std::optional<Status> ended;
    echo::v1::EchoClient(channel).Later(
        request_of(kind), {.timeout = 50ms},
        [&](const Status& status, const EchoServer::Reply&) { ended = status; });
    rig.run_for(200ms);
    CHECK(service.after == Code::deadline_exceeded);
    CHECK(ended->code() == Code::deadline_exceeded);
}

// ---- in no other life of its host ---------------------------------------------------------------

// What lives outside of a simulated host, and outlives it.
struct Device {
    Gate gate;
    std::optional<Task<Status>> task;
};

template <class AnyGate>
Task<Status> wait_at(AnyGate& gate) {
    co_await gate;
    co_return Status();
}

Task<void> use(Device& device, [[maybe_unused]] Channel channel, int& alive, Status& last) {
    const Alive local(alive);
    last = co_await *device.task;
}

TEST_CASE("what awaits a task of longer life ends with its host, and goes on in no later life") {
    const bool in_turn = GENERATE(false, true);
    const bool keeps_channel = GENERATE(false, true);
    CAPTURE(in_turn, keeps_channel);
    int alive = 0;
    Status last;
    std::vector<std::unique_ptr<Device>> devices;
    sim::Simulation simulation(1);
    simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
        Device& device = *devices.emplace_back(std::make_unique<Device>());
        device.task.emplace(wait_at(device.gate));
        // A channel keeps what is left of the ended runtime.
        Channel channel = keeps_channel ? runtime.connect("sim://none").value() : Channel();
        runtime.spawn(use(device, std::move(channel), alive, last));
        return nullptr;
    });
    constexpr int lives = 20;
    for (int life = 1; life <= lives; ++life) {
        simulation.run_for(1ms);
        CHECK(alive == 1);
        simulation.crash("host");
        CHECK(alive == 0);
        CHECK(last.code() == Code::cancelled);
        CHECK(last.text().find("the runtime is shutting down") != last.text().npos);
        CHECK(last.effect() == Effect::unknown);
        last = Status();
        simulation.run_for(1ms);
        simulation.start("host");
        simulation.run_for(1ms);
        const auto lose = [&] { devices[devices.size() - 2]->task.reset(); };
        in_turn ? simulation.act_as("host", lose) : lose();
        simulation.run_for(1ms);
        CHECK(last.ok());
    }
    devices.back()->task.reset();
    simulation.run_for(1ms);
    CHECK(last.text().find("destroyed") != last.text().npos);
    CHECK(alive == 0);
}

// What a host keeps: the last of them is destroyed first. A gate that goes resumes what waits
// there.
struct ClosingGate : LeavableGate {
    ~ClosingGate() { release(); }
};
struct Kept {
    Gate first_gate, second_gate;
    std::optional<Task<Status>> first = wait_at(first_gate), second = wait_at(second_gate);
    ClosingGate closing;
};

Task<int> await_kept(std::optional<Task<Status>>& task, int& alive) {
    const Alive local(alive);
    (void)co_await *task;
    co_return 1;
}

enum class Beside { another, closing, nested };

Task<int> await_closing(Kept& kept, int& alive) {
    const Alive local(alive);
    co_await kept.closing;
    kept.first.reset();
    co_return 2;
}

Task<int> nested(Kept& kept, int& alive) {
    const Alive local(alive);
    (void)co_await with_timeout(1h, await_kept(kept.second, alive));
    co_return 2;
}

Task<void> use_kept(Kept& kept, Channel channel, Beside beside, bool of_all, int& alive) {
    const Alive local(alive);
    const Channel own = std::move(channel);
    auto one = await_kept(kept.first, alive);
    Task<int> two;
    switch (beside) {
        case Beside::another: two = await_kept(kept.second, alive); break;
        case Beside::closing: two = await_closing(kept, alive); break;
        case Beside::nested: two = nested(kept, alive); break;
    }
    if (of_all) {
        (void)co_await when_all(std::move(one), std::move(two));
    } else {
        (void)co_await when_any(std::move(one), std::move(two));
    }
}

TEST_CASE("tasks beside each other that await what their crashed host keeps are gone with it") {
    const Beside beside = GENERATE(Beside::another, Beside::closing, Beside::nested);
    const bool keeps_channel = GENERATE(false, true);
    const bool of_all = GENERATE(false, true);
    CAPTURE(static_cast<int>(beside), keeps_channel, of_all);
    int alive = 0, alive_first = 0;
    sim::Simulation simulation(1);
    simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
        auto kept = std::make_shared<Kept>();
        Channel channel = keeps_channel ? runtime.connect("sim://host").value() : Channel();
        runtime.spawn(use_kept(*kept, std::move(channel), beside, of_all, alive));
        return kept;
    });
    simulation.run_for(1ms);
    alive_first = alive;
    CHECK(alive_first >= 3);
    const int files = open_files();
    for (int crash = 0; crash < 10; ++crash) {
        simulation.crash("host");
        CHECK(alive == 0);
        simulation.start("host");
        simulation.run_for(1ms);
    }
    CHECK(alive == alive_first);
    CHECK(open_files() == files);
}

// ---- what a service keeps ----------------------------------------------------------------------

// Its handlers take out of it what they awaited, however they end.
struct Cache : EchoServer {
    explicit Cache(int& of_test) : taken_out(of_test) {}
    struct Taken {
        explicit Taken(Cache& of) : cache(of) {}
        Taken(const Taken&) = delete;
        ~Taken() {
            cache.loads.clear();
            ++cache.taken_out;
        }
        Cache& cache;
    };
    Task<Status> Later(Call&, const Request&, Reply&) override {
        const Taken taken(*this);
        loads.push_back(wait_at(gate));
        Task<Status>& load = loads.back();
        const Status status = co_await load;
        ended = status;
        co_return status;
    }
    LeavableGate gate;
    std::vector<Task<Status>> loads;
    Status ended;
    int& taken_out;
};

Task<void> call_later(Channel channel) {
    const echo::v1::EchoClient stub(std::move(channel));
    const echo::v1::EchoRequest request = request_of("x");
    (void)co_await stub.Later(request, {.timeout = 1h});
}

TEST_CASE(
    "a handler that awaits what its service keeps ends with its runtime, before the service") {
    int taken_out = 0;
    {
        Cache cache(taken_out);
        SimRig rig;
        Runtime& server = rig.add("server");
        Runtime& client = rig.add("");
        REQUIRE(server.add(cache).ok());
        client.spawn(call_later(client.connect("sim://server").value()));
        rig.run_for(1ms);
        CHECK(cache.loads.size() == 1);
        rig.runtimes.erase(rig.runtimes.begin());
        CHECK(taken_out == 1);
        CHECK(cache.ended.code() == Code::cancelled);
        CHECK_FALSE(cache.gate.waiting);
    }
    CHECK(taken_out == 1);
}

TEST_CASE("what leaves a task that did not end with its runtime is no error") {
    LeavableGate gate;
    int errors = 0, told = 0;
    std::optional<Task<int>> kept;
    struct {
        Task<int> operator()(LeavableGate& at) const {
            co_await at;
            co_return 1;
        }
    } wait_there;
    struct {
        Task<void> operator()(std::optional<Task<int>>& task) const { (void)co_await *task; }
    } await_it;
    kept.emplace(wait_there(gate));
    {
        const auto sink = [&](LogLevel level, std::string_view line) {
            errors += level == LogLevel::error ? 1 : 0;
            told += line.find("longer life") != line.npos ? 1 : 0;
        };
        Runtime runtime =
            Runtime::create({.log_level = LogLevel::info, .log_sink = sink, .manual = true})
                .value();
        runtime.spawn(await_it(kept));
        runtime.turn();
    }
    CHECK(told == 1);
    CHECK(errors == 0);
    gate.release();  // The task ends, and resumes nothing.
    CHECK(detail::TaskAccess::handle(*kept).done());
}

TEST_CASE("a forked child that destroys what its parent's coroutines await resumes none of them") {
    static std::optional<Task<Status>> kept;
    Gate gate;
    int alive = 0;
    Status last;
    Runtime runtime = Runtime::create({.manual = true}).value();
    kept.emplace(wait_at(gate));
    struct {
        Task<void> operator()(std::optional<Task<Status>>& task, int& in, Status& status) const {
            const Alive local(in);
            status = co_await *task;
        }
    } await_it;
    runtime.spawn(await_it(kept, alive, last));
    runtime.turn();
    CHECK(end_of_child([&] {
              kept.reset();
              return alive == 1 && last.ok() ? 0 : 1;
          }) == 0);
    gate.release();
    runtime.turn_until([&] { return alive == 0; }, patience);
    CHECK(alive == 0);
    CHECK(last.ok());
    kept.reset();
}

// ---- of no runtime's ----------------------------------------------------------------------------

template <class Awaited>
OwnedCoroutine await_owned(Awaited& awaited, int& resumed) {
    (void)co_await *awaited;
    ++resumed;
}

Task<Status> await_sleep(std::unique_ptr<Sleep>& sleep) { co_return co_await *sleep; }

TEST_CASE("a task goes on whose operation is destroyed, whatever awaits it") {
    const bool is_awaited = GENERATE(false, true);  // By a coroutine of the program's own type.
    CAPTURE(is_awaited);
    EchoPair pair;
    std::unique_ptr<Sleep> sleep;
    std::optional<Task<Status>> task;
    OwnedCoroutine own;
    int resumed = 0;
    pair.client.executor().post([&] {
        std::unique_ptr<Sleep> made(new Sleep(sleep_for(1h)));
        sleep = std::move(made);
        task.emplace(await_sleep(sleep));
        own = await_owned(task, resumed);
        if (!is_awaited) own.destroy();
    });
    pair.rig.run_for(1ms);
    const auto has_ended = [&] { return detail::TaskAccess::handle(*task).done(); };
    CHECK_FALSE(has_ended());
    pair.client.executor().post([&] { sleep.reset(); });
    pair.rig.run_for(1ms);
    CHECK(has_ended());
    CHECK(resumed == (is_awaited ? 1 : 0));
}

// ---- in the middle of its first step ------------------------------------------------------------

// Destroys, where it is awaited first, a task that is just begun, and what awaits that.
struct Destroys {
    std::optional<Task<int>>& task;
    OwnedCoroutine& awaiter;
    bool task_first;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<>) const {
        std::optional<Task<int>>& first = task;
        OwnedCoroutine& second = awaiter;
        if (task_first) first.reset();
        second.destroy();
        if (first) first.reset();
    }
    void await_resume() const {}
};

Task<int> destroy_all(std::optional<Task<int>>& task, OwnedCoroutine& awaiter, bool task_first) {
    Destroys all{task, awaiter, task_first};
    co_await all;
    co_return 1;
}

TEST_CASE("a task that is destroyed in its first step, with what awaits it, resumes nothing") {
    const bool task_first = GENERATE(false, true);
    CAPTURE(task_first);
    std::optional<Task<int>> task;
    OwnedCoroutine awaiter;
    int alive = 0, resumed = 0;
    Gate gate;
    struct {
        OwnedCoroutine operator()(Gate& at, std::optional<Task<int>>& kept, int& in, int& more) {
            const Alive local(in);
            co_await at;
            (void)co_await *kept;
            ++more;
        }
    } await_kept;
    awaiter = await_kept(gate, task, alive, resumed);
    task.emplace(destroy_all(task, awaiter, task_first));
    gate.release();
    CHECK(alive == 0);
    CHECK(resumed == 0);
    CHECK_FALSE(task);
}

}  // namespace await_lost_test
