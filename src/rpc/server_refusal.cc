// Replies without a handler, replies of failed handlers, and resent replies.
#include <cstdio>

#include "base/assert.h"
#include "base/text.h"
#include "rpc/server.h"

namespace weft::rpc {

// The least time that a client backs off after finding all handlers taken.
static constexpr Duration pushback_time = 5ms;

// On the wire a method is its hash (weft/method.h); only the caller has the name.
Status Server::unknown_method(std::uint64_t hash) {
    char digits[2 * sizeof hash + 1];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
    return fail(Code::unimplemented, "no service added to this server has a method with the hash " +
                                         std::string(digits));
}

Status Server::handlers_exhausted() {
    return fail(
        Code::resource_exhausted,
        "the server has reached its limit of calls in handlers (RuntimeOptions::handlers_max, "
        "handler_bytes_max): make fewer calls at once");
}

void Server::refuse_request(core::Peer& peer, Slot& slot, const RequestHeader& header,
                            const Method* method) {
    WEFT_ASSERT(server_session(peer) && !slot.call);
    if (server_session(peer)->is_ended) {
        slot.retention.move_to(ServerSession::Retention::not_received);
        return;
    }
    Status why = handlers_exhausted();
    if (is_draining() && !method) {
        why = fail(Code::unavailable, "the server is shutting down");
    } else if (!method) {
        ++counters_.unknown_methods;
        why = unknown_method(header.method);
    } else if (header.remaining_us == 0) {
        ++counters_.expired;
        why = fail(Code::deadline_exceeded,
                   "the deadline of the call passed before its handler began: give it more time "
                   "(CallOptions::timeout), or the server fewer calls at once");
    }
    const bool is_full = why.code() == Code::resource_exhausted;
    counters_.pushed_back += is_full;
    context_.record_event(is_full ? "pushed back" : "refused", peer.uri,
                          static_cast<std::uint64_t>(why.code()));
    send_failure(&peer, slot, header.call, why, is_full ? pushback_time : Duration::zero());
}

// Keeps an outcome that has a text instead of a reply, and sends it if a client is connected.
void Server::send_failure(core::Peer* peer, Slot& slot, WireCallId wire, const Status& status,
                          Duration pushback) {
    WEFT_ASSERT(!slot.call && !status.ok());
    const std::string_view text = base::truncate_utf8(status.text(), error_text_bytes_max);
    const std::string_view short_text = base::truncate_utf8(text, ServerSession::kept_bytes_max);
    const std::uint16_t outcome = pack(status.code(), status.effect(), status.stage());
    ServerSession::keep(slot, outcome, as_bytes(text.empty() ? "" : short_text).data(),
                        short_text.size());
    if (!peer) return;
    const std::size_t hint = pushback > Duration::zero() ? pushback_bytes : 0;
    const std::size_t frame_bytes = sizeof(ReplyHeader) + hint + text.size();
    const core::Context::Claim claim = context_.claim(*peer, frame_bytes);
    if (!claim.data) return drop_unread(*peer);
    store_reply(claim.data, frame_bytes, outcome, wire);
    std::byte* const body = claim.data + sizeof(ReplyHeader);
    if (hint != 0) {
        claim.data[offsetof(core::FrameHead, flags)] |= std::byte{pushback_flag};
        base::store(body, static_cast<std::uint32_t>(pushback / 1us));
    }
    if (!text.empty()) std::memcpy(body + hint, text.data(), text.size());
    context_.commit(*peer, claim, frame_bytes);
}

// Sends the outcome again, to a client that lost the first reply.
void Server::resend_outcome(core::Peer& peer, const Slot& slot, WireCallId wire) {
    static constexpr std::string_view not_kept = "the call ran; its reply was lost";
    ByteView body = {slot.reply.data(), slot.bytes};
    std::uint16_t outcome = slot.outcome;
    if (slot.bytes == ServerSession::nothing_kept) {
        const auto before = unpack(outcome);
        body = as_bytes(not_kept);
        outcome = pack(Code::unavailable, before->effect, before->stage);
    }
    const std::size_t bytes = sizeof(ReplyHeader) + body.size();
    const core::Context::Claim claim = context_.claim(peer, bytes);
    if (!claim.data) return drop_unread(peer);
    ++counters_.replies_resent;
    store_reply(claim.data, bytes, outcome, wire);
    if (!body.empty()) std::memcpy(claim.data + sizeof(ReplyHeader), body.data(), body.size());
    context_.commit(peer, claim, bytes);
}

static std::string reply_text(std::size_t bytes) {
    return "a reply of " + std::to_string(bytes) + " bytes";
}

Status Server::why_too_large(std::size_t bytes) const {
    const std::size_t most = bulk_.rendezvous.body_bytes_max();
    if (bytes <= most) return {};
    return fail(Code::resource_exhausted, reply_text(bytes) + " exceeds the limit of " +
                                              std::to_string(most) +
                                              "; pass large data by weft.BulkRef");
}

Status Server::why_no_rendezvous(const core::Peer& peer, std::size_t bytes, const Status& why) {
    if (bytes > peer.eager_bytes_max) return Status(why).in(reply_text(bytes));
    return fail(Code::resource_exhausted,
                reply_text(bytes) +
                    ": the queue of replies to this client is full "
                    "(RuntimeOptions::waiting_bytes_max), and a rendezvous failed: " +
                    std::string(why.text()));
}

}  // namespace weft::rpc
