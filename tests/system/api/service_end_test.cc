// The end of services that a function made: after the handlers that use them.
#include <atomic>
#include <coroutine>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/runtime.h>
#include <weft/sleep.h>

#include "support/catch.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace service_end_test {

constexpr MethodId work_method("test.ServiceEnd/Work");

// An object of the program, which handlers of all contexts await.
class Device {
  public:
    struct Waiting {
        std::coroutine_handle<> coroutine;
        Executor* executor;
    };
    struct Done {
        explicit Done(Device& of) : device(of) {}
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiting) {
            const std::lock_guard lock(device.mutex_);
            device.waiting_.push_back({awaiting, Executor::current()});
        }
        void await_resume() const {}
        Device& device;
    };
    Done done() { return Done(*this); }
    std::size_t waiting() {
        const std::lock_guard lock(mutex_);
        return waiting_.size();
    }
    // Resumes those that wait by their executors, or on this thread.
    void complete(bool is_posted = true) {
        std::vector<Waiting> all;
        {
            const std::lock_guard lock(mutex_);
            std::swap(all, waiting_);
        }
        for (const Waiting& one : all) {
            if (is_posted) {
                one.executor->post([coroutine = one.coroutine] { coroutine.resume(); });
            } else {
                one.coroutine.resume();
            }
        }
    }

  private:
    std::mutex mutex_;
    std::vector<Waiting> waiting_;
};

// What a handler waits for.
enum class Wait {
    device,           // Beyond the end of the runtime.
    resumed_here,     // The same, resumed on a thread of the program.
    combined,         // The same, in tasks of its own.
    submitted,        // The same, in a task on the next context.
    many_sleeps,      // More than the end of a runtime has turns.
    until_cancelled,  // The device, until Call::on_cancel().
};

struct Seen {
    std::vector<ContextRef> contexts;
    std::atomic<int> alive{0};  // Services.
    std::atomic<int> begun{0}, ended{0};
    std::atomic<int> without_service{0};  // Steps of handlers after the end of a service.
    Device device;

    void step() { without_service += alive != static_cast<int>(contexts.size()); }
};

// A local of a handler, of which the destructor uses the service.
struct LastStep {
    explicit LastStep(Seen& in) : seen(in) { ++seen.begun; }
    LastStep(const LastStep&) = delete;
    ~LastStep() {
        seen.step();
        ++seen.ended;
    }
    Seen& seen;
};

Task<void> on_device(Seen& seen) {
    co_await seen.device.done();
    seen.step();
}

Task<void> work(Call call, ContextRef here, Seen& seen, Wait wait) {
    const LastStep last(seen);
    if (wait == Wait::combined) {
        co_await when_all(on_device(seen), on_device(seen));
    } else if (wait == Wait::submitted) {
        const ContextRef next = seen.contexts[(here.index() + 1) % seen.contexts.size()];
        const auto there = [&seen] { return on_device(seen); };
        co_await next.submit(there);
    } else if (wait == Wait::many_sleeps) {
        for (int i = 0; i < 2000; ++i) (void)co_await sleep_for(1h);
    } else {
        if (wait == Wait::until_cancelled) call.on_cancel([&seen] { seen.device.complete(); });
        co_await on_device(seen);
    }
    // The handler has ended its wait for the program, and not its work.
    (void)co_await sleep_for(1h);
    seen.step();
    call.reply({});
}

class WorkService final : public Service {
  public:
    WorkService(const Here& here, Seen& seen, Wait wait)
        : here_(here.context), seen_(seen), wait_(wait) {
        ++seen_.alive;
    }
    ~WorkService() override { --seen_.alive; }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work_method, [this](Call call) {
            here_.spawn(work(std::move(call), here_, seen_, wait_));
        });
    }

  private:
    const ContextRef here_;
    Seen& seen_;
    const Wait wait_;
};

// A server, and the lines of its log.
class LoggedServer {
  public:
    explicit LoggedServer(unsigned contexts) {
        RuntimeOptions options = with_contexts(contexts);
        options.log_level = LogLevel::warning;
        options.log_sink = [this](LogLevel, std::string_view line) {
            const std::lock_guard lock(mutex_);
            log_ += line;
        };
        server_.emplace(Runtime::create(std::move(options)).value());
        for (unsigned k = 0; k < contexts; ++k) seen.contexts.push_back(server_->context(k));
    }
    Runtime& server() { return *server_; }
    void end_server() { server_.reset(); }
    bool has_warned() {
        const std::lock_guard lock(mutex_);
        return log_.find("the services that a function made for this runtime stay") !=
               std::string::npos;
    }

    Seen seen;

  private:
    std::mutex mutex_;
    std::string log_;
    std::optional<Runtime> server_;
};

