// A group file in a forked child, and in a parent while its child runs.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <memory>

#include "support/catch.h"
#include "support/child.h"
#include "support/group_file.h"

using namespace weft;
using test::admitting;
using test::GroupDirectory;

TEST_CASE("a forked child may follow with its parent's authority until it destroys that") {
    if (!test::can_start_threads_in_child) return;
    const GroupDirectory at;
    for (const bool parent_follows : {false, true}) {
        INFO(parent_follows);
        std::promise<void> told;
        auto authority = at.authority();
        if (parent_follows) {
            // A thread that begins holds locks of the sanitizers, which forked children inherit.
            const auto tell = [&](const GroupView&) { told.set_value(); };
            REQUIRE(authority->follow(tell, {}).ok());
            told.get_future().wait();
        }
        const int end = test::end_of_child([&] {
            auto held = std::make_shared<int>();
            const std::weak_ptr<int> callback = held;
            if (!authority->follow([held](const GroupView&) {}, {}).ok()) return 1;
            held.reset();
            if (authority->follow([](const GroupView&) {}, {}).ok()) return 2;
            if (callback.expired()) return 3;
            authority.reset();
            return callback.expired() ? 0 : 4;
        });
        CHECK(end == 0);
    }
}

TEST_CASE("a change releases its lock while a child that was forked inside it still runs") {
    const GroupDirectory at;
    // In a separate process, since a lock that is never released blocks for ever.
    const int end = test::end_of_child([&] {
        pid_t child = -1;
        const auto forking = [&](const GroupView& view) {
            child = ::fork();
            if (child == 0) {
                ::alarm(30);
                ::pause();
                ::_exit(0);
            }
            return admitting(5)(view);
        };
        if (!at.authority()->change(forking).ok()) return 1;
        ::alarm(15);
        const bool changed = at.authority()->change(admitting(6)).ok();
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        return changed ? 0 : 2;
    });
    CHECK(end == 0);
}
