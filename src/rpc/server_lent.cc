// Replies that clients fetch.
#include "rpc/body.h"
#include "rpc/server.h"

namespace weft::rpc {

static std::string reply_text(std::size_t bytes) {
    return "a reply of " + std::to_string(bytes) + " bytes";
}

Status Server::why_too_large(std::size_t bytes) const {
    const std::size_t most = bulk_.staging.body_bytes_max();
    if (bytes <= most) return {};
    return fail(Code::resource_exhausted, reply_text(bytes) + " exceeds the limit of " +
                                              std::to_string(most) +
                                              "; pass large data by weft.BulkRef");
}

static Status why_not_lent(const core::Peer& peer, std::size_t bytes, const Status& why) {
    if (bytes > peer.eager_bytes_max) return Status(why).in(reply_text(bytes));
    return fail(Code::resource_exhausted,
                reply_text(bytes) +
                    ": as many replies wait for this client as may "
                    "(RuntimeOptions::waiting_bytes_max), and it can't be lent: " +
                    std::string(why.text()));
}

void Server::answer_lent(ServerCall& call, const BodyWriter& body) {
    core::Peer& peer = *call.peer();
    if (Status why = why_too_large(body.bytes); !why.ok()) return answer(call, why);
    Result<bulk::Loan> loan = bulk_.staging.lend(peer, body.bytes);
    if (!loan) return answer(call, why_not_lent(peer, body.bytes, loan.status()));
    write_out(context_, peer, body, loan->memory.data());
    ServerSession::keep_nothing(*call.slot, plain_ok);
    const core::Context::Claim claim = context_.claim(peer, lent_reply_bytes);
    if (!claim.data) {
        give_back(call);
        return drop_unread(peer);
    }
    store_reply(claim.data, lent_reply_bytes, plain_ok, call.wire);
    mark_lent(claim.data);
    base::store(claim.data + sizeof(ReplyHeader), loan->where);
    context_.commit(peer, claim, lent_reply_bytes);
    give_back(call);
}

}  // namespace weft::rpc