// With a handler on each context that waits.
class Rig : public LoggedServer {
  public:
    Rig(unsigned contexts, Wait wait) : LoggedServer(contexts) {
        const auto make = [this, wait](const Here& here) {
            return std::make_unique<WorkService>(here, seen, wait);
        };
        REQUIRE(server().serve(make, fresh_uri("unix")).ok());
        const Channel channel = client_.connect(server().addresses().front()).value();
        for (unsigned k = 0; k < contexts; ++k)
            channel.on(k).call(work_method, {}, {.timeout = 1h}, [](const Status&, ByteView) {});
        REQUIRE(wait_for([&] { return seen.begun == static_cast<int>(contexts); }));
        if (wait == Wait::many_sleeps) return;
        const std::size_t each = wait == Wait::combined ? 2 : 1;
        REQUIRE(wait_for([&] { return seen.device.waiting() == each * contexts; }));
    }

  private:
    Runtime client_ = Runtime::create(with_contexts(1)).value();
};

TEST_CASE("services: those of a function outlive a handler that awaits an object of the program") {
    for (const Wait wait : {Wait::device, Wait::resumed_here, Wait::combined, Wait::submitted}) {
        for (const int contexts : {1, 3}) {
            CAPTURE(static_cast<int>(wait), contexts);
            Rig rig(static_cast<unsigned>(contexts), wait);
            rig.end_server();
            CHECK(rig.has_warned());
            CHECK(rig.seen.ended == 0);
            CHECK(rig.seen.alive == contexts);
            rig.seen.device.complete(wait != Wait::resumed_here);
            CHECK(rig.seen.ended == contexts);
            CHECK(rig.seen.without_service == 0);
            CHECK(rig.seen.alive == 0);
        }
    }
}

// Of handlers that end with their runtime.
static void check_services_end_last(Wait wait) {
    for (const int contexts : {1, 3}) {
        CAPTURE(contexts);
        Rig rig(static_cast<unsigned>(contexts), wait);
        rig.end_server();
        CHECK_FALSE(rig.has_warned());
        CHECK(rig.seen.ended == contexts);
        CHECK(rig.seen.without_service == 0);
        CHECK(rig.seen.alive == 0);
    }
}

TEST_CASE("services: those of a function outlive the cleanup of a handler in after-end work") {
    check_services_end_last(Wait::many_sleeps);
}

TEST_CASE("services: those of a function end with their runtime when handlers end their waits") {
    check_services_end_last(Wait::until_cancelled);
}

// ---- a service that spawns a coroutine when it is made
// -------------------------------------------

Task<void> work_early(ContextRef at, Seen& seen) {
    const LastStep last(seen);
    const auto there = [&seen] { return on_device(seen); };
    if (at.index() == 0) {
        co_await there();
    } else {
        co_await at.submit(there);
    }
    seen.step();
}

struct EarlyService final : Service {
    EarlyService(const Here& here, Seen& in, unsigned waits_on) : seen(in) {
        ++seen.alive;
        if (here.index == 0) here.context.spawn(work_early(seen.contexts[waits_on], seen));
    }
    ~EarlyService() override { --seen.alive; }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work_method, [](Call call) { call.reply({}); });
    }
    Seen& seen;
};

TEST_CASE("services: those of a function outlive a coroutine that waits before all are made") {
    for (const unsigned waits_on : {0u, 2u}) {
        CAPTURE(waits_on);
        LoggedServer rig(3);
        bool waits = false;
        const auto make = [&](const Here& here) {
            if (here.index == 1) waits = wait_for([&] { return rig.seen.device.waiting() == 1; });
            return std::make_unique<EarlyService>(here, rig.seen, waits_on);
        };
        REQUIRE(rig.server().add(make).ok());
        REQUIRE(waits);
        rig.end_server();
        CHECK(rig.has_warned());
        CHECK(rig.seen.ended == 0);
        CHECK(rig.seen.alive == 3);
        rig.seen.device.complete();
        CHECK(rig.seen.ended == 1);
        CHECK(rig.seen.without_service == 0);
        CHECK(rig.seen.alive == 0);
    }
}

// The end warns of services that stay.
TEST_CASE("services: a coroutine of the program keeps those of a call that failed, too") {
    for (const unsigned made : {0u, 1u}) {
        CAPTURE(made);
        LoggedServer rig(2);
        const auto make = [&](const Here& here) -> std::unique_ptr<Service> {
            if (here.index == made) return nullptr;
            return std::make_unique<WorkService>(here, rig.seen, Wait::device);
        };
        const std::vector<ContextRef> contexts{rig.server().context(0), rig.server().context(1)};
        REQUIRE(rig.server().add(make).code() == Code::invalid_argument);
        CHECK(rig.seen.alive == static_cast<int>(made));
        for (const ContextRef& at : contexts) at.spawn(on_device(rig.seen));
        REQUIRE(wait_for([&] { return rig.seen.device.waiting() == 2; }));
        rig.end_server();
        CHECK(rig.has_warned() == (made != 0));
        CHECK(rig.seen.alive == static_cast<int>(made));
        rig.seen.device.complete();
        CHECK(rig.seen.alive == 0);
    }
}

}  // namespace service_end_test
