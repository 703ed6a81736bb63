// What all sessions of a client share: credits for calls that are sent and not answered, and room
// for calls that wait.
#pragma once

#include <weft/options.h>

#include "base/assert.h"
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
};

class ClientCapacity {
  public:
    explicit ClientCapacity(const ClientLimits& limits)
        : limits_(limits),
          byte_credits_(limits.sent_bytes_all_max),
          call_credits_(limits.sent_calls_max) {}
    const ClientLimits& limits() const { return limits_; }

    // ---- calls that are sent
    bool may_send(const ClientSession& session, std::size_t bytes) const {
        return call_credits_ != 0 && bytes <= session.byte_credits && bytes <= byte_credits_;
    }
    // Requires: may_send().
    void take(ClientSession& session, std::size_t bytes) {
        WEFT_DCHECK(may_send(session, bytes));
        --call_credits_;
        session.byte_credits -= bytes;
        byte_credits_ -= bytes;
    }
    void give_back(ClientSession& session, std::size_t bytes) {
        WEFT_DCHECK(call_credits_ < limits_.sent_calls_max);
        ++call_credits_;
        session.byte_credits += bytes;
        byte_credits_ += bytes;
        WEFT_DCHECK(session.byte_credits <= limits_.sent_bytes_max);
        WEFT_DCHECK(byte_credits_ <= limits_.sent_bytes_all_max);
    }
    // The sessions that wait for credits, to be served in turn.
    void wait_for_credits(ClientSession& session) {
        const CreditWaiter& node = session;
        if (!node.is_linked()) waiters_.push_back(session);
    }
    ClientSession* next_waiter() { return waiters_.pop_front(); }
    std::uint32_t sent_calls() const { return limits_.sent_calls_max - call_credits_; }
    std::size_t sent_bytes() const { return limits_.sent_bytes_all_max - byte_credits_; }

    // ---- calls that wait
    // Whether a call with a body of so many bytes may wait.
    bool has_room(const WaitQueue& queue, std::size_t bytes) const {
        const std::size_t all = sizeof(RequestHeader) + bytes;
        if (queue.size() >= limits_.waiting_calls_max) return false;
        if (queue.bytes() + all > limits_.waiting_bytes_max) return false;
        // A peer with few waiting bytes is not refused because of the others' bytes.
        return waiting_bytes_ + all <= limits_.waiting_bytes_all_max ||
               queue.bytes() <= core::waiting_bytes_guaranteed;
    }
    void on_queued(std::size_t bytes) { waiting_bytes_ += bytes; }
    void on_dequeued(std::size_t bytes) {
        WEFT_ASSERT(bytes <= waiting_bytes_);
        waiting_bytes_ -= bytes;
    }
    std::size_t waiting_bytes() const { return waiting_bytes_; }  // In all queues.

  private:
    const ClientLimits limits_;
    std::size_t waiting_bytes_ = 0;
    std::size_t byte_credits_;
    std::uint32_t call_credits_;
    base::IntrusiveList<ClientSession, CreditWaiter> waiters_;
};

}  // namespace weft::rpc
