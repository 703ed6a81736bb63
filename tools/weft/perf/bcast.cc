// The metric `bcast`: bytes to every rank of a group and an acknowledgement from each. The root is
// a client outside of the group; every rank is a separate process.
#include <algorithm>

#include "base/codec.h"
#include "cli/own_uri.h"
#include "perf/metrics.h"
#include "perf/server_process.h"
#include "perf/service.h"

namespace weft::tool {

namespace {

constexpr Duration start_limit = 10s;

class BroadcastOperation final : public ClientOperation {
  public:
    BroadcastOperation(PerfClient& client, Loop& loop, const PerfOptions& options, Group group)
        : ClientOperation(client, loop),
          group_(std::move(group)),
          body_(options.size, std::byte{0x5a}),
          options_(options.group_options()) {}

    void issue(std::uint32_t slot) override {
        group_.collective(perf_broadcast, BodyWriter::of(body_), options_,
                          [this, slot](const GroupOutcome& outcome) {
                              const Status why = validate(outcome);
                              if (why.ok()) [[likely]] {
                                  loop_.succeeded(slot);
                              } else {
                                  loop_.failed(slot, why);
                              }
                          });
    }

  private:
    Status validate(const GroupOutcome& outcome) const {
        if (!outcome.status.ok()) return outcome.status;
        if (outcome.ranks.size() == group_.view().size()) return {};
        return fail(Code::data_loss,
                    "outcomes of " + std::to_string(outcome.ranks.size()) + " ranks");
    }

    const Group group_;
    const std::vector<std::byte> body_;
    const GroupCallOptions options_;
};

// The ranks are not bound to cpus: there may be more ranks than cpus, and the client has most work.
Result<std::vector<ServerProcess>> start_ranks(const PerfOptions& options) {
    std::vector<ServerProcess> ranks;
    for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
        PerfOptions its = options;
        its.listen = own_uri(options.transport, "perf-rank-" + std::to_string(rank));
        Result<ServerProcess> started = ServerProcess::launch(its, {}, false);
        if (!started) return std::move(started).status();
        ranks.push_back(*std::move(started));
    }
    return ranks;
}

Result<GroupView> view_of(std::vector<ServerProcess>& ranks) {
    std::vector<Member> members;
    for (ServerProcess& rank : ranks) {
        Result<std::string> uri = rank.uri_within(start_limit);
        if (!uri) return std::move(uri).status();
        members.push_back({static_cast<std::uint32_t>(members.size()), {*std::move(uri)}});
    }
    return GroupView::make("perf", 1, std::move(members));
}

// Sends each member the group's view and its rank.
Status join_all(PerfClient& client, const Group& group) {
    const std::string view = group.view().encode();
    for (const Member& member : group.view().members()) {
        std::vector<std::byte> request(sizeof member.rank + view.size());
        base::store(request.data(), member.rank);
        std::copy_n(as_bytes(view).data(), view.size(), request.data() + sizeof member.rank);
        Result<Channel> channel = group.channel(member.rank);
        if (!channel) return std::move(channel).status();
        std::optional<Status> joined;
        channel->call(perf_join, request, {},
                      [&](const Status& status, ByteView) { joined = status; });
        client.runtime().turn_until([&] { return joined.has_value(); }, Duration::max());
        if (!joined->ok()) return *joined;
    }
    return {};
}

}  // namespace

Result<Measurement> measure_broadcast(const PerfOptions& options) {
    if (!options.server.empty()) {
        return fail(Code::invalid_argument, "bcast starts its servers itself: no --server");
    }
    Result<std::vector<ServerProcess>> ranks = start_ranks(options);
    if (!ranks) return std::move(ranks).status();
    Result<GroupView> view = view_of(*ranks);
    if (!view) return std::move(view).status();
    Result<std::unique_ptr<PerfClient>> client =
        PerfClient::connect(options, view->at(0).uris.front());
    if (!client) return std::move(client).status();
    Result<Group> group = (*client)->runtime().group(*view);
    if (!group) return std::move(group).status();
    if (Status status = join_all(**client, *group); !status.ok()) return status;
    Loop loop(loop_options(options));
    BroadcastOperation operation(**client, loop, options, *std::move(group));
    return loop.run(operation);
}

}  // namespace weft::tool
