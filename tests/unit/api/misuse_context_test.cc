// Misuse of contexts that the program turns: each ends the program, with an error text that names
// the call and the remedy. Each runs in a child process because it ends it.
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <weft/runtime.h>

#include "support/child.h"
#include "support/test_timeout.h"
#include "support/turning_threads.h"

namespace weft::misuse_context_test {
namespace {

using namespace weft::test;

Task<int> seven() { co_return 7; }

void on_another_thread(const std::function<void()>& body) { std::thread(body).join(); }

// Runs `body` on another thread while this one is in a turn of context 0.
void during_a_turn(const std::function<void(Runtime&)>& body) {
    Runtime runtime = Runtime::create(by_hand(2)).value();
    runtime.context(0).executor().post([&] { on_another_thread([&] { body(runtime); }); });
    runtime.context(0).turn();
}

// Runs `body` in a turn of context 0.
void in_a_turn(const std::function<void(Runtime&)>& body) {
    Runtime runtime = Runtime::create(by_hand(2)).value();
    runtime.context(0).executor().post([&] { body(runtime); });
    runtime.context(0).turn();
}

TEST_CASE("two threads that turn one context at once end the program with an error text") {
    const auto mistake = [](const char* name, const std::function<void(Runtime&)>& body) {
        check({name,
               [&body] { during_a_turn(body); },
               {"Runtime::turn()", "another thread is in a turn of the same context"}});
    };
    mistake("turn of the context", [](Runtime& runtime) { runtime.context(0).turn(); });
    mistake("turn of all", [](Runtime& runtime) { runtime.turn(); });
    mistake("turn_until of the context",
            [](Runtime& runtime) { runtime.context(0).turn_until([] { return false; }, 1s); });
    mistake("turn_until of all",
            [](Runtime& runtime) { runtime.turn_until([] { return false; }, 1s); });
    check({"the end of the runtime",
           [] { during_a_turn([](Runtime& runtime) { const Runtime ends(std::move(runtime)); }); },
           {"Runtime::~Runtime()", "Runtime::turn()", "join that thread"}});
}

TEST_CASE("different threads may turn different contexts at once") {
    if (!can_start_threads_in_child) return;
    CHECK(end_of_child([] {
              int events = -1;
              during_a_turn([&](Runtime& runtime) {
                  runtime.context(1).executor().post([] {});
                  events = static_cast<int>(runtime.context(1).turn());
              });
              return events;
          }) == 1);
}

TEST_CASE("turning a context in a callback of another context ends the program") {
    const auto mistake = [](const char* name, const std::function<void(const ContextRef&)>& body) {
        for (const unsigned k : {0u, 1u}) {
            check({name,
                   [&body, k] { in_a_turn([&](Runtime& runtime) { body(runtime.context(k)); }); },
                   {name, "callback"}});
        }
    };
    mistake("ContextRef::turn()", [](const ContextRef& at) { at.turn(); });
    mistake("ContextRef::turn_until()",
            [](const ContextRef& at) { at.turn_until([] { return true; }, 1s); });
    mistake("ContextRef::arm()", [](const ContextRef& at) { at.arm(); });
    mistake("Runtime::block_on()", [](const ContextRef& at) { at.block_on(seven()); });
}

TEST_CASE("turning a context of a runtime with threads of its own ends the program") {
    const auto mistake = [](const char* name, const std::function<void(const ContextRef&)>& body) {
        check({name,
               [&body] {
                   const Runtime runtime = Runtime::create(with_contexts(2)).value();
                   body(runtime.context(1));
               },
               {name, "RuntimeOptions::manual"}});
    };
    mistake("ContextRef::turn()", [](const ContextRef& at) { at.turn(); });
    mistake("ContextRef::turn_until()",
            [](const ContextRef& at) { at.turn_until([] { return true; }, 1s); });
    mistake("ContextRef::arm()", [](const ContextRef& at) { at.arm(); });
    mistake("ContextRef::next_deadline()", [](const ContextRef& at) { at.next_deadline(); });
    mistake("ContextRef::wait_fd()", [](const ContextRef& at) { at.wait_fd(); });
}

TEST_CASE("arming a context on another thread than the one that turned it ends the program") {
    const auto mistake = [](const char* name, const std::function<void(Runtime&)>& body) {
        check({name,
               [&body] {
                   Runtime runtime = Runtime::create(by_hand(2)).value();
                   on_another_thread([&] { runtime.context(1).turn(); });
                   runtime.context(0).turn();
                   runtime.context(0).arm();
                   body(runtime);
               },
               {name, "another thread"}});
    };
    mistake("ContextRef::arm()", [](Runtime& runtime) { runtime.context(1).arm(); });
    mistake("ContextRef::next_deadline()",
            [](Runtime& runtime) { runtime.context(1).next_deadline(); });
    mistake("Runtime::arm()", [](Runtime& runtime) { runtime.arm(); });
    mistake("Runtime::next_deadline()", [](Runtime& runtime) { runtime.next_deadline(); });
}

TEST_CASE("turning a context after the end of its runtime ends the program") {
    const auto mistake = [](const char* name, const std::function<void(const ContextRef&)>& body) {
        check({name,
               [&body] {
                   std::optional<Runtime> runtime = Runtime::create(by_hand(2)).value();
                   const ContextRef kept = runtime->context(1);
                   runtime.reset();
                   body(kept);
               },
               {name, "after the end of the runtime"}});
    };
    mistake("ContextRef::turn()", [](const ContextRef& at) { at.turn(); });
    mistake("ContextRef::turn_until()",
            [](const ContextRef& at) { at.turn_until([] { return true; }, 1s); });
    mistake("ContextRef::arm()", [](const ContextRef& at) { at.arm(); });
    mistake("ContextRef::wait_fd()", [](const ContextRef& at) { at.wait_fd(); });
}

TEST_CASE("destroying a runtime while a thread waits in one of its contexts ends the program") {
    if (!can_start_threads_in_child) return;
    check({"turn_until",
           [] {
               std::optional<Runtime> runtime = Runtime::create(by_hand(2)).value();
               std::promise<void> inside;
               std::thread([&inside, at = runtime->context(1)] {
                   at.executor().post([&] { inside.set_value(); });
                   at.turn_until([] { return false; }, 1h);
               }).detach();
               inside.get_future().wait();
               runtime.reset();
           },
           {"Runtime::~Runtime()", "ContextRef::turn_until()"}});
    check({"block_on of another context",
           [] {
               std::optional<Runtime> runtime = Runtime::create(by_hand(2)).value();
               std::promise<void> inside;
               runtime->context(0).turn();
               std::thread([&inside, turned = runtime->context(1), other = runtime->context(0)] {
                   turned.turn();
                   turned.executor().post([&] { inside.set_value(); });
                   (void)other.block_on(seven());  // It turns context 1 meanwhile.
               }).detach();
               inside.get_future().wait();
               runtime.reset();
           },
           {"Runtime::~Runtime()", "Runtime::block_on()"}});
}

}  // namespace
}  // namespace weft::misuse_context_test
