// The order in which services and their runtimes end, and what a runtime that ends still serves.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <weft/sim.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace weft::service_order_test {
namespace {

using namespace weft::test;

constexpr unsigned long_enough_s = 10;  // For what does not hang.

Runtime make_quiet() { return Runtime::create({.log_level = LogLevel::off}).value(); }

std::string fresh_uri() {
    static int last = 0;
    return "sm://order-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

Said said_in_time(const std::function<int()>& body) {
    return said_by_child([&] {
        ::alarm(long_enough_s);
        return body();
    });
}

void check_aborts(const std::function<int()>& body) {
    const Said said = said_in_time(body);
    CAPTURE(said.text);
    CHECK(said.end == -SIGABRT);
    CHECK(said.text.find("a weft::Service was destroyed before a Runtime") != std::string::npos);
    CHECK(said.text.find("declare the service before the runtime") != std::string::npos);
}

TEST_CASE("a service that is destroyed before its runtime ends the program with a sentence") {
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

TEST_CASE("exit() that destroys a static service before its runtime says so and ends as asked") {
    const Said said = said_in_time([] {
        static std::optional<Runtime> runtime(make_quiet());
        static std::optional<Echo> service;
        service.emplace();
        if (!runtime->serve(*service, fresh_uri()).ok()) return 1;
        std::exit(7);
        return 0;
    });
    CAPTURE(said.text);
    CHECK(said.end == 7);
    CHECK(said.text.find("exit() destroys a weft::Service before the Runtime") !=
          std::string::npos);
}

TEST_CASE("exit() on a thread that never used weft says what is in use and ends as asked") {
    enum class In : std::uint8_t { run, turns, block, service };
    for (const In in : {In::run, In::turns, In::block, In::service}) {
        CAPTURE(static_cast<int>(in));
        const Said said = said_in_time([in] {
            const bool is_manual = in == In::turns || in == In::block;
            static std::optional<Runtime> runtime;
            runtime.emplace(
                Runtime::create({.log_level = LogLevel::off, .manual = is_manual}).value());
            static std::optional<Echo> service;
            if (in == In::service) {
                service.emplace();
                if (!runtime->serve(*service, fresh_uri()).ok()) return 1;
            }
            std::atomic<bool> is_in = in == In::service;
            std::thread([&is_in] {
                while (!is_in) std::this_thread::yield();
                std::exit(7);
            }).detach();
            const auto note = [&is_in] { is_in = true; };
            runtime->executor().post(note);
            if (in == In::run) (void)runtime->run();
            if (in == In::turns) runtime->turn_until([] { return false; }, no_timeout);
            if (in == In::block) {
                runtime->block_on([]() -> Task<void> { (void)co_await sleep_for(1h); }());
            }
            while (true) ::pause();
            return 2;
        });
        CAPTURE(said.text);
        CHECK(said.end == 7);
        CHECK(said.text.find("weft: exit() ") != std::string::npos);
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
