// The serving half: dispatches requests to handlers and carries their answers back.
//
// A request comes in a slot of its client's session, and each has exactly one outcome there, told
// at once and kept until the client's next call in that slot. A client whose connection is lost may
// come back and ask; its handlers run on meanwhile.
#pragma once

#include <atomic>

#include "bulk/bulk.h"
#include "core/context.h"
#include "rpc/header.h"
#include "rpc/method_table.h"
#include "rpc/server_call.h"
#include "rpc/server_sessions.h"

namespace weft::rpc {

struct ServerLimits {
    // Calls in handlers, and of those over small_request_bytes the bytes; more are pushed back.
    std::uint32_t handlers_max = 65536;
    std::size_t handler_bytes_max = 256u << 20;
    std::size_t parsed_bytes_max = 1u << 30;  // Of messages that were made of requests in handlers.
};

class Server final : public core::FrameSink {
  public:
    Server(core::Context& context, bulk::Bulk& bulk, ServerLimits limits = {});

    // Errors: ALREADY_EXISTS, UNAVAILABLE (draining). Thread: the context's, like everything here.
    Status add_method(std::string_view full_name, RawHandler handler, MethodTraits traits = {}) {
        if (draining_) return fail(Code::unavailable, "the server is shutting down");
        return methods_.add(full_name, std::move(handler), traits);
    }
    // One that is still called while the server drains: by which others ask for what they are owed.
    Status add_lasting_method(std::string_view full_name, RawHandler handler) {
        return methods_.add(full_name, std::move(handler), {}, true);
    }
    bool is_draining() const { return draining_; }
    std::size_t methods() const { return methods_.size(); }
    // Takes back what was added last, down to so many methods. Requires: no turn since.
    void take_back_methods(std::size_t to) { methods_.shrink(to); }

    // Runs a method of this very process, as a collective does for its own rank. `done` may run
    // inside. `body` must be valid until then or until the handler has returned. Gives what
    // cancel_local() takes, unless it has ended already. Errors, where no handler ran and `done`
    // does not run: UNIMPLEMENTED: no method that is made for that (MethodTraits);
    // RESOURCE_EXHAUSTED; UNAVAILABLE: it shuts down.
    Result<base::SlotId> dispatch_local(std::uint64_t method, ByteView body, TimePoint deadline,
                                        LocalCompletion done);
    // Its handler is told; `done` runs instead of the one that it began with.
    void cancel_local(base::SlotId id, LocalCompletion done);
    // Requests that are not counted: as many as there may be are 256 MiB.
    static constexpr std::size_t small_request_bytes = 4096;
    const ServerLimits& limits() const { return limits_; }
    // How much more memory the call may hold for its parsed request: its client has half of what
    // the others leave, and so has each call of this process.
    std::size_t parsed_room(const ServerCall& call) const;
    // Until the call is answered. Requires: there is room.
    void hold_parsed(ServerCall& call, std::size_t bytes);
    std::size_t parsed_bytes() const { return parsed_bytes_; }
    // nullptr: it has none, or is not served here.
    MergeFunction merge_of(std::uint64_t method) const {
        const Method* found = methods_.find(method);
        return found ? found->traits.merge : nullptr;
    }

    // Ends what is held: its notices run, local calls complete with `why`, later answers go
    // nowhere.
    void shutdown(const Status& why);
    // Its owner's deleter. Calls may outlive their runtime, in a service say: then the records, and
    // the server around them, go with the last of them.
    struct Leave {
        void operator()(Server* server) const { server->leave(); }
    };

    // False: it has left, and may be destroyed: for Calls that were answered. Thread: any.
    static bool is_there(const Server* server);

    // From here on new requests are refused with UNAVAILABLE, effect none; the handlers that asked
    // are told.
    void drain();
    // After drain(), once no call executes: no client's session begins another one, and the clients
    // are told, so that they send elsewhere what is not answered. To be called again for sessions
    // that begin or return meanwhile.
    void end_sessions();
    std::uint32_t executing() const { return calls_.taken(); }
    std::size_t sessions() const { return sessions_.size(); }
    // The session that sent the call; {0, 0} of one of this process, or that was answered.
    static SessionId session_of(const Call& call);
    // Its client is connected, or may come back.
    bool has_session(const SessionId& id) { return sessions_.find(id) != nullptr; }
    // Of them, those without a connection.
    std::size_t lost_sessions();
    // Of them, those whose client may still ask for replies that were lost with its connection.
    std::size_t awaited_sessions();

    struct Counters {
        std::uint64_t unknown_methods = 0;
        std::uint64_t expired = 0;
        std::uint64_t unanswered = 0;
        std::uint64_t resumed = 0;  // Sessions.
        std::uint64_t answered_again = 0;
        std::uint64_t pushed_back = 0;
    };
    const Counters& counters() const { return counters_; }
    core::Context& context() { return context_; }

    // For people: counts, the calls that are most overdue, latencies by method.
    std::string state(std::size_t lines_max);
    // The method of the handler that began last; empty: none began. Thread: any.
    std::string_view last_method() const {
        const Method* const method = last_run_.load(std::memory_order_acquire);
        return method ? method->name : std::string_view();
    }
    // Who hears, once a minute at most, of a handler that goes on for long after its deadline.
    void set_on_overstay(Function<void(const std::string&)> told) {
        on_overstay_ = std::move(told);
    }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_heartbeat(core::Peer& peer) override;
    void look_for_overstays(ServerSession& session);
    void on_peer_down(core::Peer& peer, const Status& why) override;
    void on_backlog() override;
    // Calls that each client may have here at once; fewer while requests pile up.
    std::uint32_t window() const { return window_; }

