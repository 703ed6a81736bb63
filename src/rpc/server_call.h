// One call in its handler, as the server keeps it.
#pragma once

#include <weft/call.h>
#include <weft/function.h>

#include "bulk/staging.h"
#include "core/peer.h"
#include "rpc/header.h"
#include "rpc/method_table.h"
#include "rpc/riding.h"

namespace weft::rpc {

using LocalCompletion = Function<void(const Status&, ByteView reply)>;

// A handler that outlives its client keeps its record; the answer then goes nowhere.
struct ServerCall {
    core::Peer* peer = nullptr;  // nullptr: the client is gone, or it is a local call.
    WireCallId wire;
    TimePoint deadline = never;
    Method* method = nullptr;
    ByteView request;
    // Something below was set and has to be cleared when the record is given back.
    bool marked = false;
    bool cancelled = false;
    bool held = false;    // In HeldCalls.
    bulk::FetchId fetch;  // While its large request is on its way.
    ServerCall* next_held = nullptr;
    Function<void()> on_cancel;
    LocalCompletion local;  // Of a call from this very process.
    std::unique_ptr<Rider> rider;
};

}  // namespace weft::rpc
