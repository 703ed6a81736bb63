// Tasks that resume after the operation or task that they await was destroyed.
#include <weft/combine.h>
#include <weft/sim.h>

#include <array>
#include <optional>
#include <vector>

#include "support/child.h"
#include "support/echo.h"
#include "support/gate.h"
#include "support/open_files.h"
#include "support/owned_coroutine.h"
#include "support/test_timeout.h"

namespace await_destroyed_test {

using namespace weft;
using namespace weft::test;

Task<Status> sleep_long() { co_return co_await sleep_for(1h); }

// Handlers that await an operation or task which is destroyed meanwhile.
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

TEST_CASE("a handler stays part of its call when the operation that it awaits is destroyed") {
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

// ---- after the end of the runtime ---------------------------------------------------------------

// Frames that stay suspended: leak checkers, which run at the program's end, find them here.
std::vector<const void*>& suspended() {
    static auto* const all = new std::vector<const void*>;
    return *all;
}

// State outside of a simulated host, which outlives the host.
struct Device {
    Gate gate;
    std::optional<Task<Status>> task;
};

Task<Status> wait_at(Gate& gate) {
    co_await gate;
    co_return Status();
}

Task<void> use(Device& device, [[maybe_unused]] Channel channel, int& alive, int& continued) {
    const Alive local(alive);
    suspended().push_back(&local);
    (void)co_await *device.task;
    ++continued;
}

TEST_CASE("an awaiter stays suspended when its task is destroyed after the runtime's end") {
    const bool in_turn = GENERATE(false, true);
    const bool keeps_channel = GENERATE(false, true);
    CAPTURE(in_turn, keeps_channel);
    int alive = 0, continued = 0;
    std::vector<std::unique_ptr<Device>> devices;
    sim::Simulation simulation(1);
    simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
        Device& device = *devices.emplace_back(std::make_unique<Device>());
        device.task.emplace(wait_at(device.gate));
        // A channel keeps the remains of the ended runtime alive.
        Channel channel = keeps_channel ? runtime.connect("sim://none").value() : Channel();
        runtime.spawn(use(device, std::move(channel), alive, continued));
        return nullptr;
    });
    constexpr int starts = 20;
    const int files = open_files();
    for (int life = 1; life <= starts; ++life) {
        simulation.run_for(1ms);
        CHECK(open_files() == files);
        simulation.crash("host");
        simulation.run_for(1ms);
        simulation.start("host");
        simulation.run_for(1ms);
        // A context of the later life often has the address of the ended one.
        if (in_turn) {
            simulation.act_as("host", [&] { devices[devices.size() - 2]->task.reset(); });
        } else {
            devices[devices.size() - 2]->task.reset();
        }
    }
    simulation.run_for(1ms);
    CHECK(continued == 0);
    CHECK(alive == starts + 1);
    devices.back()->task.reset();
    simulation.run_for(1ms);
    CHECK(continued == 1);
    CHECK(alive == starts);
}

// State of a host. Its gate is destroyed first and resumes its waiters.
struct Disk : Gate {
    ~Disk() { release(); }
};
struct Shard {
    std::optional<Task<Status>> load = wait_at(disk);
    Disk disk;
};

Task<void> await_loads(Shard& shard, Shard& other, int& alive, int& continued) {
    const Alive local(alive);
    struct {
        Task<Status> operator()(Shard& of) const { co_return co_await *of.load; }
    } loaded;
    const auto both = co_await when_all(loaded(shard), loaded(other));
    continued += both.get<0>().ok() && both.get<1>().ok() ? 1 : 0;
}

TEST_CASE("coroutines of a crashed host end with the tasks that they await after the crash") {
    int alive = 0, continued = 0;
    sim::Simulation simulation(1);
    simulation.add("host", [&](Runtime& runtime) -> std::shared_ptr<void> {
        auto shards = std::make_shared<std::array<Shard, 2>>();
        // Its memory file must not stay open after the crash either.
        CHECK(runtime.allocate(1).ok());
        runtime.spawn(await_loads((*shards)[0], (*shards)[1], alive, continued));
        return shards;
    });
    simulation.run_for(1ms);
    const int files = open_files();
    for (int crash = 1; crash <= 10; ++crash) {
        CHECK(alive == 1);
        simulation.crash("host");
        CHECK(alive == 0);
        CHECK(continued == crash);
        simulation.start("host");
        simulation.run_for(1ms);
    }
    CHECK(open_files() == files);
}

// This branch resumes when the gate opens and destroys the task that another branch awaits.
Task<int> destroy_other(Gate& gate, std::optional<Task<Status>>& other, int& alive) {
    const Alive local(alive);
    co_await gate;
    other.reset();
    co_return 1;
}

Task<int> await_other(std::optional<Task<Status>>& other, int& alive) {
    const Alive local(alive);
    suspended().push_back(&local);
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

TEST_CASE("a branch that runs after its runtime's end may destroy the task of another branch") {
    const bool keeps_channel = GENERATE(false, true);
    const bool of_all = GENERATE(false, true);
    // Posted to the ended runtime, which runs the work at once.
    const bool is_posted = GENERATE(false, true);
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
    // Outside of late work when_all() stays suspended, since its second branch never ends;
    // when_any() completes with the first branch.
    CHECK(alive == (is_posted || !of_all ? 0 : 1));
}

// ---- tasks that a service owns ------------------------------------------------------------------

// Its handlers remove the task that they awaited from it, however they end.
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
        suspended().push_back(&taken);
        loads.push_back(wait_at(gate));
        Task<Status>& load = loads.back();
        co_return co_await load;
    }
    Gate gate;
    std::vector<Task<Status>> loads;
    int& taken_out;
};

Task<void> call_later(Channel channel) {
    const echo::v1::EchoClient stub(std::move(channel));
    const echo::v1::EchoRequest request = request_of("x");
    (void)co_await stub.Later(request, {.timeout = 1h});
}

TEST_CASE("a service may destroy tasks that handlers of its ended runtime await") {
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
    }
    // The handlers' locals would remove the tasks that are just being destroyed.
    CHECK(taken_out == 0);
}

TEST_CASE("a forked child that destroys a task resumes no coroutine of its parent") {
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
    runtime.turn_until([&] { return alive == 0; }, test_timeout);
    CHECK(alive == 0);
    CHECK(last.ok());
    kept.reset();
}

// ---- coroutines of the program's own type -------------------------------------------------------

template <class Awaited>
OwnedCoroutine await_owned(Awaited& awaited, int& resumed) {
    (void)co_await *awaited;
    ++resumed;
}

Task<Status> await_sleep(std::unique_ptr<Sleep>& sleep) { co_return co_await *sleep; }

TEST_CASE("a task resumes when its operation is destroyed, whatever awaits the task") {
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

// ---- during the first step of a task ------------------------------------------------------------

// Destroys, when it is awaited, the task that has just begun and the coroutine that awaits the
// task.
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

TEST_CASE("a task that is destroyed in its first step with its awaiter resumes nothing") {
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
    } await_stored;
    awaiter = await_stored(gate, task, alive, resumed);
    task.emplace(destroy_all(task, awaiter, task_first));
    gate.release();
    CHECK(alive == 0);
    CHECK(resumed == 0);
    CHECK_FALSE(task);
}

}  // namespace await_destroyed_test
