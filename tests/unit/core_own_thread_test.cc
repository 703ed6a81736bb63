// Which thread a context belongs to while the first one begins to turn it.
#include "core/own_thread.h"

#include <future>

#include "support/catch.h"
#include "support/wait_for.h"

namespace weft::core_own_thread_test {
namespace {

using namespace weft::test;

TEST_CASE("own thread: a thread that begins to turn owns the context once none borrows its turns") {
    core::OwnThread context;
    context.adopt_thread();  // As the thread that makes it.
    std::future<bool> begins;
    {
        const core::OwnThread::Borrowed turns(context);
        REQUIRE(turns);
        begins = std::async(std::launch::async, [&] { return context.begin_turns(); });
        REQUIRE(wait_for([&] { return context.begins(); }));
        CHECK_FALSE(core::OwnThread::Borrowed(context));
        CHECK_FALSE(context.has_turned());
        CHECK(context.keep_turns().owns_lock());
    }
    CHECK(begins.get());
    CHECK(context.has_turned());
    CHECK_FALSE(context.on_thread());
    CHECK_FALSE(context.keep_turns().owns_lock());
}

}  // namespace
}  // namespace weft::core_own_thread_test
