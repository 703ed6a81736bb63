// exit() while a runtime with several contexts is of static storage: no context runs a handler once
// the destructor of the runtime has returned.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "core/blocked_turn.h"
#include "support/child.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"

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

// ---- exit() while another thread waits for contexts
// ----------------------------------------------

constexpr MethodId plain_method("test.ContextsExit/Plain"), other_method("test.ContextsExit/Other");

struct PlainService final : Service {
    explicit PlainService(const MethodId& method) : own(method) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(own, [](Call call) { call.reply({}); });
    }
    const MethodId own;
};

// Destroyed after the runtime. The program ends as asked once `calls` have returned this.
struct LastCalls {
    LastCalls(int all, Code wanted) : calls(all), expected(wanted) {}
    ~LastCalls() {
        for (int left = calls; left != 0; left = calls) calls.wait(left);
        ::_exit(are_right ? as_asked : still_turned);
    }
    void end(const Status& status) {
        if (status.code() != expected) are_right = false;
        --calls;
        calls.notify_one();
    }
    std::atomic<int> calls;
    const Code expected;
    std::atomic<bool> are_right{true};
};

enum class Serving { serve, add, add_fails };

struct ServingExit {
    Serving call;
    unsigned blocked;         // The context where the function runs while exit() ends the others.
    bool has_static_service;  // exit() destroys it before the runtime, which it leaves as it is.
    Code expected;
};

// exit() on this thread while another one serves: the function returns on one of two contexts once
// the thread of the other one has ended.
int exit_while_serving(const ServingExit& with) {
    ::alarm(20);
    static LastCalls last(1, with.expected);
    static Runtime runtime = make_runtime(2);
    static std::optional<PlainService> used;
    if (with.has_static_service) {
        used.emplace(other_method);
        if (!runtime.add(shared(*used)).ok()) return 1;
    }
    std::promise<void> marked;
    runtime.context(1 - with.blocked).executor().post([&] {
        thread_end.is_used = true;
        marked.set_value();
    });
    marked.get_future().wait();
    static std::atomic<bool> begun{false};
    std::thread([with] {
        ServiceFactory make = [with](const Here& here) -> std::unique_ptr<Service> {
            if (here.index == with.blocked) {
                begun = true;
                begun.notify_one();
                while (ended == 0) std::this_thread::yield();
            }
            if (here.index == 1 && with.call == Serving::add_fails) return nullptr;
            return std::make_unique<PlainService>(plain_method);
        };
        last.end(with.call == Serving::serve ? runtime.serve(std::move(make), fresh_uri("sm"))
                                             : runtime.add(std::move(make)));
        while (true) ::pause();
    }).detach();
    begun.wait(false);
    std::exit(as_asked);
}

TEST_CASE("exit() while a thread is in serve() or add() of several contexts fails that call") {
    const auto unavailable = Code::unavailable, invalid = Code::invalid_argument;
    for (const bool has_static_service : {false, true}) {
        for (const ServingExit& with : {ServingExit{Serving::serve, 1, false, unavailable},
                                        ServingExit{Serving::serve, 0, false, unavailable},
                                        ServingExit{Serving::add, 1, false, unavailable},
                                        ServingExit{Serving::add, 0, false, unavailable},
                                        ServingExit{Serving::add_fails, 1, false, invalid}}) {
            CAPTURE(has_static_service, static_cast<int>(with.call), with.blocked);
            ServingExit used = with;
            used.has_static_service = has_static_service;
            const ChildOutput output = output_of_child([&] { return exit_while_serving(used); });
            CAPTURE(output.text);
            CHECK(output.end == as_asked);
        }
    }
}

TEST_CASE("operations on a runtime that exit() has left as it is fail on threads of the program") {
    for (const unsigned contexts : {1u, 2u}) {
        CAPTURE(contexts);
        check(output_of_child([contexts] {
            ::alarm(20);
            using Impl = api::RuntimeImpl;
            static const GroupView view = GroupView::make("exit", 1, {{0, {"sm://exit"}}}).value();
            static PlainService added(plain_method);
            static std::optional<Group> group;
            static std::optional<Channel> channel;
            static const Status returned = fail(Code::unavailable, "a call without a status");
            static constexpr Status (*calls[])(Impl&) = {
                [](Impl& of) { return of.connect({"sm://exit"}, {}).status(); },
                [](Impl& of) { return of.expose(Buffer(), {}).status(); },
                [](Impl& of) { return of.group(view).status(); },
                [](Impl& of) { return of.join(view, 0); },
                [](Impl& of) { return of.add({.service = &added, .is_shared = true}); },
                [](Impl& of) { return of.listen("sm://exit"); },
                [](Impl&) { return group->install(view); },
                [](Impl&) { return group->channel(0).status(); },
                [](Impl&) {
                    group->on_change([](const MemberChange&) {});
                    return returned;
                },
                [](Impl&) {
                    (void)channel->on(1);
                    return returned;
                },
            };
            static LastCalls last(static_cast<int>(std::size(calls)), Code::unavailable);
            static Runtime runtime = make_runtime(contexts);
            static PlainService used(other_method);  // exit() destroys it first.
            if (!runtime.add(shared(used)).ok()) return 1;
            group = runtime.group(view).value();
            channel = runtime.connect("sm://exit").value();
            for (const auto call : calls) {
                std::thread([call, impl = impl_of(runtime).shared_from_this()] {
                    while (!impl->commons.is_abandoned) std::this_thread::yield();
                    last.end(call(*impl));
                    while (true) ::pause();
                }).detach();
            }
            std::exit(as_asked);
        }));
    }
}

TEST_CASE("exit() in a turn of one runtime waits for a turn of another one for a second at most") {
    check(output_of_child([] {
        ::alarm(20);
        static Last last{0};
        static std::latch never(1);
        static std::promise<void> begun;
        static Runtime turned = make_runtime(1);
        static Runtime busy = make_runtime(2);
        busy.context(1).executor().post([] {
            begun.set_value();
            never.wait();
        });
        begun.get_future().wait();
        turned.executor().post([] { std::exit(as_asked); });
        while (true) ::pause();
        return 0;
    }));
}

}  // namespace
}  // namespace weft::contexts_exit_test
