// Runs collectives over the RPC core: one node's part in every tree it stands in.
//
// A collective travels as calls of weft.Collective/Forward. Each receiver forwards to its children
// first, runs the method itself, gathers one outcome per rank of its subtree and replies with all
// of them. Whoever forwarded to a rank that failed adopts its children, which may have been asked
// before: then they answer what they came to then (known.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <weft/group.h>

#include "coll/known.h"
#include "coll/wire.h"
#include "rpc/server.h"

namespace weft::coll {

class Engine;
struct Operation;

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

    std::size_t running() const { return running_; }  // That have not all their outcomes here.

    core::Context& context() { return context_; }
    Duration default_timeout = 30s;
    const Connect& connect() const { return connect_; }
    void run_on_context(Function<void()> work) const { run_on_context_(std::move(work)); }

  private:
    void on_forward(Call call);
    Status refusal(const ForwardHeader& header, const GroupImpl* group) const;
    void ask_again(const ForwardHeader& header, Call call);
    void tell(const std::shared_ptr<Operation>& operation, std::vector<RankOutcome> all);
    void watch(const std::shared_ptr<Operation>& operation, Call call);
    void begin(const std::shared_ptr<Operation>& operation, Interval below);
    // `again`: somebody who died may have asked them before.
    void forward_below(const std::shared_ptr<Operation>& operation, Interval below, bool again);
    void forward(const std::shared_ptr<Operation>& operation, Interval child, bool again);
    void adopt(const std::shared_ptr<Operation>& operation, Interval child, bool again, Status why);
    void run_here(const std::shared_ptr<Operation>& operation);
    void progress(const std::shared_ptr<Operation>& operation);
    void expire(Operation& operation);
    static void stop(Operation& operation);

    core::Context& context_;
    rpc::Server& server_;
    const Connect connect_;
    const RunOnContext run_on_context_;
    std::vector<std::shared_ptr<GroupImpl>> groups_;
    struct Sweeping : base::Timer {
        Engine* engine = nullptr;
    };
    Sweeping sweeping_;                  // While anything is known.
    const std::uint64_t origin_;         // Of the collectives that begin here,
    std::uint64_t next_sequence_ = 0;    // which are numbered.
    std::set<std::uint64_t> unsettled_;  // Of these, without all outcomes.
    std::size_t running_ = 0;
    Known<Operation> known_;  // Of others, that this rank took part in.
};

}  // namespace weft::coll
