// One call in its handler, as the server keeps it.
#pragma once

#include <stop_token>

#include <weft/call.h>
#include <weft/function.h>

#include "base/slot_table.h"
#include "bulk/staging.h"
#include "core/peer.h"
#include "core/scope.h"
#include "rpc/header.h"
#include "rpc/method_table.h"
#include "rpc/riding.h"
#include "rpc/server_session.h"

namespace weft::rpc {

using LocalCompletion = Function<void(const Status&, ByteView reply)>;

// A handler that outlives its client keeps its record; the answer then goes nowhere.
struct ServerCall : core::Scope {
    ServerCall();
    // nullptr: the client is gone for good, or it is a local call.
    ServerSession* session = nullptr;
    ServerSession::Slot* slot = nullptr;
    WireCallId wire;
    Method* method = nullptr;
    ByteView request;
    // `marked`: something below was set.
    TimePoint started{};           // Of one that is timed.
    std::size_t large_bytes = 0;   // Of a large request.
    std::size_t parsed_bytes = 0;  // Of the message that was made of it.
    bulk::FetchId fetch;           // While its large request is on its way.
    Function<void()> on_cancel;
    Function<void()> on_drain;
    std::stop_source stop{std::nostopstate};  // Of who asked for its token.
    LocalCompletion local;                    // Of a call from this very process.
    std::unique_ptr<Rider> rider;

    // nullptr: it can't be reached now.
    core::Peer* peer() const { return session ? session->peer : nullptr; }
};

inline ServerCall::ServerCall() : Scope(base::SlotTable<ServerCall>::entry_of(*this).generation) {}

}  // namespace weft::rpc
