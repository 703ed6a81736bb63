// Which thread a context belongs to while the first one begins to turn it.
#include "core/own_thread.h"

#include <future>

#include "support/catch.h"
#include "support/wait_for.h"

namespace weft::core_own_thread_test {
namespace {

using namespace weft::test;

// Another thread that begins to turn, or gives the context away, and waits for this one.
template <class Result>
std::future<Result> beside(core::OwnThread& context, Result (core::OwnThread::*does)()) {
    auto going = std::async(std::launch::async, does, &context);
    CHECK(wait_for([&] { return context.begins(); }));
    return going;
}
std::future<bool> begins_beside(core::OwnThread& context) {
    return beside(context, &core::OwnThread::begin_turns);
}

TEST_CASE("own thread: a thread that begins to turn owns the context once none borrows its turns") {
    core::OwnThread context;
    context.wait_for_turns();  // As the thread that makes it.
    std::future<bool> begins;
    {
        const core::OwnThread::Borrowed turns(context);
        REQUIRE(turns);
        begins = begins_beside(context);
        CHECK_FALSE(core::OwnThread::Borrowed(context));
        CHECK_FALSE(context.has_turned());
        CHECK(core::OwnThread::Here(context));
    }
    CHECK(begins.get());
    CHECK(context.has_turned());
    CHECK_FALSE(context.on_thread());
    CHECK_FALSE(core::OwnThread::Here(context));
}

TEST_CASE("own thread: what its maker does with a context is over before another thread turns it") {
    core::OwnThread context;
    context.wait_for_turns();
    std::future<bool> begins;
    {
        const core::OwnThread::Here here(context);
        REQUIRE(here);
        CHECK_FALSE(context.on_thread());
        begins = begins_beside(context);
        CHECK_FALSE(context.has_turned());
        CHECK(context.require_end_here("what is destroyed there"));
    }
    CHECK(begins.get());
    CHECK_FALSE(context.may_be_here());
    CHECK_FALSE(core::OwnThread::Here(context));
}

TEST_CASE("own thread: the maker of a context turns it before another thread does, not beside it") {
    core::OwnThread context;
    context.wait_for_turns();
    std::future<bool> begins;
    {
        const core::OwnThread::Turning turns(context);
        REQUIRE(turns);
        CHECK_FALSE(context.begin_turns());  // As a turn of its own does.
        begins = begins_beside(context);
        CHECK_FALSE(context.begin_turns());
        CHECK_FALSE(context.has_turned());
    }
    CHECK(begins.get());
    CHECK_FALSE(core::OwnThread::Turning(context));
}

TEST_CASE("own thread: a context is given away behind what its maker does with it") {
    core::OwnThread context;
    context.wait_for_turns();
    std::future<void> gives;
    {
        const core::OwnThread::Here here(context);
        REQUIRE(here);
        gives = beside(context, &core::OwnThread::give_away);
        CHECK(core::OwnThread::Here(context));
    }
    gives.get();
    CHECK_FALSE(core::OwnThread::Here(context));
}

TEST_CASE("own thread: a context is given away although others borrow its turns on and on") {
    core::OwnThread context;
    context.wait_for_turns();
    std::future<void> gives;
    {
        const core::OwnThread::Borrowed turns(context);
        REQUIRE(turns);
        gives = beside(context, &core::OwnThread::give_away);
        CHECK_FALSE(core::OwnThread::Borrowed(context));
    }
    gives.get();
    CHECK_FALSE(context.begins());
    CHECK(core::OwnThread::Borrowed(context));
}

TEST_CASE("own thread: the maker of a context leaves it to a thread that borrows the turns") {
    core::OwnThread context;
    context.wait_for_turns();
    std::promise<void> borrowed, seen;
    std::future<bool> borrows = std::async(std::launch::async, [&] {
        const core::OwnThread::Borrowed turns(context);
        borrowed.set_value();
        seen.get_future().wait();
        return static_cast<bool>(turns);
    });
    borrowed.get_future().wait();
    CHECK_FALSE(core::OwnThread::Here(context));
    seen.set_value();
    CHECK(borrows.get());
    // From then on it is used by turns only.
    CHECK_FALSE(core::OwnThread::Here(context));
    CHECK(context.is_elsewhere());
}

}  // namespace
}  // namespace weft::core_own_thread_test
