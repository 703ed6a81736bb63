// Time for coroutines, on the clock of the context that they run on: in a simulation (weft/sim.h)
// that is virtual time.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>

#include <weft/executor.h>
#include <weft/in_place.h>
#include <weft/status.h>
#include <weft/task.h>
#include <weft/time.h>

namespace weft {

// The time of the context that this thread is in. Outside of any: the virtual time in all that a
// simulation runs (weft/sim.h: programs of hosts, functions of run_until() and in()), else the time
// of the steady clock.
// Thread: any. Cost: 10 to 30 ns.
TimePoint now();

namespace detail {

// FAILED_PRECONDITION: what an operation comes to that is awaited where nothing could resume it.
Status nowhere();

// Waits for an instant, or for ring(). The coroutine that awaits it goes on in a turn, on the
// context and as a part of the call that the alarm was made in.
//
// Stays in place: the context has its address. Thread: the context's; to destroy it before its end
// on another one aborts the program and says so.
class Alarm {
  public:
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

    bool await_ready() const noexcept { return is_done_; }

  protected:
    enum class Outcome : std::uint8_t {
        none,
        rung,
        over,       // The time is.
        too_late,   // So is that of the call, earlier.
        cancelled,  // The call.
        ended,      // The runtime.
        nowhere,    // No context could resume anything here, or it is the parent process's.
    };

    Alarm();
    ~Alarm();

    bool has_home() const { return home_ != nullptr; }
    // Aborts with "weft: CALL: WHY" on a thread that does not turn its context.
    void require_home_thread(const char* call, const char* why);
    Outcome outcome() const { return outcome_; }
    Status why_nowhere();
    // That long, or until its call or its runtime ends.
    void sleep(Duration time);
    // That long, or until its runtime has ended; whatever call does.
    void limit(Duration time);
    // Until ring() only, which then may come after the end of its runtime.
    void wait_for_ring();
    // Nothing happens when it is over already. What waits goes on in a later turn; where none
    // comes any more, it is returned, to be resumed now.
    std::coroutine_handle<> ring();
    // To be awaited once more, until ring().
    void reset();

  private:
    struct Node;
    template <class AnyOperation>
    friend class InPlace;
    static constexpr std::size_t node_bytes = 96;

    Awaiting& awaiting() { return awaiting_; }
    Node& node();
    void arm(TimePoint at);
    void conclude(Outcome outcome);
    void finish();

    Executor* const home_;
    Awaiting awaiting_;
    Outcome outcome_ = Outcome::none;
    bool is_done_ = false;
    bool is_bounded_ = false;   // By the call's deadline.
    bool is_homeless_ = false;  // The context has had its last turn, and may be gone.
    alignas(void*) std::byte node_[node_bytes];
};

}  // namespace detail

// What `co_await sleep_for(...)` waits for.
class [[nodiscard]] Sleep : public detail::Alarm {
  public:
    Sleep(const Sleep&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "sleep_for()";
    Status await_resume();
    detail::InPlace<Sleep> operator co_await() { return detail::InPlace(*this); }

  private:
    friend Sleep sleep_for(Duration time);
    explicit Sleep(Duration time) { sleep(time); }
};

// `co_await sleep_for(20ms)`: OK when that time has passed since this function was called, never
// earlier and up to 1.05 ms later, of which 0.05 is the timer slack of the thread that turns
// (TimerSlackNSec= of a service: one that is larger comes on top). Without a time, or with a
// negative one, the work that the context has to do already goes first. No thread waits, and
// nothing is allocated.
//
// As an operation (weft/await.h) it gives its result once, resumes on the executor it was made on,
// and destroying it cancels it. In a handler it ends with the call; one that was made before the
// reply and goes on after it still ends at the call's deadline.
// Errors: CANCELLED when the call that it was made for is cancelled, or its runtime ends;
// DEADLINE_EXCEEDED when the deadline of that call comes first; FAILED_PRECONDITION on a thread
// that turns no context, and in a forked child. A loop that sleeps ends on an error: from then on
// no sleep takes time. Thread: one that turns a context.
//
// g++ 12: in a condition, name the status (weft/task.h, AwaitSafe):
//     if (Status slept = co_await sleep_for(2 * pause); !slept.ok()) co_return slept;
Sleep sleep_for(Duration time);

}  // namespace weft
