// The calling half: calls in flight in a slot table, each completed exactly once.
//
// Life of a call: submit() takes a slot, arms the deadline and claims a frame (in the transport, or
// in the peer's FIFO). Whatever comes first completes it: the reply, the deadline, cancel(), the
// loss of the peer, shutdown. The slot is given back before the completion runs, so a late reply
// finds a newer generation and is counted and dropped.
#pragma once

#include <weft/channel.h>

#include "core/context.h"
#include "rpc/header.h"

namespace weft::rpc {

using weft::BodyWriter;
using weft::Completion;

using CallId = base::SlotId;

class Client final : public core::FrameSink {
  public:
    explicit Client(core::Context& context);
    ~Client();

    // Thread: the context's. `done` runs once, in a later turn or at shutdown(), never in here.
    CallId submit(core::PeerRef peer, const MethodId& method, const BodyWriter& body,
                  TimePoint deadline, Completion&& done);
    // Completes the call with CANCELLED in the next turn and tells the peer. Stale ids are ignored.
    void cancel(CallId id);
    // As cancel(), but the completion never runs: its owner is going away.
    void abandon(CallId id);
    // Completes every call with `why`, now; what is submitted from here on completes at once.
    void shutdown(const Status& why);

    std::uint32_t in_flight() const { return calls_.taken(); }
    struct Counters {
        std::uint64_t submitted = 0;
        std::uint64_t completed = 0;
        std::uint64_t late_replies = 0;
    };
    const Counters& counters() const { return counters_; }

    void on_frame(core::Peer& peer, const core::FrameHead& head, ByteView frame) override;
    void on_leaving(core::Peer& peer, Bytes frame) override;
    void on_refused(core::Peer& peer, ByteView frame, const Status& why) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    struct Call : base::Timer, core::Deferred {
        Client* client = nullptr;
        core::Peer* peer = nullptr;  // Outgoing peers outlive their calls: remove_peer() ends them.
        Stage stage = Stage::none;
        Completion done;
        Status early;  // Why a deferred completion happens.
    };
    using Entry = base::SlotTable<Call>::Entry;

    CallId refuse(Entry* entry, Completion&& done);
    CallId refuse_size(Entry& entry, std::size_t bytes);
    CallId refuse_full(Entry& entry);
    void finish(Entry& entry, const Status& status, ByteView reply);
    void finish_failed(Entry& entry, core::Peer& peer, const core::FrameHead& head, ByteView frame);
    void finish_early(Entry& entry, Status status);
    void forget_frame(Call& call);
    void send_cancel(Call& call);
    void expire(Call& call);
    Entry* entry_of(ByteView request_frame);

    core::Context& context_;
    base::SlotTable<Call> calls_;
    Counters counters_;
    const Status ok_ = Status().with_effect(Effect::applied).with_stage(Stage::executing);
    bool closed_ = false;
};

}  // namespace weft::rpc
