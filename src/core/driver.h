// Adds a thread to a context: turns it, spins while that pays, sleeps when it doesn't. Or provides
// the descriptor that it sleeps on to an event loop that has a thread already.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <system_error>
#include <thread>

#include <weft/options.h>

#include "base/assert.h"
#include "base/thread_annotations.h"
#include "base/unique_fd.h"
#include "core/context.h"
#include "core/load_meter.h"

namespace weft::core {

struct DriverOptions {
    WaitMode wait = WaitMode::adaptive;
    Duration spin = RuntimeOptions().spin;
    std::optional<unsigned> cpu;
    std::optional<unsigned> number{};  // Of the context, for the thread's name; nullopt: it is one.
};

// RESOURCE_EXHAUSTED: `error` by base::start_internal_thread().
Status no_thread(const std::system_error& error);

class Driver {
  public:
    Driver(Context& context, base::Clock& clock, DriverOptions options);
    ~Driver();  // stop()

    // False: the system gave no descriptor to sleep on; it must not be started.
    bool is_usable() const { return bool(epoll_); }
    // Requires: stopped, for good.
    void close() {
        WEFT_ASSERT(!running());
        epoll_.reset();
    }
    // Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (the cpu).
    Status start();
    // Ends and joins the thread, however long its turn takes; `on_slow` is called once when that
    // takes blocked_min. Thread: any but the context's. False, in exit() only: its turn waits for
    // another context; the thread keeps running, and this must live as long as the process.
    bool stop(const std::function<void()>& on_slow = {});
    // The thread takes no turn after its current one, which stop() waits for. Thread: as stop().
    void request_stop();
    // In exit(), called in a turn of another context: the same as stop(), but waits blocked_min
    // after the first request at most, since the thread's turn may wait for the caller. False: it
    // has not ended, and this must live as long as the process.
    bool stop_in_turn();
    bool running() const { return thread_.joinable(); }
    // In a forked child: ends loop() after the turn that forked.
    void on_forked() noexcept { stop_.store(true, std::memory_order_relaxed); }
    // Called after a turn of its thread that took longer than blocked_min. Set before start().
    static constexpr Duration blocked_min = 1s;
    void set_on_blocked(Function<void(Duration)> callback) {
        WEFT_ASSERT(!running());
        on_blocked_ = std::move(callback);
    }

    // Counts the calls of the context, as for LoadMeter::add(). Set before start().
    void set_call_counter(Function<CallCounts()> counter) {
        WEFT_ASSERT(!running());
        count_calls_ = std::move(counter);
    }

    // False: its thread waits for the loader, which runs constructors of a library. Thread: any.
    bool has_started() const { return has_started_; }
    // The begin of its thread's current turn; TimePoint{}: the thread sleeps, or there is none.
    // Thread: any.
    TimePoint turning_since() const { return turning_since_.load(std::memory_order_relaxed); }
    // How busy its thread is, in thousandths; 0 without one. Thread: any.
    std::uint32_t busy_share(TimePoint now) const { return load_.share(now); }
    // Of the last second, about; 0 without a thread of its own. Thread: any.
    CallRates call_rates(TimePoint now) const { return load_.rates(now); }

    // One turn, then a sleep of at most `longest` when there was nothing to do. For callers that
    // are the context's thread themselves.
    std::uint32_t turn_and_wait(Duration longest);
    // The sleep alone, after a turn at `now` that had nothing to do.
    void wait(TimePoint now, Duration longest);

    // For external event loops. After arm_for_loop() wait_fd() becomes readable when the context
    // has work, or is turned by the loop or by the program. next_deadline() is when it has work
    // without an arrival. Thread: the context's.
    bool arm_for_loop();
    // After the program's turn_and_wait(), which consumes what the loop waits for: makes wait_fd()
    // readable.
    void notify_loop();
    int wait_fd() const { return epoll_.get(); }
    TimePoint next_deadline() const;

    // A transport was added: watch its descriptor too. Thread: the context's.
    void watch_endpoints();

  private:
    bool has_ended_in_exit();
    bool watch(int fd) const;
    void loop();
    void check_turn_duration(TimePoint from, TimePoint to) {
        if (to - from > blocked_min && on_blocked_) [[unlikely]] {
            on_blocked_(to - from);
        }
    }
    void sleep(TimePoint now, Duration longest);

    // For BlockedTurn, which reads it with end_mutex_.
    const bool& end_flag() const WEFT_UNCHECKED_THREADS { return has_ended_; }
    // Whether the thread has ended, at `by` of the steady clock.
    bool await_end(TimePoint by) WEFT_EXCLUDES(end_mutex_);

    // ---- of the context's thread
    Context& context_;
    base::Clock& clock_;
    const DriverOptions options_;
    base::UniqueFd epoll_;
    std::size_t watched_ = 0;
    bool loop_armed_ = false;  // By the last arm_for_loop().
    bool can_sleep_ = true;    // Every endpoint has a descriptor that is watched.
    Function<void(Duration)> on_blocked_;
    Function<CallCounts()> count_calls_;

    // ---- of any thread
    std::atomic<bool> stop_{false};
    std::atomic<bool> has_started_{false};
    std::atomic<TimePoint> turning_since_{TimePoint{}};
    LoadMeter load_;
    base::Mutex end_mutex_;
    bool has_ended_ WEFT_GUARDED_BY(end_mutex_) = false;
    std::condition_variable end_changed_;

    // ---- of the thread that starts and stops
    std::thread thread_;
    TimePoint slow_at_ = never;  // When its end is slow; set by the first request_stop().
    bool is_abandoned_ = false;  // By stop() or stop_in_turn().
};

}  // namespace weft::core