  private:
    // A client that is gone so long: its handlers are told, and then nobody will ask any more.
    static constexpr Duration told_after = 3s;
    static constexpr Duration asks_within = 250ms;  // A round trip after its session was resumed.
    static constexpr Duration forgotten_after = 10s;
    static constexpr Duration overstays_after = 5s;  // After its deadline.
    static constexpr Duration overstay_told_every = 60s;
    static constexpr std::uint32_t window_least = 4;
    static constexpr Duration widen_after = 100ms;  // Without a backlog.

    ~Server();
    friend class weft::Call;
    using Entry = base::SlotTable<ServerCall>::Entry;

    using Slot = ServerSession::Slot;

    Slot* next_in_slot(core::Peer& peer, core::FrameHead head, const std::byte* frame);
    Slot* out_of_place(core::Peer& peer, WireCallId wire);
    bool has_room(std::size_t bytes) const;
    ServerCall* admit(core::Peer& peer, Slot& slot, const RequestHeader& header, std::size_t bytes);
    void take_large(core::Peer& peer, Slot& slot, ByteView frame);
    void fetch_request(core::Peer& peer, Slot& slot, ByteView frame);
    void take_riding(core::Peer& peer, Slot& slot, ByteView frame);
    std::optional<Status> ride(ServerCall& call, bool put, const RegionRef& remote,
                               std::uint64_t offset, const Buffer& local);
    void drop_rider(ServerCall& call);
    void on_fetched(base::SlotId id, const Status& status, ByteView request);
    void on_other_frame(core::Peer& peer, core::FrameHead head, ByteView frame);
    static Status no_place();
    static Status no_method(std::uint64_t hash);
    void refuse_request(core::Peer& peer, Slot& slot, const RequestHeader& header,
                        const Method* method);
    void on_cancel(core::Peer& peer, ByteView frame);
    void run_handler(ServerCall& call);
    [[gnu::noinline]] void start_timing(ServerCall& call);
    void recycle_marked(ServerCall& call);
    void refuse_all() {
        draining_ = true;
        methods_.close();
    }
    void leave();
    void answer_local(ServerCall& call, const Status& status, ByteView reply);
    void cancel(ServerCall& call);
    void answer(ServerCall& call, BodyWriter body);
    void answer_indirectly(ServerCall& call, const BodyWriter& body);
    Status why_too_large(std::size_t bytes) const;
    static Status why_not_lent(const core::Peer& peer, std::size_t bytes, const Status& why);
    void answer_lent(ServerCall& call, const BodyWriter& body);
    void answer_elsewhere(ServerCall& call, const BodyWriter& body);
    static void keep_reply(ServerCall& call, const BodyWriter& body);
    void drop_unread(core::Peer& peer);
    void answer(ServerCall& call, const Status& status);
    void tell(core::Peer* peer, Slot& slot, WireCallId wire, const Status& status,
              Duration pushback = {});
    void send_outcome(core::Peer& peer, const Slot& slot, WireCallId wire);
    void give_back(ServerCall& call);
    void recycle(ServerCall& call);
    void be_there();

    void on_session(core::Peer& peer, ByteView frame);
    void begin_session(core::Peer& peer, const SessionId& id);
    void resume_session(core::Peer& peer, const SessionId& id);
    void attach(ServerSession& session, core::Peer& peer);
    void on_ask(core::Peer& peer, ByteView frame);
    bool send_grant(core::Peer& peer, Verdict verdict, const ServerSession* session);
    void say_ended(ServerSession& session);
    static void on_time(base::Timer& timer, TimePoint now);
    void look_at_lost(ServerSession& session, TimePoint now);
    void tell_handlers(ServerSession& session);
    void await(ServerSession& session, TimePoint until);
    void forsake_riders(ServerSession& session);
    void end_session(ServerSession& session);
    void set_window(std::uint32_t window);
    void widen(TimePoint now);

    core::Context& context_;
    bulk::Bulk& bulk_;
    const ServerLimits limits_;
    MethodTable methods_;
    base::SlotTable<ServerCall> calls_;
    ServerSessions sessions_;
    struct Widening : base::Timer {
        Server* server = nullptr;
    } widening_;  // While the window is not the widest.
    std::uint32_t window_ = slots_max;
    TimePoint backlog_at_{};  // The last time.
    std::uint64_t last_client_id_ = 0;
    bool draining_ = false;
    bool is_ended_ = false;         // end_sessions() was called.
    bool left_ = false;             // Context and bulk are gone.
    std::size_t riding_bytes_ = 0;  // Kept for handlers,
    std::size_t large_bytes_ = 0;   // and of large requests in them.
    std::size_t parsed_bytes_ = 0;  // Of messages that were made of those.
    Function<void(const std::string&)> on_overstay_;
    TimePoint overstay_told_until_{};
    std::atomic<const Method*> last_run_{nullptr};
    Counters counters_;
};

// That a handler threw. Thread: the context's, if there is one.
void log_thrown_by_handler(core::Context* context, const std::string& method,
                           std::exception_ptr thrown);

}  // namespace weft::rpc

// Costs a comparison inside a turn.
inline void weft::Call::require_thread(const char* called) const {
    if (!server_->context_.in_turn()) [[unlikely]]
        require_no_other_thread(called);
}
