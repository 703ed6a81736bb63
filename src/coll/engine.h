// Runs collectives over the RPC core: one node's part in every tree it stands in.
//
// A collective travels as calls of weft.Collective/Forward. Each receiver forwards to its children
// first, runs the method itself, gathers one outcome per rank of its subtree and replies with all
// of them. No healing yet: a dead rank costs its subtree, and each of its ranks says so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <weft/group.h>

#include "coll/gathering.h"
#include "coll/wire.h"
#include "rpc/server.h"

namespace weft::coll {

class Engine;

// A view, and channels to its members as they are needed.
class GroupImpl {
  public:
    GroupImpl(Engine& of, std::shared_ptr<void> owner, GroupView with)
        : engine(of), view(std::move(with)), owner_(std::move(owner)) {}

    Result<Channel> channel(std::uint32_t rank);
    // One outcome per rank, all the same.
    std::vector<RankOutcome> fail_all(const Status& why) const;

    Engine& engine;
    const GroupView view;
    std::optional<std::uint32_t> own_rank;  // When this runtime is a member.

  private:
    std::shared_ptr<void> owner_;    // Keeps the engine.
    std::vector<Channel> channels_;  // By rank; grows with the highest rank used.
};

class Engine {
  public:
    using Connect = std::function<Result<Channel>(const std::vector<std::string>&)>;

    using RunOnContext = std::function<void(Function<void()>)>;  // Runs it there, and waits.

    Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run);

    // From here on this runtime takes part as `group->own_rank`. Errors: ALREADY_EXISTS.
    Status join(std::shared_ptr<GroupImpl> group);
    // The joined group with this view; nullptr: none.
    std::shared_ptr<GroupImpl> joined(std::uint64_t digest) const;
    // Starts a collective over the whole group. Thread: the context's. `done` runs in a later turn,
    // in the scope that this is called in unless it is `detached` from that.
    void start(std::shared_ptr<GroupImpl> group, std::uint64_t method, std::vector<std::byte> body,
               TimePoint deadline, bool detached, GroupCompletion done);
    // Forgets every group (they refer back to the runtime).
    void shutdown();

    core::Context& context() { return context_; }
    Duration default_timeout = 30s;
    const Connect& connect() const { return connect_; }
    void run_on_context(Function<void()> work) const { run_on_context_(std::move(work)); }

  private:
    struct Operation;

    void on_forward(Call call);
    Status refusal(const ForwardHeader& header, const GroupImpl* group) const;
    void run(const std::shared_ptr<Operation>& operation, Interval below, ByteView body);
    void forward(const std::shared_ptr<Operation>& operation, Interval child, ByteView body);
    void run_here(const std::shared_ptr<Operation>& operation, ByteView body);
    void progress(const std::shared_ptr<Operation>& operation);
    void expire(Operation& operation);

    core::Context& context_;
    rpc::Server& server_;
    const Connect connect_;
    const RunOnContext run_on_context_;
    std::vector<std::shared_ptr<GroupImpl>> groups_;
};

}  // namespace weft::coll
