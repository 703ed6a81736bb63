// What all sessions of a client share: credits for calls that are sent and not answered, and room
// for calls that wait.
#pragma once

#include <weft/options.h>

#include "base/assert.h"
#include "core/budget.h"
#include "core/context_options.h"
#include "rpc/client_session.h"

namespace weft::rpc {

// The defaults are those of RuntimeOptions where that has the option.
struct ClientLimits {
    std::uint32_t waiting_calls_max = RuntimeOptions().calls_waiting_max;    // Per peer.
    std::size_t waiting_bytes_max = 16u << 20;                               // Per peer.
    std::size_t waiting_bytes_all_max = RuntimeOptions().waiting_bytes_max;  // Of all peers.
    std::uint32_t sent_calls_max = RuntimeOptions().calls_in_flight_max;     // Of all peers.
    std::size_t sent_bytes_all_max = RuntimeOptions().bytes_in_flight_max;   // Of all peers.
    std::size_t sent_bytes_max = sent_bytes_all_max / 4;                     // Per peer.
    // Of those of all peers, in a runtime with several contexts; nullptr: there is one.
    std::shared_ptr<core::Budgets> budgets;
};

class ClientCapacity {
  public:
    explicit ClientCapacity(const ClientLimits& limits)
        : limits_(limits),
          sent_bytes_(core::budget_of(limits.budgets, &core::Budgets::sent_bytes),
                      limits.sent_bytes_all_max),
          sent_calls_(core::budget_of(limits.budgets, &core::Budgets::sent_calls),
                      limits.sent_calls_max),
          waiting_(core::budget_of(limits.budgets, &core::Budgets::waiting_calls),
                   limits.waiting_bytes_all_max),
          byte_credits_(sent_bytes_.limit()),
          call_credits_(static_cast<std::uint32_t>(sent_calls_.limit())) {}
    const ClientLimits& limits() const { return limits_; }

    // ---- calls that are sent
    bool may_send(const ClientSession& session, std::size_t bytes) const {
        return call_credits_ != 0 && bytes <= session.byte_credits && bytes <= byte_credits_;
    }
    // The same; other contexts may have credits that they do not use.
    bool may_send_after_reach(const ClientSession& session, std::size_t bytes) {
        if (may_send(session, bytes)) return true;
        const std::uint32_t calls = sent_calls();
        const std::size_t sent = sent_bytes();
        if (bytes > session.byte_credits) return false;
        const bool is_enough = sent_bytes_.reach(sent, bytes) && sent_calls_.reach(calls, 1);
        set_credits(calls, sent);  // Also of what was reached in vain.
        return is_enough;
    }
    // As core::FrameSink::trim_shares().
    bool trim_shares() {
        const std::uint32_t calls = sent_calls();
        const std::size_t sent = sent_bytes();
        sent_calls_.trim(calls);
        sent_bytes_.trim(sent);
        set_credits(calls, sent);
        waiting_.trim(waiting_bytes_);
        return sent_calls_.has_extra() || sent_bytes_.has_extra() || waiting_.has_extra();
    }
    // Requires: may_send().
    void take(ClientSession& session, std::size_t bytes) {
        WEFT_DCHECK(may_send(session, bytes));
        --call_credits_;
        session.byte_credits -= bytes;
        byte_credits_ -= bytes;
    }
    void give_back(ClientSession& session, std::size_t bytes) {
        WEFT_DCHECK(call_credits_ < sent_calls_.limit());
        ++call_credits_;
        session.byte_credits += bytes;
        byte_credits_ += bytes;
        WEFT_DCHECK(session.byte_credits <= limits_.sent_bytes_max);
        WEFT_DCHECK(byte_credits_ <= sent_bytes_.limit());
    }
    // The sessions that wait for credits, to be served in turn.
    void wait_for_credits(ClientSession& session) {
        const CreditWaiter& node = session;
        if (!node.is_linked()) waiters_.push_back(session);
    }
    bool has_waiters() const { return !waiters_.empty(); }
    ClientSession* next_waiter() { return waiters_.pop_front(); }
    std::uint32_t sent_calls() const {
        return static_cast<std::uint32_t>(sent_calls_.limit()) - call_credits_;
    }
    std::size_t sent_bytes() const { return sent_bytes_.limit() - byte_credits_; }

    // ---- calls that wait
    // Whether a call with a body of so many bytes may wait.
    bool has_room(const WaitQueue& queue, std::size_t bytes) {
        const std::size_t all = sizeof(RequestHeader) + bytes;
        if (queue.size() >= limits_.waiting_calls_max) return false;
        if (queue.bytes() + all > limits_.waiting_bytes_max) return false;
        // A peer with few waiting bytes is not refused because of the others' bytes.
        return waiting_bytes_ + all <= waiting_.limit() ||
               queue.bytes() <= core::waiting_bytes_guaranteed ||
               waiting_.reach(waiting_bytes_, all);
    }
    void on_queued(std::size_t bytes) { waiting_bytes_ += bytes; }
    void on_dequeued(std::size_t bytes) {
        WEFT_ASSERT(bytes <= waiting_bytes_);
        waiting_bytes_ -= bytes;
    }
    std::size_t waiting_bytes() const { return waiting_bytes_; }  // In all queues.

  private:
    // Between two calls that use them.
    void set_credits(std::uint32_t calls, std::size_t sent) {
        call_credits_ = static_cast<std::uint32_t>(sent_calls_.limit()) - calls;
        byte_credits_ = sent_bytes_.limit() - sent;
    }

    const ClientLimits limits_;
    core::Budget::Share sent_bytes_, sent_calls_, waiting_;
    std::size_t waiting_bytes_ = 0;
    std::size_t byte_credits_;
    std::uint32_t call_credits_;
    base::IntrusiveList<ClientSession, CreditWaiter> waiters_;
};

}  // namespace weft::rpc
