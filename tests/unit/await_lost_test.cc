// Where a task goes on whose operation or task was destroyed while it awaited that.
#include <weft/combine.h>
#include <weft/sim.h>

#include <optional>
#include <vector>

#include "support/echo.h"
#include "support/gate.h"
#include "support/open_files.h"
#include "support/owned_coroutine.h"

namespace await_lost_test {

using namespace weft;
using namespace weft::test;

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

Task<Status> wait_at(Gate& gate) {
    co_await gate;
    co_return Status();
}

Task<void> use(Device& device, [[maybe_unused]] Channel channel, int& alive, int& gone_on) {
    const Alive local(alive);
    (void)co_await *device.task;
    ++gone_on;
}

TEST_CASE("what awaits a task of an ended life of its host goes on in no later one, and is gone") {
    const bool in_turn = GENERATE(false, true);
    const bool keeps_channel = GENERATE(false, true);
    CAPTURE(in_turn, keeps_channel);
    int alive = 0, gone_on = 0;
    std::vector<std::unique_ptr<Device>> devices;
    sim::Simulation simulation(1);
    simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
        Device& device = *devices.emplace_back(std::make_unique<Device>());
        device.task.emplace(wait_at(device.gate));
        // A channel keeps what is left of the ended runtime.
        Channel channel = keeps_channel ? runtime.connect("sim://none").value() : Channel();
        runtime.spawn(use(device, std::move(channel), alive, gone_on));
        return nullptr;
    });
    constexpr int lives = 20;
    for (int life = 1; life <= lives; ++life) {
        simulation.run_for(1ms);
        simulation.crash("host");
        simulation.run_for(1ms);
        simulation.start("host");
        simulation.run_for(1ms);
        // A context of the later life is often where that of the ended one was.
        if (in_turn) {
            simulation.act_as("host", [&] { devices[devices.size() - 2]->task.reset(); });
        } else {
            devices[devices.size() - 2]->task.reset();
        }
    }
    simulation.run_for(1ms);
    CHECK(gone_on == 0);
    CHECK(alive == 1);
    devices.back()->task.reset();
    simulation.run_for(1ms);
    CHECK(gone_on == 1);
    CHECK(alive == 0);
}

// A branch that goes on when its program says so destroys what another one awaits.
Task<int> destroy_other(Gate& gate, std::optional<Task<Status>>& other, int& alive) {
    const Alive local(alive);
    co_await gate;
    other.reset();
    co_return 1;
}

Task<int> await_other(std::optional<Task<Status>>& other, int& alive) {
    const Alive local(alive);
    (void)co_await *other;
    co_return 2;
}

Task<void> beside_each_other(Gate& gate, std::optional<Task<Status>>& other, Channel channel,
                             bool of_all, int& alive) {
    const Channel kept = std::move(channel);
    auto one = destroy_other(gate, other, alive);
    auto two = await_other(other, alive);
    if (of_all) {
        (void)co_await when_all(std::move(one), std::move(two));
    } else {
        (void)co_await when_any(std::move(one), std::move(two));
    }
}

TEST_CASE("a branch that runs after its runtime has ended may destroy what another one awaits") {
    const bool keeps_channel = GENERATE(false, true);
    const bool of_all = GENERATE(false, true);
    const bool is_posted = GENERATE(false, true);  // To the ended runtime: it runs at once.
    if (is_posted && !keeps_channel) return;
    CAPTURE(keeps_channel, of_all, is_posted);
    Executor* home = nullptr;
    Channel keeps;
    Gate gate, never;
    int alive = 0;
    std::optional<Task<Status>> other = wait_at(never);
    {
        sim::Simulation simulation(1);
        simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
            Channel channel = keeps_channel ? runtime.connect("sim://none").value() : Channel();
            home = &runtime.executor();
            keeps = channel;
            runtime.spawn(beside_each_other(gate, other, std::move(channel), of_all, alive));
            return nullptr;
        });
        simulation.run_for(1ms);
        simulation.crash("host");
    }
    CHECK(alive == 2);
    if (is_posted) {
        home->post([&] { gate.release(); });
    } else {
        gate.release();
    }
    CHECK_FALSE(other);
    CHECK(alive == 0);
}

// What a host keeps: the last of them is destroyed first. A gate that goes resumes what waits at
// it.
struct ClosingGate : Gate {
    ~ClosingGate() {
        if (waiting) release();
    }
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

enum class Beside { other_lost, ends_before, all_nested };

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
        case Beside::other_lost: two = await_kept(kept.second, alive); break;
        case Beside::ends_before: two = await_closing(kept, alive); break;
        case Beside::all_nested: two = nested(kept, alive); break;
    }
    if (of_all) {
        (void)co_await when_all(std::move(one), std::move(two));
    } else {
        (void)co_await when_any(std::move(one), std::move(two));
    }
}

TEST_CASE("tasks beside each other that await what goes with its crashed host are gone with it") {
    const Beside beside = GENERATE(Beside::other_lost, Beside::ends_before, Beside::all_nested);
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
