// The owner of a context while its first thread begins to turn it.
#include "core/thread_ownership.h"

#include <future>

#include "base/log.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "core/context.h"
#include "support/catch.h"
#include "support/wait_for.h"

namespace weft::core_thread_ownership_test {
namespace {

using namespace weft::test;

// Another thread that begins to turn, or gives the context away, and waits for this one.
template <class Result>
std::future<Result> beside(core::ThreadOwnership& context,
                           Result (core::ThreadOwnership::*operation)()) {
    auto pending = std::async(std::launch::async, operation, &context);
    CHECK(wait_for([&] { return context.is_first_turn_pending(); }));
    return pending;
}
std::future<bool> begins_beside(core::ThreadOwnership& context) {
    return beside(context, &core::ThreadOwnership::end_borrowing);
}

TEST_CASE("thread ownership: a thread's first turn waits until no thread borrows turns") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();  // As the creator.
    std::future<bool> begins;
    {
        const core::ThreadOwnership::BorrowedTurns turns(context);
        REQUIRE(turns);
        begins = begins_beside(context);
        CHECK_FALSE(core::ThreadOwnership::BorrowedTurns(context));
        CHECK_FALSE(context.has_turned());
        CHECK(core::ThreadOwnership::UseGuard(context));
    }
    CHECK(begins.get());
    CHECK(context.has_turned());
    CHECK_FALSE(context.on_thread());
    CHECK_FALSE(core::ThreadOwnership::UseGuard(context));
}

TEST_CASE("thread ownership: a thread's first turn waits until its creator's use has ended") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();
    std::future<bool> begins;
    {
        const core::ThreadOwnership::UseGuard here(context);
        REQUIRE(here);
        CHECK_FALSE(context.on_thread());
        begins = begins_beside(context);
        CHECK_FALSE(context.has_turned());
        CHECK(context.require_end_on_thread("what is destroyed there"));
    }
    CHECK(begins.get());
    CHECK_FALSE(context.is_owner_or_creator());
    CHECK_FALSE(core::ThreadOwnership::UseGuard(context));
}

TEST_CASE("thread ownership: a thread's first turn waits until the creator's turn has ended") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();
    std::future<bool> begins;
    {
        const core::ThreadOwnership::TurnPermit turns(context);
        REQUIRE(turns);
        CHECK_FALSE(context.end_borrowing());  // As a nested turn on this thread does.
        begins = begins_beside(context);
        CHECK_FALSE(context.end_borrowing());
        CHECK_FALSE(context.has_turned());
    }
    CHECK(begins.get());
    CHECK_FALSE(core::ThreadOwnership::TurnPermit(context));
}

TEST_CASE("thread ownership: giving a context away waits until its creator's use has ended") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();
    std::future<void> gives;
    {
        const core::ThreadOwnership::UseGuard here(context);
        REQUIRE(here);
        gives = beside(context, &core::ThreadOwnership::give_away);
        CHECK(core::ThreadOwnership::UseGuard(context));
    }
    gives.get();
    CHECK_FALSE(core::ThreadOwnership::UseGuard(context));
}

TEST_CASE("thread ownership: a context is given away although others keep borrowing its turns") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();
    std::future<void> gives;
    {
        const core::ThreadOwnership::BorrowedTurns turns(context);
        REQUIRE(turns);
        gives = beside(context, &core::ThreadOwnership::give_away);
        CHECK_FALSE(core::ThreadOwnership::BorrowedTurns(context));
    }
    gives.get();
    CHECK_FALSE(context.is_first_turn_pending());
    CHECK(core::ThreadOwnership::BorrowedTurns(context));
}

TEST_CASE("thread ownership: the creator can't use a context while a thread borrows its turns") {
    core::ThreadOwnership context;
    context.unbind_until_first_turn();
    std::promise<void> borrowed, seen;
    std::future<bool> borrows = std::async(std::launch::async, [&] {
        const core::ThreadOwnership::BorrowedTurns turns(context);
        borrowed.set_value();
        seen.get_future().wait();
        return static_cast<bool>(turns);
    });
    borrowed.get_future().wait();
    CHECK_FALSE(core::ThreadOwnership::UseGuard(context));
    seen.set_value();
    CHECK(borrows.get());
    // From then on only turns use the context.
    CHECK_FALSE(core::ThreadOwnership::UseGuard(context));
    CHECK(context.is_on_other_thread());
}

// Two contexts of one runtime and one of another, turned by this thread.
struct Contexts {
    base::ManualClock clock;
    base::SeededRandom random{1};
    base::Log log{LogLevel::off, {}};
    core::Context first{clock, random, log};
    core::Context second{clock, random, log};
    core::Context other{clock, random, log};

    Contexts() { second.join_family(first, 1); }
    void turn_all() {
        for (core::Context* one : {&first, &second, &other}) one->turn(clock.now());
    }
};

TEST_CASE(
    "thread ownership: in a turn the other contexts of its runtime are not the thread's own") {
    Contexts contexts;
    contexts.turn_all();
    CHECK((contexts.first.on_thread() && contexts.second.on_thread()));
    int ran = 0;
    contexts.first.post([&] {
        ++ran;
        CHECK(contexts.first.on_thread());
        CHECK_FALSE(contexts.second.on_thread());
        CHECK(contexts.second.is_on_other_thread());
        CHECK_FALSE(core::ThreadOwnership::UseGuard(contexts.second));
        CHECK_FALSE(core::ThreadOwnership::TurnPermit(contexts.second));
        CHECK(contexts.other.on_thread());
        // Inside a turn of another runtime, which a handler turns.
        contexts.other.post([&] {
            ++ran;
            CHECK(contexts.other.on_thread());
            CHECK(contexts.first.on_thread());
        });
        contexts.other.turn(contexts.clock.now());
    });
    contexts.first.turn(contexts.clock.now());
    CHECK(ran == 2);
    CHECK((contexts.first.on_thread() && contexts.second.on_thread()));
}

TEST_CASE("thread ownership: a creator has no use of a context in a turn of its relative") {
    Contexts contexts;
    contexts.second.unbind_until_first_turn();
    CHECK(core::ThreadOwnership::UseGuard(contexts.second));
    bool ran = false;
    contexts.first.post([&] {
        ran = true;
        CHECK_FALSE(contexts.second.is_creator_thread());
        CHECK_FALSE(core::ThreadOwnership::UseGuard(contexts.second));
    });
    contexts.first.turn(contexts.clock.now());
    CHECK(ran);
    CHECK(core::ThreadOwnership::UseGuard(contexts.second));
}

}  // namespace
}  // namespace weft::core_thread_ownership_test
