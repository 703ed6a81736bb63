#include "core/driver.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/exiting.h"
#include "base/fork.h"
#include "base/internal_thread.h"
#include "base/own_descriptor.h"
#include "base/wait_for_events.h"
#include "core/blocked_turn.h"
#include "core/spin_yield.h"

namespace weft::core {

// An endpoint without a descriptor is polled at least this often while the thread sleeps.
static constexpr Duration poll_interval = 500us;

Status no_thread(const std::system_error& error) {
    return fail(Code::resource_exhausted,
                "no thread for the context (" + base::thread_limits_text() + "): " + error.what());
}

Driver::Driver(Context& context, base::Clock& clock, DriverOptions options)
    : context_(context),
      clock_(clock),
      options_(options),
      epoll_(base::UniqueFd::close_on_fork([&] { return epoll_create1(EPOLL_CLOEXEC); })) {
    // Without descriptors it is not usable. Checked first: watch() takes a missing one for a closed
    // one.
    if (!epoll_ || context_.wake_fd() < 0 || !watch(context_.wake_fd())) epoll_.reset();
    watch_endpoints();
}

bool Driver::watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    return base::check_open(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event)) == 0;
}

Driver::~Driver() { stop(); }

void Driver::watch_endpoints() {
    const auto& endpoints = context_.endpoints();
    WEFT_ASSERT(watched_ <= endpoints.size());
    for (; watched_ < endpoints.size(); ++watched_) {
        EndpointSlot& slot = *endpoints[watched_];
        // An endpoint that can't be watched is polled, like one without a descriptor.
        if (!slot.caps.wait_fd || !watch(slot.endpoint->wait_fd())) can_sleep_ = false;
    }
}

Status Driver::start() {
    WEFT_ASSERT(!thread_.joinable() && is_usable());
    stop_.store(false);
    slow_at_ = never;
    {
        const base::MutexLock lock(end_mutex_);
        has_ended_ = false;
    }
    context_.unbind_thread();
    std::promise<bool> start_promise;
    std::future<bool> start_result = start_promise.get_future();
    try {
        thread_ =
            base::start_internal_thread([this, start_promise = std::move(start_promise)]() mutable {
                start_promise.set_value(!options_.cpu || base::bind_internal_thread(*options_.cpu));
                loop();
            });
    } catch (const std::system_error& error) {
        return no_thread(error);
    }
    // At most 15 characters, which is what the kernel keeps.
    const std::string name =
        options_.number ? "weft-context-" + std::to_string(*options_.number) : "weft-context";
    pthread_setname_np(thread_.native_handle(), name.c_str());
    if (!options_.cpu || start_result.get()) return {};
    stop();
    return fail(Code::invalid_argument,
                "cpu " + std::to_string(*options_.cpu) +
                    " (RuntimeOptions::cpu or cpus, WEFT_CPU, WEFT_CPUS): the context's "
                    "thread can't run there");
}

bool Driver::stop(const std::function<void()>& on_slow) {
    if (!thread_.joinable()) return true;
    if (is_abandoned_) return false;
    WEFT_ASSERT(thread_.get_id() != std::this_thread::get_id());
    const bool is_exiting = base::is_exiting();
    std::optional<BlockedTurn> blocked;
    if (!is_exiting) blocked.emplace("Runtime::~Runtime()", context_, end_mutex_, end_flag());
    request_stop();
    if (on_slow && !await_end(slow_at_)) on_slow();  // It may run the program's log sink.
    is_abandoned_ = is_exiting && !has_ended_in_exit();
    if (is_abandoned_) return false;
    thread_.join();
    context_.bind_thread();
    return true;
}

void Driver::request_stop() {
    if (!thread_.joinable() || is_abandoned_) return;
    if (slow_at_ == never) slow_at_ = std::chrono::steady_clock::now() + blocked_min;
    stop_.store(true);
    context_.post([] {});
}

bool Driver::stop_in_turn() {
    if (!thread_.joinable()) return true;
    if (is_abandoned_) return false;
    WEFT_ASSERT(thread_.get_id() != std::this_thread::get_id());
    request_stop();
    is_abandoned_ = !await_end(slow_at_);
    if (is_abandoned_) return false;
    thread_.join();
    context_.bind_thread();
    return true;
}

bool Driver::await_end(TimePoint by) {
    base::MutexLock lock(end_mutex_);
    while (!has_ended_ && std::chrono::steady_clock::now() < by) lock.wait_until(end_changed_, by);
    return has_ended_;
}

// The thread may wait in vain: exit() was called in a turn of the awaited context, or has ended it.
bool Driver::has_ended_in_exit() {
    for (TimePoint by = slow_at_; !await_end(by);
         by = std::chrono::steady_clock::now() + blocked_min) {
        if (BlockedTurn::is_context_blocked(context_)) return false;
    }
    return true;
}

void Driver::loop() {
    TimePoint turned_at = clock_.now();
    turning_since_.store(turned_at, std::memory_order_relaxed);
    base::watch_exit();
    has_started_ = true;
    TimePoint last_event = turned_at;
    SpinYield spin_yield;
    bool was_busy = false;
    while (!stop_.load(std::memory_order_relaxed)) {
        const TimePoint now = clock_.now();
        check_turn_duration(turned_at, now);
        if (was_busy)
            load_.add(turned_at, now, [&] { return count_calls_ ? count_calls_() : CallCounts(); });
        turned_at = now;
        turning_since_.store(now, std::memory_order_relaxed);
        was_busy = context_.turn(now).events > 0;
        if (was_busy) {
            last_event = now;
            spin_yield.on_event();
            continue;
        }
        const bool spin = options_.wait == WaitMode::spin ||
                          (options_.wait == WaitMode::adaptive && now - last_event < options_.spin);
        if (spin) {
            spin_yield.on_idle_poll();
        } else {
            check_turn_duration(now, clock_.now());
            turning_since_.store(TimePoint{}, std::memory_order_relaxed);
            sleep(now, Duration::max());
            // After each sleep the thread spins for another interval: replies tend to arrive in
            // bursts.
            turned_at = last_event = clock_.now();
        }
    }
    if (context_.is_forked()) base::abort_forked("the context's thread called fork()");
    turning_since_.store(TimePoint{}, std::memory_order_relaxed);
    const base::MutexLock lock(end_mutex_);
    has_ended_ = true;
    end_changed_.notify_one();
}

std::uint32_t Driver::turn_and_wait(Duration longest) {
    const TimePoint now = clock_.now();
    const std::uint32_t events = context_.turn(now).events;
    if (events == 0) wait(now, longest);
    return events;
}

bool Driver::arm_for_loop() {
    context_.disarm();
    return loop_armed_ = context_.arm();
}

// Also for the second time: the sleep of another turn_and_wait() has consumed the first one.
void Driver::notify_loop() {
    if (!loop_armed_) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = write(context_.wake_fd(), &one, sizeof one);
}

void Driver::wait(TimePoint now, Duration longest) {
    if (options_.wait != WaitMode::spin) sleep(now, longest);
}

TimePoint Driver::next_deadline() const {
    const TimePoint next = context_.next_deadline();
    return can_sleep_ ? next : std::min(next, saturating_add(context_.now(), poll_interval));
}

void Driver::sleep(TimePoint now, Duration longest) {
    WEFT_DCHECK(!context_.in_turn());
    const TimePoint next = next_deadline();
    if (next <= now || !context_.arm()) return;
    const Duration wait = std::min(next == never ? Duration(1h) : next - now, longest);
    base::wait_for_events(epoll_.get(), wait);
    context_.disarm();
}

}  // namespace weft::core
