// The server's record of one call, from its request to its reply. A large request is fetched before
// its handler runs.
#pragma once

#include <stop_token>

#include <weft/call.h>
#include <weft/function.h>

#include "base/slot_table.h"
#include "bulk/rendezvous.h"
#include "core/inherited_scope.h"
#include "core/peer.h"
#include "rpc/header.h"
#include "rpc/inline_bulk.h"
#include "rpc/method_table.h"
#include "rpc/server_session.h"

namespace weft::rpc {

using LocalCompletion = Function<void(const Status&, ByteView reply)>;

// A handler that outlives its client keeps its record; its reply is dropped.
struct ServerCall : core::CallScope {
    ServerCall();
    // ---- the call
    // nullptr: a local call, the call has its outcome already, or the session has ended.
    ServerSession* session = nullptr;
    ServerSession::Slot* slot = nullptr;
    WireCallId wire;
    Method* method = nullptr;
    ByteView request;

    // ---- set in few calls; the code that sets one of these also sets needs_cleanup
    TimePoint started{};           // Set if the call is timed.
    std::size_t large_bytes = 0;   // Of a large request.
    std::size_t parsed_bytes = 0;  // Of the message parsed from it.
    bulk::FetchId fetch;           // While its large request is being fetched.
    Function<void()> on_cancel;
    Function<void()> on_drain;
    std::stop_source stop{std::nostopstate};  // Made by the first Call::stop_token().
    LocalCompletion local;                    // Of a call from this process.
    std::unique_ptr<InlineBulk> inline_bulk;

    // nullptr: not connected now.
    core::Peer* peer() const { return session ? session->peer : nullptr; }
};

inline ServerCall::ServerCall()
    : CallScope(base::SlotTable<ServerCall>::entry_of(*this).generation) {}

}  // namespace weft::rpc
