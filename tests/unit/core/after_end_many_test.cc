// Many tasks that depend on each other while their runtime ends.
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <weft/runtime.h>
#include <weft/sleep.h>

#include "support/catch.h"
#include "support/open_files.h"
#include "support/resume_soon.h"

namespace weft::after_end_many_test {
namespace {

using namespace weft::test;

struct Holds {
    Channel channel;
    std::shared_ptr<int> rounds = std::make_shared<int>(0);
};

// Many tasks are cancelled; each resumes the one task that waits for all of them.
struct Collected {
    int left = 3000;
    std::coroutine_handle<> waiting;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { waiting = awaiting; }
    void await_resume() const {}
};

Task<void> collects(Collected& all, bool& has_ended) {
    while (all.left > 0) co_await all;
    has_ended = true;
}

Task<void> tells(Collected& all) {
    (void)co_await sleep_for(1h);
    --all.left;
    if (all.waiting) std::exchange(all.waiting, nullptr).resume();
}

Task<void> many_sleeps(int& cancelled) {
    std::vector<std::unique_ptr<Sleep>> sleeps;
    sleeps.reserve(3000);
    for (int i = 0; i < 3000; ++i) sleeps.emplace_back(new auto(sleep_for(1h)));
    for (const auto& sleep : sleeps) cancelled += !(co_await *sleep).ok();
}

TEST_CASE("a task that waits for many others completes when their runtime ends") {
    Collected all;
    bool has_ended = false;
    int cancelled = 0;
    {
        Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
        runtime.spawn(collects(all, has_ended));
        for (int i = all.left; i > 0; --i) runtime.spawn(tells(all));
        runtime.spawn(many_sleeps(cancelled));
        runtime.turn();
    }
    CHECK(all.left == 0);
    CHECK(has_ended);
    CHECK(cancelled == 3000);
}

// A lock with waiters in order of arrival; the destructor of its holder passes it to the next one.
class Lock {
  public:
    explicit Lock(bool posts) : posts_(posts) {}
    class Held {
      public:
        explicit Held(Lock& lock) : lock_(lock) {}
        Held(const Held&) = delete;
        ~Held() {
            lock_.waiting_.remove(this);
            if (has_it_) lock_.give();
        }
        bool await_ready() {
            has_it_ = !std::exchange(lock_.is_taken_, true);
            return has_it_;
        }
        void await_suspend(std::coroutine_handle<> awaiting) {
            awaiting_ = awaiting;
            lock_.waiting_.push_back(this);
        }
        void await_resume() const {}

      private:
        friend Lock;
        Lock& lock_;
        std::coroutine_handle<> awaiting_;
        bool has_it_ = false;
    };

  private:
    void give() {
        is_taken_ = !waiting_.empty();
        if (waiting_.empty()) return;
        Held& next = *waiting_.front();
        waiting_.pop_front();
        next.has_it_ = true;
        if (posts_) {
            resume_soon(next.awaiting_);
        } else {
            next.awaiting_.resume();
        }
    }
    const bool posts_;
    bool is_taken_ = false;
    std::list<Held*> waiting_;
};

Task<void> one_at_a_time(Holds held, std::shared_ptr<Lock> lock, bool repeats) {
    do {
        ++*held.rounds;
        Lock::Held own(*lock);
        co_await own;
        const Status slept = co_await sleep_for(1us);
        if (!slept.ok() && !repeats) co_return;
    } while (true);
}

TEST_CASE("many tasks that wait for one lock of the program end with their runtime") {
    for (const bool posts : {false, true}) {
        for (const bool repeats : {false, true}) {
            INFO(posts << repeats);
            const int before = open_files();
            std::weak_ptr<int> rounds;
            {
                Runtime runtime =
                    Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
                Holds held{runtime.connect("tcp://127.0.0.1:9").value()};
                rounds = held.rounds;
                const auto lock = std::make_shared<Lock>(posts);
                for (int i = 0; i < 3000; ++i) runtime.spawn(one_at_a_time(held, lock, repeats));
                for (int i = 0; i < 10; ++i) runtime.turn();
            }
            CHECK(rounds.expired());
            CHECK(open_files() == before);
        }
    }
}

}  // namespace
}  // namespace weft::after_end_many_test
