// Operations that submitted work awaits on another context than their own; callables that contexts
// share or keep; a context after the end of its runtime.
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/sleep.h>

#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/owned_coroutine.h"

using namespace weft;
using namespace weft::test;

namespace {
namespace submitted_operations {

// What the work throws; empty: nothing.
template <class Work>
Task<std::string> why_refused(ContextRef at, const Work& work) {
    std::string why;
    try {
        co_await at.submit(work);
    } catch (const std::logic_error& error) {
        why = error.what();
    }
    co_return why;
}

bool is_refused(const std::string& why, const std::string& what) {
    return why.find("co_await of an operation on another context than its own: " + what) == 0;
}

template <class Operation>
OwnedCoroutine await_owned(Operation& operation) {
    (void)co_await operation;
}

}  // namespace submitted_operations
}  // namespace

TEST_CASE("submit: work that awaits an operation of another context is refused") {
    NumberedServer server(1, fresh_uri("unix"));
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    const Channel channel = runtime.connect(server.address()).value();
    const auto from = [&](unsigned k) -> Task<std::vector<std::string>> {
        std::vector<std::string> all;
        auto number = call(channel, number_method, {});
        auto pause = sleep_for(1ms);
        const auto awaits_call = [&]() -> Task<void> { (void)co_await number; };
        const auto awaits_pause = [&]() -> Task<void> { (void)co_await pause; };
        const ContextRef there = runtime.context(1 - k);
        all.push_back(co_await submitted_operations::why_refused(there, awaits_call));
        all.push_back(co_await submitted_operations::why_refused(there, awaits_pause));
        const auto reply = co_await number;
        const Status slept = co_await pause;
        const bool is_right = reply.ok();
        all.push_back(is_right ? slept.to_string() : reply.status().to_string());
        all.push_back(std::to_string(runtime.here().value_or(99)));
        co_return all;
    };
    unsigned k = 0;
    for (const std::vector<std::string>& all : runtime.block_on(runtime.on_all(from))) {
        CAPTURE(k, all);
        CHECK(submitted_operations::is_refused(all.at(0), "weft::call()"));
        CHECK(submitted_operations::is_refused(all.at(1), "sleep_for()"));
        CHECK(all.at(2) == Status().to_string());
        CHECK(all.at(3) == std::to_string(k++));
    }
    CHECK(k == 2);
}

TEST_CASE("submit: a submission is refused when another context awaits it again") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    std::string why;
    const auto go = [&]() -> Task<int> {
        const auto five = [] { return 5; };
        auto submission = runtime.context(1).submit(five);
        OwnedCoroutine first = submitted_operations::await_owned(submission);
        first.destroy();
        const auto awaits = [&]() -> Task<void> { (void)co_await submission; };
        why = co_await submitted_operations::why_refused(runtime.context(1), awaits);
        co_return co_await submission;
    };
    CHECK(runtime.block_on(go()) == 5);
    CAPTURE(why);
    CHECK(submitted_operations::is_refused(why, "submit()"));
}

TEST_CASE("on_all: the contexts use the one callable that was given, in place") {
    Runtime runtime = Runtime::create(with_contexts(3)).value();
    struct {
        std::vector<unsigned> got = std::vector<unsigned>(3);
        void operator()(unsigned k) { got[k] = k + 1; }
    } collect;
    runtime.block_on(runtime.on_all(collect));
    CHECK(collect.got == std::vector<unsigned>{1, 2, 3});
    auto move_only = [kept = std::make_unique<int>(7)](unsigned) { return *kept; };
    CHECK(runtime.block_on(runtime.on_all(move_only)) == std::vector<int>{7, 7, 7});
    CHECK(runtime.block_on(runtime.on_all([](unsigned k) { return k; })) ==
          std::vector<unsigned>{0, 1, 2});
}

TEST_CASE("context: a spawned callable is kept until its task has ended") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    std::promise<std::string> said;
    // The captures live in the coroutine frame, not in the destroyed lambda.
    runtime.context(1).spawn([&, text = std::string(100, 'x')]() -> Task<void> {
        (void)co_await sleep_for(1ms);
        said.set_value(text + std::to_string(runtime.here().value_or(99)));
    });
    CHECK(said.get_future().get() == std::string(100, 'x') + "1");
}

TEST_CASE("context: after the end of its runtime it runs work on the calling thread") {
    std::optional<Runtime> runtime = Runtime::create(with_contexts(2)).value();
    const ContextRef context = runtime->context(1);
    runtime.reset();
    int ran_here = 0;
    const auto note = [&, self = std::this_thread::get_id()] {
        ran_here += std::this_thread::get_id() == self;
    };
    std::vector<Code> slept;
    const auto work = [&]() -> Task<void> {
        note();
        slept.push_back((co_await sleep_for(1h)).code());
        note();
    };
    context.executor().post(note);
    CHECK(ran_here == 1);
    context.spawn(work);
    CHECK(ran_here == 3);
    context.block_on(work());
    CHECK(ran_here == 5);
    CHECK(slept == std::vector<Code>{Code::cancelled, Code::cancelled});
}
