// Time for coroutines, on the clock of their context. In a simulation (weft/sim.h) that is virtual
// time.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>

#include <weft/executor.h>
#include <weft/reference_awaiter.h>
#include <weft/status.h>
#include <weft/task.h>
#include <weft/time.h>

namespace weft {

// The time of this thread's context. Outside of any context: the virtual time in all code that a
// simulation runs (weft/sim.h: programs of hosts, functions of run_until() and in()), else the time
// of the steady clock. Thread: any. Cost: 10 to 30 ns.
TimePoint now();

namespace detail {

// FAILED_PRECONDITION: the result of an operation that is awaited where no context could resume it.
Status no_context_status();

// Waits for an instant, or for notify(). The awaiting coroutine continues in a turn, on the context
// and as a part of the call that the alarm was made in.
//
// Stays in place: the context holds its address. Thread: the context's; destroying it before its
// end on another one aborts the program with a message.
class Alarm {
  public:
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

    bool await_ready() const noexcept { return is_done_; }

  protected:
    enum class WakeReason : std::uint8_t {
        none,
        notified,
        elapsed,          // The time has passed.
        deadline_passed,  // The call's deadline passed before that.
        cancelled,        // The call was cancelled.
        runtime_ended,    // The runtime ended.
        no_context,       // No context to resume in, or the parent process's.
    };

    Alarm();
    ~Alarm();

    bool has_home() const { return home_ != nullptr; }
    // Aborts with "weft: CALL: WHY" on a thread that does not turn its context.
    void require_home_thread(const char* call, const char* why);
    WakeReason wake_reason() const { return wake_reason_; }
    Status why_no_context();
    // Waits that long, or until its call or its runtime ends.
    void sleep(Duration time);
    // Waits that long, or until its runtime has ended, independent of any call.
    void limit(Duration time);
    // Waits for notify() only, which may be called after the end of its runtime.
    void wait_for_notify();
    // Without effect after the end of the wait. Returns the coroutine that the caller resumes now:
    // the awaiting one when its context has ended; else a no-op, and the awaiting one continues in
    // a later turn.
    std::coroutine_handle<> notify();
    // Makes the alarm ready to be awaited again; that await ends with notify().
    void reset();

  private:
    struct Node;
    template <class AnyOperation>
    friend class ReferenceAwaiter;
    static constexpr std::size_t node_bytes = 96;

    AwaiterSlot& awaiter_slot() { return awaiter_slot_; }
    Node& node();
    void arm(TimePoint at);
    void complete_later(WakeReason wake_reason);
    void finish();

    Executor* const home_;
    AwaiterSlot awaiter_slot_;
    WakeReason wake_reason_ = WakeReason::none;
    bool is_done_ = false;
    bool ends_at_call_deadline_ = false;  // That is earlier than the end of the sleep.
    bool context_ended_ = false;          // It may be destroyed.
    alignas(void*) std::byte node_[node_bytes];
};

}  // namespace detail

// The operation that `co_await sleep_for(...)` awaits.
class [[nodiscard]] Sleep : public detail::Alarm {
  public:
    Sleep(const Sleep&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "sleep_for()";
    Status await_resume();
    detail::ReferenceAwaiter<Sleep> operator co_await() { return detail::ReferenceAwaiter(*this); }

  private:
    friend Sleep sleep_for(Duration time);
    explicit Sleep(Duration time) { sleep(time); }
};

// `co_await sleep_for(20ms)`: OK when that time has passed since this function was called, never
// earlier and, on a thread with no other work, up to 1.05 ms later. Of that, 0.05 ms is the timer
// slack of the thread that turns (TimerSlackNSec= of a service: a larger one adds to the delay).
// With a zero or negative time, work that the context already has to do runs first. No thread
// waits, and nothing is allocated.
//
// As an operation (weft/await.h) it gives its result once, resumes its awaiter on the executor that
// it was made on, and destroying it cancels it. In a handler a cancel or the deadline of the call
// ends it; the reply does not. A sleep that began before the reply keeps the call's deadline.
// Errors: CANCELLED when the call that it was made for is cancelled, or its runtime ends;
// DEADLINE_EXCEEDED when the deadline of that call is earlier; FAILED_PRECONDITION on a thread that
// turns no context, and in a forked child. After an error each later sleep fails at once: a loop
// that ignores it spins. Thread: one that turns a context.
//
// g++ 12: in a condition, name the status (weft/task.h, AwaitSafe):
//     if (Status slept = co_await sleep_for(2 * pause); !slept.ok()) co_return slept;
Sleep sleep_for(Duration time);

}  // namespace weft
