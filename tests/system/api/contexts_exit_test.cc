// exit() while a runtime with several contexts is of static storage: no context runs a handler once
// the destructor of the runtime has returned.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <latch>
#include <thread>

#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "core/blocked_turn.h"
#include "support/child.h"
#include "support/contexts.h"

namespace weft::contexts_exit_test {
namespace {

using namespace weft::test;

constexpr int as_asked = 7, still_turned = 9;

// Set when the thread of a context that beat() occupies ends.
std::atomic<int> ended{0};
struct ThreadEnd {
    bool is_used = false;
    ~ThreadEnd() { ended += is_used; }
};
thread_local ThreadEnd thread_end;

// Work of the program in each turn of a context.
void beat(Executor& at) {
    thread_end.is_used = true;
    at.post([&at] { beat(at); });
}

// Destroyed after the runtimes: their destructors have joined the threads of idle contexts.
struct Last {
    int threads = 1;
    ~Last() { ::_exit(ended == threads ? as_asked : still_turned); }
};

Runtime make_runtime(unsigned contexts) { return Runtime::create(with_contexts(contexts)).value(); }

// Returns once each context but `except` has begun to beat.
void beat_on_others(Runtime& runtime, unsigned contexts, unsigned except) {
    for (unsigned k = 0; k < contexts; ++k) {
        if (k == except) continue;
        std::promise<void> begun;
        Executor& at = runtime.context(k).executor();
        at.post([&] {
            beat(at);
            begun.set_value();
        });
        begun.get_future().wait();
    }
}

Task<void> never_ends() { (void)co_await sleep_for(1h); }

void check(const ChildOutput& output) {
    CAPTURE(output.text);
    CHECK(output.end == as_asked);
    CHECK(output.text.find("weft: exit() ") != std::string::npos);
}

TEST_CASE("exit() in a turn of one context ends the threads of the other contexts") {
    for (const unsigned at : {0u, 1u, 2u}) {
        CAPTURE(at);
        check(output_of_child([at] {
            ::alarm(20);
            static Last last{2};
            static Runtime runtime = make_runtime(3);
            beat_on_others(runtime, 3, at);
            runtime.context(at).executor().post([] { std::exit(as_asked); });
            while (true) ::pause();
            return 0;
        }));
    }
}

TEST_CASE("exit() in a turn of one context ends when another context waits for that turn") {
    for (const unsigned waits : {0u, 1u}) {
        CAPTURE(waits);
        check(output_of_child([waits] {
            ::alarm(20);
            static Last last{1};
            static Runtime runtime = make_runtime(3);
            static std::promise<void> begun;
            static std::latch never(1);
            beat_on_others(runtime, 2, waits);
            runtime.context(waits).executor().post([] {
                begun.set_value();
                never.wait();
            });
            begun.get_future().wait();
            runtime.context(2).executor().post([] { std::exit(as_asked); });
            while (true) ::pause();
            return 0;
        }));
    }
}

TEST_CASE("exit() ends the threads of all contexts but one that waits for another runtime") {
    for (const unsigned waits : {0u, 1u, 2u}) {
        CAPTURE(waits);
        check(output_of_child([waits] {
            ::alarm(20);
            static Last last{2};
            static Runtime awaited = make_runtime(1);
            static Runtime runtime = make_runtime(3);
            beat_on_others(runtime, 3, waits);
            runtime.context(waits).executor().post([] { awaited.block_on(never_ends()); });
            while (!core::BlockedTurn::is_context_blocked(impl_of(runtime).nodes[waits]->context))
                std::this_thread::yield();
            std::exit(as_asked);
            return 0;
        }));
    }
}

TEST_CASE("exit() in a turn of one runtime ends the threads of another one that is in use") {
    check(output_of_child([] {
        ::alarm(20);
        static Last last{2};
        static Runtime turned = make_runtime(1);
        static Runtime used = make_runtime(2);
        beat_on_others(used, 2, 2);
        std::thread([] { (void)used.run(); }).detach();
        while (!impl_of(used).is_in_use()) std::this_thread::yield();
        turned.executor().post([] { std::exit(as_asked); });
        while (true) ::pause();
        return 0;
    }));
}

}  // namespace
}  // namespace weft::contexts_exit_test
