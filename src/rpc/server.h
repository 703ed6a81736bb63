// The server side: dispatches requests to handlers and sends their replies.
//
// A request arrives in a slot of its client's session and has exactly one outcome there. The
// outcome is sent at once and kept until the client's next call in that slot. A client that lost
// its connection may reconnect and query it; the handlers run on meanwhile.
#pragma once

#include "base/state.h"
#include "bulk/bulk.h"
#include "core/context.h"
#include "rpc/handler_memory.h"
#include "rpc/method_table.h"
#include "rpc/server_call.h"
#include "rpc/server_sessions.h"
#include "rpc/server_window.h"

namespace weft::rpc {

enum class ServerPhase : std::uint8_t {
    serving,
    draining,      // New requests are refused; handlers run on.
    ended,         // end_sessions() was called.
    runtime_gone,  // Context and bulk are destroyed.
};
constexpr bool can_move(ServerPhase from, ServerPhase to) { return to > from; }

// Reports handlers that run on long after their deadline, at most once a minute.
class OverdueReport {
  public:
    void set(Function<void(const std::string&)> report) { report_ = std::move(report); }
    bool is_due(TimePoint now) const { return report_ && now >= next_; }
    void report(const std::string& text, TimePoint now) {
        next_ = now + interval;
        report_(text);
    }

  private:
    static constexpr Duration interval = 60s;

    Function<void(const std::string&)> report_;
    TimePoint next_{};
};

class Server final : public core::FrameSink, private SessionOwner, private ServerWindow::Owner {
  public:
    Server(core::Context& context, bulk::Bulk& bulk, const ServerLimits& limits = {});

    // Errors: ALREADY_EXISTS, UNAVAILABLE (draining). Thread: the context's, for all methods.
    Status add_method(std::string_view full_name, RawHandler handler, MethodTraits traits = {}) {
        if (is_draining()) return fail(Code::unavailable, "the server is shutting down");
        return methods_.add(full_name, std::move(handler), traits);
    }
    // A method that still runs while the server drains, so that peers can fetch their outstanding
    // results.
    Status add_drain_exempt_method(std::string_view full_name, RawHandler handler) {
        return methods_.add(full_name, std::move(handler), {}, true);
    }
    bool is_draining() const { return phase_ != ServerPhase::serving; }
    // As MethodTable; clients get UNIMPLEMENTED for staged methods.
    Status stage_methods(std::vector<std::unique_ptr<Method>> methods) {
        return methods_.stage(std::move(methods));
    }
    void publish_methods() noexcept { methods_.publish(); }
    void drop_staged_methods() { methods_.drop_staged(); }

    // Runs a method of this process, as a collective does for its own rank. `done` may run inside.
    // `body` must be valid until `done` has run or the handler has returned. Returns an id for
    // cancel_local(); it is stale if the call has ended already. Errors, in which case neither a
    // handler nor `done` runs: UNIMPLEMENTED: the method does not exist or is not collective
    // (MethodTraits); RESOURCE_EXHAUSTED; UNAVAILABLE: the server is shutting down.
    Result<base::SlotId> dispatch_local(std::uint64_t method, ByteView body, TimePoint deadline,
                                        LocalCompletion done);
    // Notifies the handler of the cancel; `done` replaces the completion of dispatch_local().
    void cancel_local(base::SlotId id, LocalCompletion done);
    // Smaller requests are not counted: handlers_max of them are 256 MiB.
    static constexpr std::size_t small_request_bytes = 4096;
    const ServerLimits& limits() const { return memory_.limits(); }
    // How much more memory the call may hold for its parsed request: a client may hold half of the
    // bytes that the others leave, and so may each call of this process.
    std::size_t parsed_room(const ServerCall& call) const { return memory_.parsed_room(call); }
    // Counts the bytes until the call is answered. Requires: parsed_room() allows them.
    void hold_parsed(ServerCall& call, std::size_t bytes) {
        call.needs_cleanup = true;
        memory_.hold_parsed(call, bytes);
    }
    std::size_t parsed_bytes() const { return memory_.parsed(); }
    // nullptr: the method has none, or is not served here.
    MergeFunction merge_of(std::uint64_t method) const {
        const Method* found = methods_.find(method);
        return found ? found->traits.merge : nullptr;
    }

