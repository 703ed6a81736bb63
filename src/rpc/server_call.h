// One call in its handler, as the server keeps it.
#pragma once

#include <weft/call.h>
#include <weft/function.h>

#include "bulk/staging.h"
#include "core/peer.h"
#include "rpc/header.h"
#include "rpc/method_table.h"
#include "rpc/riding.h"
#include "rpc/server_session.h"

namespace weft::rpc {

using LocalCompletion = Function<void(const Status&, ByteView reply)>;

// A handler that outlives its client keeps its record; the answer then goes nowhere.
struct ServerCall {
    // nullptr: the client is gone for good, or it is a local call.
    ServerSession* session = nullptr;
    ServerSession::Slot* slot = nullptr;
    WireCallId wire;
    TimePoint deadline = never;
    Method* method = nullptr;
    ByteView request;
    // Something below was set and has to be cleared when the record is given back.
    bool marked = false;
    bool cancelled = false;
    bulk::FetchId fetch;  // While its large request is on its way.
    Function<void()> on_cancel;
    LocalCompletion local;  // Of a call from this very process.
    std::unique_ptr<Rider> rider;

    // nullptr: it can't be reached now.
    core::Peer* peer() const { return session ? session->peer : nullptr; }
};

}  // namespace weft::rpc
