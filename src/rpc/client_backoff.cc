// Calls that the server pushed back: they back off and are sent again, within the retry budget.
#include "base/assert.h"
#include "rpc/client.h"

namespace weft::rpc {

// The request of a call that the server pushed back and the client retries; else nullptr.
WaitingRequest::Ptr Client::request_to_retry(core::Peer& peer, core::FrameHead head,
                                             ByteView frame) {
    if (head.flags != pushback_flag || unpack(head.aux)->effect != Effect::none) return nullptr;
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = client_session(peer);
    ClientSlot* const slot = session ? session->find(wire) : nullptr;
    // Only the outermost caller in a chain retries.
    if (!slot || !slot->call || slot->call->traits.is_nested) return nullptr;
    return take_request(*slot);
}

// False: no time or no attempt is left, or the peer's retry budget is used up.
bool Client::back_off(ClientCall& call, WaitingRequest::Ptr request, ByteView frame) {
    WEFT_ASSERT(request && call.session && !call.slot && !call.waiting);
    const auto pushback_us = base::load<std::uint32_t>(frame.data() + sizeof(ReplyHeader));
    const std::uint32_t attempt = call.traits.attempts + 1u;
    const Duration backoff =
        retry_backoff(attempt, std::chrono::microseconds(pushback_us), context_.random());
    const TimePoint then = context_.now() + backoff;
    ClientSession& session = *call.session;
    if (then >= call.deadline || attempt > retries_max) return false;
    if (!session.budget.spend()) return false;
    ++calls_.counters.retried;
    context_.record_event("retries", session.peer.uri, attempt);
    call.traits.attempts = static_cast<std::uint8_t>(attempt);
    request->at = call.deadline;
    call.waiting = std::move(request);
    call.is_backing_off = true;
    session.backing_off.push_back(call);
    call.stage.move_to(Stage::queued);
    context_.timers().cancel(call);
    context_.timers().arm(call, then);
    return true;
}

// The backoff has ended.
void Client::resume(ClientCall& call) {
    WEFT_ASSERT(call.is_backing_off && call.waiting && call.session);
    call.is_backing_off = false;
    static_cast<core::Deferred&>(call).unlink();
    context_.timers().arm(call, call.waiting->at);
    ClientSession& session = *call.session;
    enqueue(call, true);
    if (session.state == SessionState::open) return pump(session);
    core::Peer& peer = session.peer;
    if (peer.state == core::PeerState::idle && session.state == SessionState::none) {
        context_.connect(peer);
    }
}

}  // namespace weft::rpc