    // Ends all calls: their cancel callbacks run, local calls complete with `why`, later replies
    // are dropped.
    void shutdown(const Status& why);
    // The owner's deleter. Calls may outlive their runtime, for example in a service: then the
    // server is destroyed with the last of their records.
    struct Deleter {
        void operator()(Server* server) const { server->on_runtime_gone(); }
    };

    // False: its runtime is destroyed, and so may be the server. For Calls that were answered.
    // Thread: any.
    static bool is_live(const Server* server);

    // From here on new requests are refused with UNAVAILABLE, effect none; the on_drain() callbacks
    // of the running handlers run.
    void drain();
    // After drain(), once no call executes: ends all sessions and notifies the clients, so that
    // they resend unanswered calls elsewhere. Call again for sessions that begin or return
    // meanwhile.
    void end_sessions();
    bool has_ended_sessions() const { return phase_ == ServerPhase::ended; }
    std::uint32_t executing() const { return calls_.taken(); }
    std::size_t sessions() const { return sessions_.size(); }
    // The session that sent the call; {0, 0} for a call of this process or an answered one.
    static SessionId session_of(const Call& call);
    // True: the client is connected or may reconnect.
    bool has_session(const SessionId& id) { return sessions_.find(id) != nullptr; }
    // Sessions without a connection.
    std::size_t lost_sessions();
    // Sessions with a client that may still query replies lost with its connection.
    std::size_t awaited_sessions();

    struct Counters {
        std::uint64_t unknown_methods = 0;
        std::uint64_t expired = 0;
        std::uint64_t unanswered = 0;
        std::uint64_t resumed = 0;  // Sessions.
        std::uint64_t replies_resent = 0;
        std::uint64_t pushed_back = 0;
    };
    const Counters& counters() const { return counters_; }
    core::Context& context() { return context_; }

    // For users: counts, the calls that are most overdue, latencies by method.
    std::string state(std::size_t lines_max);
    base::Figures figures();
    // As ServerSessions::count_requests() and busiest().
    ServerSessions::Requests count_requests() { return sessions_.count_requests(); }
    ServerSessions::Busiest busiest_session() { return sessions_.busiest(); }
    // The method of the handler that started last; empty: none has started. Thread: any.
    std::string_view last_method() const {
        const Method* const method = methods_.last_run();
        return method ? method->name : std::string_view();
    }
    // Called at most once a minute about a handler that runs on long after its deadline.
    void set_on_overdue_handler(Function<void(const std::string&)> report) {
        overdue_.set(std::move(report));
    }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    bool trim_shares() override;
    void on_heartbeat(core::Peer& peer) override;
    void report_overdue_handlers(ServerSession& session);
    void on_peer_down(core::Peer& peer, const Status& why) override;
    void on_backlog() override;
    // Calls that each client may have at this server at once; fewer under a backlog.
    std::uint32_t window() const { return window_.size(); }

  private:
    // A client without a connection for so long: its handlers are cancelled, later its session
    // expires.
    static constexpr Duration cancel_handlers_after = 3s;
    static constexpr Duration query_grace = 250ms;  // A round trip after the session was resumed.
    static constexpr Duration session_expires_after = 10s;
    static constexpr Duration overdue_report_after = 5s;  // After its deadline.

    ~Server();
    friend class weft::Call;
    using Entry = base::SlotTable<ServerCall>::Entry;

    using Slot = ServerSession::Slot;

