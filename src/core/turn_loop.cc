#include "core/turn_loop.h"

#include <algorithm>

#include "base/assert.h"
#include "base/fork.h"

namespace weft::core {

// With several endpoints, one that was idle for so many polls is polled every `idle_stride` turns
// only: an idle libfabric poll costs system calls, a shared-memory round trip none. Long turns do
// not delay it: after `unpolled_max` it is polled in any case.
static constexpr std::uint32_t idle_polls_max = 64;
static constexpr std::uint64_t idle_stride = 64;
static constexpr Duration unpolled_max = 1ms;

bool BacklogDetector::is_lasting(bool is_cut, TimePoint began, TimePoint ended) {
    has_many_frames_ = false;
    if (!is_cut && ended - began < long_turn) return false;
    if (until_ + 1ms < began) since_ = began;
    until_ = ended;
    if (ended - since_ < backlog_max) return false;
    since_ = ended;
    return true;
}

TurnLoop::TurnLoop(base::Clock& clock) : clock_(clock), now_(clock.now()), timers_(now_) {
    endpoints_.reserve(endpoints_max);  // A forked child finds them consistent.
}

EndpointSlot& TurnLoop::add_endpoint(std::unique_ptr<na::Endpoint> endpoint) {
    WEFT_ASSERT(endpoint && endpoints_.size() < endpoints_max);
    auto slot = std::make_unique<EndpointSlot>();
    slot->caps = endpoint->caps();
    slot->endpoint = std::move(endpoint);
    slot->index = static_cast<std::uint32_t>(endpoints_.size());
    endpoints_.push_back(std::move(slot));
    sole_slot_ = endpoints_.size() == 1 ? endpoints_.front().get() : nullptr;
    clear_fast_slot();  // The next turn sets it.
    return *endpoints_.back();
}

void TurnLoop::flush_all() {
    for (auto& slot : endpoints_) slot->endpoint->flush();
}

void TurnLoop::close_endpoints() noexcept {
    sole_slot_ = nullptr;
    clear_fast_slot();
    std::vector<std::unique_ptr<EndpointSlot>> closing;
    closing.swap(endpoints_);  // A child forked meanwhile finds none half destroyed.
}

void TurnLoop::begin(TimePoint now, bool is_owned) {
    WEFT_ASSERT(!is_forked_);
    fast_slot_.store(is_owned ? sole_slot_ : nullptr, std::memory_order_relaxed);
    now_ = now;
    ++turns_;
}

bool TurnLoop::is_postponed(const EndpointSlot& slot) const {
    const bool may_wait = slot.idle_polls > idle_polls_max && turns_ % idle_stride != 0;
    return may_wait && now_ - slot.polled_at < unpolled_max && !sole_slot_;
}

std::uint32_t TurnLoop::run_deferred() {
    base::IntrusiveList<Deferred> due;
    due.splice_back(deferred_);
    std::uint32_t ran = 0;
    while (Deferred* work = due.pop_front()) {
        ++ran;
        work->run(*work);
        check_fork();
    }
    return ran;
}

void TurnLoop::begin_end() {
    deferred_.splice_back(deferred_to_end_);
    clear_fast_slot();
}

void TurnLoop::drop_deferred() {
    begin_end();
    while (deferred_.pop_front()) {
    }
}

TimePoint TurnLoop::next_deadline() const {
    TimePoint next = timers_.next_deadline();
    for (const auto& slot : endpoints_) next = std::min(next, slot->endpoint->next_deadline());
    return next;
}

bool TurnLoop::has_work() const {
    return !deferred_.empty() || std::any_of(endpoints_.begin(), endpoints_.end(),
                                             [](const auto& slot) { return slot->unflushed; });
}

bool TurnLoop::arm() {
    if (!deferred_.empty()) return false;
    return std::all_of(endpoints_.begin(), endpoints_.end(), [](const auto& slot) {
        slot->idle_polls = 0;  // Poll all of them after the sleep.
        return !slot->unflushed && (!slot->caps.wait_fd || slot->endpoint->arm());
    });
}

void TurnLoop::on_forked(na::Endpoint* replacement) noexcept {
    is_forked_ = true;
    for (const auto& slot : endpoints_) {
        slot->parent_endpoint = slot->endpoint.release();
        slot->endpoint.reset(replacement);
        slot->unflushed = false;
    }
    clear_fast_slot();  // The next turn ends the process.
}

void TurnLoop::abort_forked() {
    base::abort_forked(
        "a handler, completion or coroutine called fork() and returned in the child");
}

}  // namespace weft::core
