// The serving half: dispatches requests to handlers and carries their answers back.
#pragma once

#include "bulk/bulk.h"
#include "core/context.h"
#include "rpc/header.h"
#include "rpc/held_calls.h"
#include "rpc/method_table.h"
#include "rpc/server_call.h"

namespace weft::rpc {

class Server final : public core::FrameSink {
  public:
    Server(core::Context& context, bulk::Bulk& bulk);

    // Errors: ALREADY_EXISTS, UNAVAILABLE (draining). Thread: the context's, like everything here.
    Status add_method(std::string_view full_name, RawHandler handler, MethodTraits traits = {}) {
        if (draining_) return fail(Code::unavailable, "the server is shutting down");
        return methods_.add(full_name, std::move(handler), traits);
    }

    // Runs a method of this very process, as a collective does for its own rank: UNIMPLEMENTED
    // unless the method is made for that (MethodTraits). `done` may run inside. `body` must be
    // valid until then or until the handler has returned.
    void dispatch_local(std::uint64_t method, ByteView body, TimePoint deadline,
                        LocalCompletion done);

    // Ends what is held: its notices run, local calls complete with `why`, later answers go
    // nowhere.
    void shutdown(const Status& why);
    // Its owner's deleter. Calls may outlive their runtime, in a service say: then the records, and
    // the server around them, go with the last of them.
    struct Leave {
        void operator()(Server* server) const { server->leave(); }
    };

    // From here on new requests are refused with UNAVAILABLE, effect none.
    void drain() {
        draining_ = true;
        methods_.close();
    }
    std::uint32_t executing() const { return calls_.taken(); }

    struct Counters {
        std::uint64_t unknown_methods = 0;
        std::uint64_t expired = 0;
        std::uint64_t unanswered = 0;
    };
    const Counters& counters() const { return counters_; }
    core::Context& context() { return context_; }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    // What one client may have in handlers, and with us at all: it leaves records and memory for
    // others.
    static constexpr std::uint32_t calls_of_a_peer_max = 16384;

    ~Server();
    friend class weft::Call;
    using Entry = base::SlotTable<ServerCall>::Entry;

    ServerCall* admit(core::Peer& peer, const RequestHeader& header);
    void fetch_request(core::Peer& peer, ByteView frame);
    void take_riding(core::Peer& peer, ByteView frame);
    std::optional<Status> ride(ServerCall& call, bool put, const RegionRef& remote,
                               std::uint64_t offset, const Buffer& local);
    void drop_rider(ServerCall& call);
    void on_fetched(base::SlotId id, const Status& status, ByteView request);
    void on_other_frame(core::Peer& peer, core::FrameHead head, ByteView frame);
    void refuse_request(core::Peer& peer, const RequestHeader& header, const Method* method);
    void on_cancel(core::Peer& peer, ByteView frame);
    void run_handler(ServerCall& call);
    void hold(ServerCall& call);
    void recycle_marked(ServerCall& call);
    void leave();
    void answer_local(ServerCall& call, const Status& status, ByteView reply);
    void cancel(ServerCall& call);
    void answer(ServerCall& call, BodyWriter body);
    void answer_indirectly(ServerCall& call, const BodyWriter& body);
    void answer_lent(ServerCall& call, const BodyWriter& body);
    void answer_elsewhere(ServerCall& call, const BodyWriter& body);
    void drop_reply(ServerCall& call);
    void answer(ServerCall& call, const Status& status);
    void refuse(core::Peer& peer, WireCallId wire, const Status& status);
    void give_back(ServerCall& call);
    void recycle(ServerCall& call);
    void log_thrown(const std::string& method, std::exception_ptr thrown);

    core::Context& context_;
    bulk::Bulk& bulk_;
    MethodTable methods_;
    base::SlotTable<ServerCall> calls_;
    HeldCalls held_;
    bool draining_ = false;
    bool left_ = false;             // Context and bulk are gone.
    std::size_t riding_bytes_ = 0;  // Kept for handlers.
    Counters counters_;
};

}  // namespace weft::rpc
