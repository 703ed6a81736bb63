// What the thread of a context runs in each turn: the endpoints that it polls, the timers and the
// deferred work. What their events mean is the context's.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/timer_wheel.h"
#include "core/deferred.h"
#include "core/endpoint_slot.h"

namespace weft::core {

inline constexpr Duration backlog_max = 20ms, long_turn = 5ms;
inline constexpr std::size_t many_events = 8;

// Overload: consecutive turns that left messages unread, or had handlers that took long in total.
class BacklogDetector {
  public:
    void on_many_frames() { has_many_frames_ = true; }
    // After a poll: whether is_lasting() is to be called.
    bool is_possible(std::size_t events) const { return events >= many_events || has_many_frames_; }
    // True: it lasts for backlog_max, or as long again. `is_cut`: the poll left messages unread.
    bool is_lasting(bool is_cut, TimePoint began, TimePoint ended);

  private:
    bool has_many_frames_ = false;  // A message of this poll had several frames.
    TimePoint since_{};             // Overloaded without a pause since,
    TimePoint until_{};             // and until.
};

class TurnLoop {
  public:
    explicit TurnLoop(base::Clock& clock);

    EndpointSlot& add_endpoint(std::unique_ptr<na::Endpoint> endpoint);
    const std::vector<std::unique_ptr<EndpointSlot>>& endpoints() const { return endpoints_; }
    void flush_all();
    // Requires: not called from a turn, which walks them.
    void close_endpoints() noexcept;

    TimePoint now() const { return now_; }
    TimePoint set_now(TimePoint now) { return now_ = now; }
    base::TimerWheel& timers() { return timers_; }
    BacklogDetector& backlog() { return backlog_; }

    // The only endpoint, if the next turn has no more to do than to poll it; else nullptr. The
    // creator of the context may clear it (UseGuard) while another thread begins its first turn,
    // which reads nullptr then.
    EndpointSlot* fast_slot() const { return fast_slot_.load(std::memory_order_relaxed); }
    void clear_fast_slot() { fast_slot_.store(nullptr, std::memory_order_relaxed); }
    // A turn with more work begins. `is_owned`: no other thread borrows turns.
    void begin(TimePoint now, bool is_owned);

    // `on_message(peer, data, bytes)`, `on_event(slot, event)` for others, `on_backlog()`.
    template <class OnMessage, class OnEvent, class OnBacklog>
    [[gnu::always_inline]] std::uint32_t poll(EndpointSlot& slot, OnMessage on_message,
                                              OnEvent on_event, OnBacklog on_backlog) {
        const std::size_t count = slot.endpoint->poll(events_, now_);
        WEFT_DCHECK(count <= events_.size());
        for (const na::Event& event : std::span(events_).first(count)) {
            if (event.kind != na::EventKind::message) [[unlikely]] {
                on_event(slot, event);
            } else if (Peer* peer = slot.sender_of(event.peer)) [[likely]] {
                on_message(*peer, event.bytes.data(), event.bytes.size());
            }
        }
        if (backlog_.is_possible(count)) [[unlikely]] {
            on_backlog(count == events_.size());
        }
        return static_cast<std::uint32_t>(count);
    }
    // Polls each endpoint with `poll(slot)`, idle ones rarely. Returns the number of events.
    template <class Poll>
    std::uint32_t poll_all(Poll poll) {
        std::uint32_t events = 0;
        // By index: a completion may open another endpoint.
        for (std::size_t i = 0; i < endpoints_.size(); ++i) {
            EndpointSlot& slot = *endpoints_[i];
            if (is_postponed(slot)) continue;
            slot.polled_at = now_;
            const std::uint32_t count = poll(slot);
            slot.idle_polls = count == 0 ? slot.idle_polls + 1 : 0;
            events += count;
        }
        return events;
    }
    // After the polls of the turn at `now`: expired timers, and the messages that wait for flush().
    void finish(TimePoint now) {
        timers_.advance(now);
        for (const auto& slot : endpoints_) {
            if (slot->unflushed) slot->flush();
        }
    }

    // Requires: not linked.
    void defer(Deferred& work) {
        WEFT_DCHECK(!work.is_linked() && work.run);
        deferred_.push_back(work);
        clear_fast_slot();
    }
    void defer_to_end(Deferred& work) {
        WEFT_ASSERT(!work.is_linked() && work.run);
        deferred_to_end_.push_back(work);
    }
    bool has_deferred() const { return !deferred_.empty(); }
    std::uint32_t run_deferred();
    // The work of defer_to_end() is due.
    void begin_end();
    void drop_deferred();

    // Without arrivals there is nothing to do before this instant.
    TimePoint next_deadline() const;
    bool has_work() const;
    // Before a sleep. False: there is work, or a message has arrived.
    bool arm();

    void on_forked(na::Endpoint* replacement) noexcept;
    bool is_forked() const { return is_forked_; }
    // After user code: a child forked inside a turn may only exec or _exit().
    void check_fork() const {
        if (is_forked_) [[unlikely]]
            abort_forked();
    }

  private:
    bool is_postponed(const EndpointSlot& slot) const;
    [[noreturn]] static void abort_forked();

    // ---- time
    base::Clock& clock_;
    TimePoint now_;
    base::TimerWheel timers_;
    std::uint64_t turns_ = 0;  // With more work than one poll.

    // ---- endpoints
    std::vector<std::unique_ptr<EndpointSlot>> endpoints_;
    EndpointSlot* sole_slot_ = nullptr;  // If there is exactly one: the common case of a client.
    std::atomic<EndpointSlot*> fast_slot_{nullptr};
    bool is_forked_ = false;  // Set while no other thread exists.
    BacklogDetector backlog_;

    // ---- work for later
    base::IntrusiveList<Deferred> deferred_, deferred_to_end_;

    // A member: constructing 64 events costs more than an empty poll.
    std::array<na::Event, 64> events_;
};

}  // namespace weft::core
