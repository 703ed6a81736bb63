// Events for the caller of poll(). Events that do not fit into its batch wait here. An event with a
// reason ends its batch, so that error() describes it.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/fifo.h"
#include "na/common/events.h"

namespace weft::na {

// What hand_out() does with an event that waits. `keep`: the batch ends before it.
enum class EventUse : std::uint8_t { hand_out, drop, keep };

// The events that wait, for an endpoint that writes others straight into the batch of its poll.
class WaitingEvents {
  public:
    bool empty() const { return events_.empty(); }
    void push(const Event& event) {
        WEFT_DCHECK(event.kind != EventKind::peer_down);  // It needs a reason.
        events_.push({event, {}, false});
    }
    void push(const Event& event, std::string reason) {
        events_.push({event, std::move(reason), true});
    }

    // The completion of a transfer; `why`: for a code other than ok.
    void push_done(const RmaItem& item, Code code, std::string why) {
        if (code == Code::ok) return push(done_event(item, code));
        push(done_event(item, code), std::move(why));
    }

    // Writes waiting events to `to` from `count` on, as `use(event)` decides for each. False: the
    // batch is over, as it is full or its last event has a reason, which is now in `error`. With
    // `count` at or beyond the end of `to` nothing is written.
    template <class Use>
    bool hand_out(std::span<Event> to, std::size_t& count, std::string& error, Use&& use) {
        while (!events_.empty()) {
            if (count >= to.size()) return false;
            const EventUse what = use(std::as_const(events_.front().event));
            if (what == EventUse::keep) return false;
            Waiting waiting = std::move(events_.front());
            events_.pop();
            if (what == EventUse::drop) continue;
            to[count++] = waiting.event;
            if (!waiting.has_reason) continue;
            error = std::move(waiting.reason);
            return false;
        }
        return true;
    }

    // Drops the events for which `is_dropped(event)`.
    template <class Test>
    void drop_if(Test&& is_dropped) {
        events_.erase_if([&](const Waiting& one) { return is_dropped(one.event); });
    }

  private:
    struct Waiting {
        Event event;
        std::string reason;
        bool has_reason = false;
    };

    base::Fifo<Waiting> events_;
};

// The whole batch of a poll: events that it produces are written to it while it has room.
class EventQueue {
  public:
    // Between begin() and end(), pushed events are written to `to` while it has room.
    void begin(std::span<Event> to) {
        WEFT_DCHECK(out_.empty());
        out_ = to;
        count_ = 0;
        is_over_ = false;
        hand_out();
    }
    // Returns how many events the batch has.
    std::size_t end() {
        hand_out();
        out_ = {};
        return count_;
    }

    // False: an event pushed now would not be in this batch.
    bool has_room() const { return !is_over() && count_ < out_.size(); }
    // The batch is full and more events wait, or error() explains its last event.
    bool is_over() const { return is_over_ || !waiting_.empty(); }
    bool empty() const { return waiting_.empty(); }

    void push(const Event& event) {
        WEFT_DCHECK(event.kind != EventKind::peer_down);  // It needs a reason.
        if (has_room()) {
            out_[count_++] = event;
        } else {
            waiting_.push(event);
        }
    }
    void push(const Event& event, std::string reason) { waiting_.push(event, std::move(reason)); }
    void push_done(const RmaItem& item, Code code, std::string why) {
        if (code == Code::ok) return push(done_event(item, code));
        waiting_.push_done(item, code, std::move(why));
    }
    // The reason of the last event of the last batch.
    const std::string& reason() const { return reason_; }

    // Drops the events of a peer that the caller has closed, except the completions of its
    // transfers. Calls `dropped(event)` for each of them.
    template <class Dropped>
    void drop_events_of(PeerId peer, Dropped&& dropped) {
        waiting_.drop_if([&](const Event& event) {
            if (event.peer != peer || event.kind == EventKind::rma_done ||
                event.kind == EventKind::region_fenced) {
                return false;
            }
            dropped(event);
            return true;
        });
    }

  private:
    void hand_out() {
        if (is_over_) return;
        const auto all = [](const Event&) { return EventUse::hand_out; };
        is_over_ = !waiting_.hand_out(out_, count_, reason_, all);
    }

    WaitingEvents waiting_;
    std::span<Event> out_;
    std::size_t count_ = 0;
    bool is_over_ = false;
    std::string reason_;
};

}  // namespace weft::na
