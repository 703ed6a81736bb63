// What all collectives of one runtime share: its context, server and connections, its clock, and
// the limits of the work that peers cause. Knows no driver. Thread: the context's, unless noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/group.h>

#include "base/assert.h"
#include "coll/collective_table.h"
#include "coll/deferred_requests.h"
#include "coll/peer_clock.h"
#include "coll/resource_quota.h"
#include "core/connect_policy.h"
#include "core/context.h"
#include "rpc/server.h"

namespace weft::coll {

class CollectiveHost {
  public:
    // `named_by`: nullptr: addresses of the local program; else addresses that a peer named, of
    // which only those that this policy covers, or that the runtime listens on, are used.
    using Connect = std::function<Result<Channel>(const std::vector<std::string>& uris,
                                                  const core::ConnectPolicy* named_by)>;
    // Runs it on the context, and waits. False: exit() has abandoned the runtime, and it never
    // runs.
    using RunOnContext = std::function<bool(Function<void()>)>;

    CollectiveHost(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run,
                   std::size_t reply_bytes_max);

    core::Context& context() const { return context_; }
    rpc::Server& server() const { return server_; }
    const Connect& connect() const { return connect_; }
    // Thread: any.
    bool run_on_context(Function<void()> work) const { return run_on_context_(std::move(work)); }
    std::size_t reply_bytes_max() const { return reply_bytes_max_; }
    // Thread: any.
    CollectiveId new_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
    // The local clock, for other ranks.
    const OwnClock& clock() const { return clock_; }
    Ticks clock_reading() const { return clock_.read(context_.clock().now()); }
    // For numbers that peers can't predict.
    std::uint64_t secret() const { return secret_; }

    // Runs `work` in a turn, and without a scope unless it is in a turn already: between turns the
    // context's time stands still, and handlers of this rank may be about to run.
    template <class Work>
    void in_turn(Work&& work) const {
        if (context_.in_turn()) return work();
        context_.refresh_time();
        const core::Context::EnterGuard entered(context_);
        const core::Context::ScopeGuard no_scope(context_, nullptr);
        work();
    }
    // The scope in which a collective with these options begins; nullptr: none. Requires: in a
    // turn.
    core::CallScope* scope_of(const GroupCallOptions& options) const {
        return options.detached ? nullptr : context_.scope();
    }
    // Reports `outcome` in a later turn, in the scope of the present call. Requires: in a turn.
    void complete_later(const GroupCallOptions& options, GroupOutcome outcome,
                        GroupCompletion done) const;

    // Runs the local method. `client`: the client that the collective comes from.
    Result<base::SlotId> run_here(std::uint64_t method, ByteView body, TimePoint until,
                                  const ClientKey& client, rpc::LocalCompletion done);
    SessionKey session_key_of(const Call& call) const {
        const rpc::SessionId session = server_.session_of(call);
        return {session.high, session.low};
    }
    // The client that brought a call, or the collective that the call is part of here. Requires:
    // the call's handler has just begun.
    ClientKey client_of(const Call& call) const;

    // Collectives that lack outcomes at this rank.
    std::size_t running() const { return running_; }
    void on_begun() { ++running_; }
    void on_ended() {
        WEFT_ASSERT(running_ > 0);
        --running_;
    }
    DeferredRequests& deferred_requests() { return deferred_requests_; }
    const std::shared_ptr<ResourceQuota>& quota() const { return quota_; }

  private:
    // ---- constant
    core::Context& context_;
    rpc::Server& server_;
    const Connect connect_;
    const RunOnContext run_on_context_;
    const std::size_t reply_bytes_max_;
    const OwnClock clock_;
    const std::uint64_t secret_;

    // ---- any thread
    std::atomic<CollectiveId> next_id_{1};

    // ---- the context's thread
    std::size_t running_ = 0;
    ClientKey current_client_;  // Client of the collective with the method in run_here().
    DeferredRequests deferred_requests_{context_};
    const std::shared_ptr<ResourceQuota> quota_ = std::make_shared<ResourceQuota>();
};

}  // namespace weft::coll
