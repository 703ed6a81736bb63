// One context of a runtime, whole: its event loop, the layers on it, its endpoints, and the thread
// that turns it. A runtime is made of nodes that share Commons.
//
// Thread: that of the context, unless stated otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/channel.h>
#include <weft/options.h>

#include "api/commons.h"
#include "api/waiters.h"
#include "bulk/bulk.h"
#include "core/connect_policy.h"
#include "core/context.h"
#include "core/driver.h"
#include "na/door.h"
#include "rpc/client.h"
#include "rpc/server.h"

namespace weft::api {

class Node {
  public:
    // `first`: the node of context 0; nullptr: this is that.
    Node(Commons& commons, std::uint16_t index, const Node* first);

    // Before start(): `owner` keeps this and all that it refers to. Errors: RESOURCE_EXHAUSTED (no
    // descriptor).
    Status prepare(std::weak_ptr<void> owner);
    // Starts the thread; with options.manual the calling thread is the creator (ThreadOwnership).
    Status start();

    // ---- endpoints and peers
    using EndpointPtr = std::unique_ptr<na::Endpoint>;
    // What an endpoint listens on: an address, which no other context listens on; or a door; or
    // nothing.
    struct Listen {
        const na::Address* address = nullptr;
        std::shared_ptr<na::Door> door = nullptr;
    };
    // `others`: endpoints that are to be added before it.
    Result<EndpointPtr> make_endpoint(na::Provider& provider, const Listen& listen,
                                      std::size_t others);
    void add_endpoint(EndpointPtr endpoint);
    // `wanted`: the server's context, plus 1; 0: any. `spread`: ConnectOptions::spread.
    Result<Channel> connect(const std::vector<std::string>& uris, std::uint16_t wanted = 0,
                            unsigned spread = 1);
    // Connects to a member that a peer named, for collectives, if its address is one of `own` or
    // `view`.
    Result<Channel> connect_named(const std::vector<std::string>& uris,
                                  const core::ConnectPolicy& own, const core::ConnectPolicy& view);

    // ---- of a thread of the program that may turn the context (options.manual), and at its end
    // One turn; returns the number of events. Aborts while another thread is in such a turn.
    std::uint32_t turn(TimePoint now);
    // A thread is in turn(). Thread: any.
    bool is_turned() const { return is_turned_.load(std::memory_order_relaxed); }

    // ---- from any thread
    // Runs `work` on the context's thread and waits; inline when this is that thread.
    // False: exit() has abandoned the runtime, and the work never runs. Throws what `work` throws.
    bool on_context(Function<void()> work);
    // Runs `work` in a turn. False: it was interrupted, or there was no turn until `by`; the work
    // is dropped, or is still running. So the work must not use objects that its caller destroys.
    // `interrupted` waits at most for the time it is given.
    using InterruptWait = std::function<bool(Duration)>;
    bool run_in_turn_until(TimePoint by, const InterruptWait& interrupted, Function<void()> work);
    // As Runtime::state(), of this context.
    std::string state();
    // The part of a context in the state of several.
    struct Report {
        base::Figures figures;
        std::string details;  // As state().
        std::string advice;   // Empty: none.
    };
    static constexpr Duration report_timeout = 1s;
    // In a turn, or at once and true if this thread may use the context. `lines_max`: of each kind;
    // 0: without details.
    bool report(std::size_t lines_max, Function<void(Report)> done);
    // Of a context that does not report in time.
    std::string why_no_report() const;
    // For the placement of connections.
    na::ContextLoad load(TimePoint now) const;
    // For a waiting thread, every second or more often: logs the handler that blocks the context's
    // thread, once for each turn.
    void check_for_stall();
    std::string last_handler() const;
    // For messages: "context 3", or "the runtime" if that has one context.
    std::string name_text() const;
    // Delivers the log in the next turn. False: the caller must deliver it.
    bool defer_log_delivery();

    // ---- its end. Thread: that of RuntimeImpl::shutdown(), which is the context's then.
    // Completes everything with CANCELLED. Requires: entered.
    void cancel_all(const Status& why);
    void close_endpoints();
    // After the endpoints of all contexts, which may use the regions.
    void close_regions();
    void close_descriptors();

    // ---- its place
    Commons& commons;
    const std::uint16_t index;  // The number of the context.
    const std::shared_ptr<base::Random> random;

    // ---- the layers, the lowest first
    core::Context context;
    bulk::Bulk bulk;
    rpc::Client client;
    const std::unique_ptr<rpc::Server, rpc::Server::Deleter> owned_server;
    rpc::Server& server;
    core::Driver driver;
    Waiters waiters;

    // Of each kind in a state text.
    static constexpr std::size_t state_lines_max = 32;

  private:
    std::string describe(std::size_t lines_max = state_lines_max);
    Report make_report(std::size_t lines_max);
    // Runs `work` and returns its result if this thread may use the context; else returns false.
    bool try_run_on_thread(const std::function<bool()>& work);
    void turn_for(Function<void()> work);
    Status open(na::Provider& provider);
    bool has_transport(std::string_view scheme) const;
    Result<Channel> connect_to(std::vector<na::Address> addresses, std::uint16_t wanted,
                               unsigned spread = 1);
    void on_blocked(Duration took);

    struct LogDelivery : core::Deferred {
        base::Log* log = nullptr;
    } log_delivery_;  // Delivers to the sink, in a turn.
    TimePoint blocked_log_muted_until_{};
    std::atomic<TimePoint> stall_logged_{TimePoint{}};  // For the turn that began then.
    std::atomic<bool> is_turned_{false};                // A thread is in turn().
};

}  // namespace weft::api
