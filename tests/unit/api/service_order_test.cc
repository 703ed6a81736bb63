// The order in which services and their runtimes end, and registrations on an ending runtime.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <weft/sim.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace weft::service_order_test {
namespace {

using namespace weft::test;

constexpr unsigned long_enough_s = 10;  // Enough unless it hangs.

Runtime make_manual() {
    return Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
}
Runtime make_quiet() { return Runtime::create({.log_level = LogLevel::off}).value(); }

std::string fresh_uri() {
    static int last = 0;
    return "sm://order-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

ChildOutput output_in_time(const std::function<int()>& body) {
    return output_of_child([&] {
        ::alarm(long_enough_s);
        return body();
    });
}

void check_aborts(const std::function<int()>& body) {
    const ChildOutput output = output_in_time(body);
    CAPTURE(output.text);
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("a weft::Service was destroyed before a Runtime") != std::string::npos);
    CHECK(output.text.find("declare the service before the runtime") != std::string::npos);
}

TEST_CASE("a service destroyed before its runtime ends the program with a message") {
    check_aborts([] {
        Runtime runtime = make_quiet();
        Echo service;
        return runtime.serve(service, fresh_uri()).ok() ? 0 : 1;
    });
    check_aborts([] {
        Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
        Echo service;
        return runtime.add(service).ok() ? 0 : 1;
    });
    check_aborts([] {
        Runtime one = make_quiet();
        Echo service;
        std::optional<Runtime> other(make_quiet());
        if (!one.add(service).ok() || !other->add(service).ok()) return 1;
        other.reset();
        return 0;
    });
}

TEST_CASE("a service may be destroyed once its runtime has ended, or never served it") {
    std::optional<Runtime> runtime(make_quiet());
    auto service = std::make_unique<Echo>();
    REQUIRE(runtime->serve(*service, fresh_uri()).ok());
    Echo second;  // Of the same methods: it is not served.
    CHECK(runtime->add(second).code() == Code::already_exists);
    CHECK(end_of_child([&] {
              service.reset();  // The child's copy.
              return 0;
          }) == 0);
    runtime.reset();
    service.reset();
}

TEST_CASE("a service of a simulated host may be destroyed once the host has crashed") {
    sim::Simulation simulation(1);
    auto service = std::make_unique<Echo>();
    simulation.add("server", [&](Runtime& runtime) -> std::shared_ptr<void> {
        REQUIRE(runtime.add(*service).ok());
        return nullptr;
    });
    simulation.crash("server");
    service.reset();
}

TEST_CASE("exit() prints a message when it destroys a static service before its runtime") {
    const ChildOutput output = output_in_time([] {
        static std::optional<Runtime> runtime(make_quiet());
        static std::optional<Echo> service;
        service.emplace();
        if (!runtime->serve(*service, fresh_uri()).ok()) return 1;
        std::exit(7);
        return 0;
    });
    CAPTURE(output.text);
    CHECK(output.end == 7);
    CHECK(output.text.find("exit() destroys a weft::Service before the Runtime") !=
          std::string::npos);
}

// Exits on another thread: once `until_in_use` is in use, or at once.
void exit_elsewhere(Runtime* until_in_use) {
    std::thread([until_in_use] {
        while (until_in_use && !impl_of(*until_in_use).is_in_use()) std::this_thread::yield();
        std::exit(7);
    }).detach();
}

Task<void> waits_long() { (void)co_await sleep_for(1h); }
Task<void> waits_not() { co_return; }

// Uses its runtime before the owner itself is complete.
struct Owner {
    Owner() {
        for (int i = 0; i < 10; ++i) runtime.block_on(waits_not());
    }
    Runtime runtime = make_manual();
};

TEST_CASE("exit() on a thread that never used weft prints the runtime or service in use") {
    const std::pair<const char*, void (*)()> uses[] = {
        {"run",
         [] {
             static Runtime runtime = make_quiet();
             exit_elsewhere(&runtime);
             (void)runtime.run();
         }},
        {"run of a static owner's",
         [] {
             static Owner owner;
             exit_elsewhere(&owner.runtime);
             (void)owner.runtime.run();
         }},
        {"turn_until",
         [] {
             static Runtime runtime = make_manual();
             exit_elsewhere(&runtime);
             runtime.turn_until([] { return false; }, no_timeout);
         }},
        {"block_on",
         [] {
             static Runtime runtime = make_manual();
             exit_elsewhere(&runtime);
             runtime.block_on(waits_long());
         }},
        {"a service",
         [] {
             static Runtime runtime = make_quiet();
             static Echo service;
             if (runtime.serve(service, fresh_uri()).ok()) exit_elsewhere(nullptr);
         }},
    };
    for (const auto& [name, use] : uses) {
        CAPTURE(name);
        const ChildOutput output = output_in_time([use = use] {
            use();
            while (true) ::pause();
            return 2;
        });
        CAPTURE(output.text);
        CHECK(output.end == 7);
        CHECK(output.text.find("weft: exit() ") != std::string::npos);
    }
}

Task<void> exits() {
    (void)co_await sleep_for(1ms);
    std::exit(7);
}

TEST_CASE("exit() in code that a static simulation runs prints a message and ends as asked") {
    const std::pair<const char*, void (*)(sim::Simulation&)> uses[] = {
        {"a function", [](sim::Simulation& of) { of.in(1ms, [] { std::exit(7); }); }},
        {"a program",
         [](sim::Simulation& of) {
             of.add("b", [](Runtime&) -> std::shared_ptr<void> { std::exit(7); });
         }},
        {"a coroutine", [](sim::Simulation& of) { of.runtime("a")->spawn(exits()); }},
        {"a condition",
         [](sim::Simulation& of) {
             of.run_until(
                 [] {
                     std::exit(7);
                     return true;
                 },
                 1s);
         }},
    };
    for (const auto& [name, use] : uses) {
        CAPTURE(name);
        const ChildOutput output = output_in_time([use = use] {
            static sim::Simulation simulation(1);
            simulation.add("a", [](Runtime&) { return nullptr; });
            use(simulation);
            simulation.run_for(1s);
            return 2;
        });
        CAPTURE(output.text);
        CHECK(output.end == 7);
        CHECK(output.text.find("weft: exit() in what a simulation runs") != std::string::npos);
    }
}

void check_serves_nothing(Runtime& runtime) {
    Echo service;
    const GroupView view = GroupView::make("late", 1, {{0, {"sm://late"}}}).value();
    for (const Status& status : {runtime.listen(fresh_uri()), runtime.serve(service, fresh_uri()),
                                 runtime.add(service), runtime.join(view, 0)}) {
        CAPTURE(status.to_string());
        CHECK(status.code() == Code::failed_precondition);
        CHECK(status.text().find("Runtime::stop()") != std::string::npos);
    }
    CHECK(runtime.addresses().empty());
}

TEST_CASE("a runtime serves nothing new after stop(), or after run()") {
    Runtime runtime = make_quiet();
    runtime.stop();
    check_serves_nothing(runtime);
    CHECK(runtime.run().ok());
    check_serves_nothing(runtime);
}

}  // namespace
}  // namespace weft::service_order_test
