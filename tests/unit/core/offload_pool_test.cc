#include <signal.h>

#include <atomic>
#include <future>
#include <system_error>

#include "support/catch.h"

#include "core/offload_pool.h"
#include "support/no_more_threads.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("an offload pool starts a thread for work only while others are busy") {
    core::OffloadPool pool(2);
    CHECK(pool.is_idle());
    std::promise<void> go;
    const std::shared_future<void> gate = go.get_future().share();
    std::promise<void> both;
    std::atomic<int> running{0}, ran{0};
    for (int i = 0; i < 20; ++i) {
        pool.run([&, gate] {
            if (++running == 2) both.set_value();
            gate.wait();
            ++ran;
        });
    }
    REQUIRE(both.get_future().wait_for(test_timeout) == std::future_status::ready);
    CHECK_FALSE(pool.is_idle());
    CHECK(running == 2);
    go.set_value();
    pool.stop();
    CHECK(ran == 20);
    bool late = false;
    pool.run([&] { late = true; });
    CHECK_FALSE(late);
}

TEST_CASE("no signal is delivered on an offload thread") {
    core::OffloadPool pool(1);
    std::promise<bool> blocked;
    pool.run([&] {
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, nullptr, &mask);
        blocked.set_value(sigismember(&mask, SIGTERM) == 1);
    });
    CHECK(blocked.get_future().get());
    sigset_t mine;
    pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    CHECK(sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("work is refused when no thread can be created, or waits for an existing one") {
    core::OffloadPool pool(2);
    bool refused_work_ran = false;
    {
        const NoMoreThreads limit;
        REQUIRE_THROWS_AS(pool.run([&] { refused_work_ran = true; }), core::NoThread);
    }
    CHECK(pool.is_idle());
    std::promise<void> started, go;
    pool.run([&] {
        started.set_value();
        go.get_future().wait();
    });
    REQUIRE(started.get_future().wait_for(test_timeout) == std::future_status::ready);
    std::promise<void> second;
    {
        const NoMoreThreads limit;
        pool.run([&] { second.set_value(); });
    }
    CHECK_FALSE(pool.is_idle());
    go.set_value();
    CHECK(second.get_future().wait_for(test_timeout) == std::future_status::ready);
    pool.stop();
    CHECK_FALSE(refused_work_ran);
}