    Slot* accept_in_slot(core::Peer& peer, core::FrameHead head, const std::byte* frame);
    Slot* reject_slot(core::Peer& peer, WireCallId wire);
    Entry* take_beyond_share();
    ServerCall* admit(core::Peer& peer, Slot& slot, const RequestHeader& header, std::size_t bytes);
    void receive_large(core::Peer& peer, Slot& slot, ByteView frame);
    void fetch_request(core::Peer& peer, Slot& slot, ByteView frame);
    void receive_inline_bulk(core::Peer& peer, Slot& slot, ByteView frame);
    std::optional<Status> transfer_inline(ServerCall& call, bool put, const RegionRef& remote,
                                          std::uint64_t offset, const Buffer& local);
    void on_fetched(base::SlotId id, const Status& status, ByteView request);
    void on_other_frame(core::Peer& peer, core::FrameHead head, ByteView frame);
    static Status handlers_exhausted();
    static Status unknown_method(std::uint64_t hash);
    void refuse_request(core::Peer& peer, Slot& slot, const RequestHeader& header,
                        const Method* method);
    void on_cancel(core::Peer& peer, ByteView frame);
    void run_handler(ServerCall& call);
    [[gnu::noinline]] void start_timing(ServerCall& call);
    void recycle_marked(ServerCall& call);
    bool is_runtime_gone() const { return phase_ == ServerPhase::runtime_gone; }
    void refuse_all() {
        if (!is_draining()) phase_.move_to(ServerPhase::draining);
        methods_.close();
    }
    void on_runtime_gone();
    void reply_local(ServerCall& call, const Status& status, ByteView reply);
    void cancel(ServerCall& call);
    void reply(ServerCall& call, BodyWriter body);
    void reply_slow_path(ServerCall& call, const BodyWriter& body);
    Status why_too_large(std::size_t bytes) const;
    static Status why_no_rendezvous(const core::Peer& peer, std::size_t bytes, const Status& why);
    void reply_by_rendezvous(ServerCall& call, const BodyWriter& body);
    void reply_without_peer(ServerCall& call, const BodyWriter& body);
    static void keep_reply(ServerCall& call, const BodyWriter& body);
    void drop_unread(core::Peer& peer);
    void reply(ServerCall& call, const Status& status);
    void send_failure(core::Peer* peer, Slot& slot, WireCallId wire, const Status& status,
                      Duration pushback = {});
    void resend_outcome(core::Peer& peer, const Slot& slot, WireCallId wire);
    void release_call(ServerCall& call);
    void recycle(ServerCall& call);
    void register_live();

    void on_session(core::Peer& peer, ByteView frame);
    void begin_session(core::Peer& peer, const SessionId& id);
    void resume_session(core::Peer& peer, const SessionId& id);
    void attach(ServerSession& session, core::Peer& peer);
    void on_call_query(core::Peer& peer, ByteView frame);
    void refuse_session(core::Peer& peer, SessionReply why, core::SessionRequest then);
    bool send_session_grant(core::Peer& peer, SessionReply session_reply,
                            const ServerSession* session);
    void send_session_ended(ServerSession& session);
    void on_time(ServerSession& session, TimePoint now) override;
    void cancel_handlers(ServerSession& session);
    void await_client(ServerSession& session, TimePoint until);
    void fail_inline_puts(ServerSession& session);
    void end_session(ServerSession& session);
    void on_window(std::uint32_t window) override;

    core::Context& context_;
    bulk::Bulk& bulk_;
    base::State<ServerPhase> phase_{ServerPhase::serving};
    MethodTable methods_;
    base::SlotTable<ServerCall> calls_;
    HandlerMemory memory_;
    core::Budget::Share handlers_{core::budget_of(limits().budgets, &core::Budgets::handlers),
                                  limits().handlers_max};
    ServerSessions sessions_;
    ServerWindow window_{*this, context_.timers()};
    OverdueReport overdue_;
    Counters counters_;
};

// Logs that a handler threw. Thread: the context's, if there is one.
void log_thrown_by_handler(core::Context* context, const std::string& method,
                           std::exception_ptr thrown);

}  // namespace weft::rpc

// Costs a comparison inside a turn.
inline void weft::Call::require_thread(const char* called) const {
    if (!server_->context_.in_turn()) [[unlikely]]
        require_no_other_thread(called);
}
