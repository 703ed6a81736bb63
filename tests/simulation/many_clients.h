// Many clients of one server that send more than it can read, or read slower than it replies, and
// memory that held messages of others: checks the guarantees for each. Runs without other faults.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <weft/service.h>
#include <weft/sim.h>

#include "simulation/rules.h"

namespace weft::scenarios {

class ManyClients {
  public:
    using Channels =
        std::function<const Channel&(const std::string& client, const std::string& server)>;
    using Names = std::vector<std::string>;

    ManyClients(sim::Simulation& simulation, RuleResults& results, Channels channels)
        : simulation_(simulation), results_(results), channels_(std::move(channels)) {}

    // The method of each server, whenever it starts.
    void add_method(MethodRegistrar& registrar, const std::string& server);
    // All clients keep the server busy with large requests: each gets its share of the context that
    // serves it.
    void validate_shares(const Names& clients, const std::string& server);
    // All clients have replies under way, which some of them read slowly, when the server ends in
    // order, and go on calling until it is up again. In some runs one is paused all that time, and
    // some lose their connection.
    void validate_end(const Names& clients, const std::string& server);
    // Processes start, call a server of their own and end in order, without pause, before it ends
    // and meanwhile: its handlers are notified of each end, and no process delays the server's end.
    void validate_short_lived_clients();

    // Each server exposes memory that it has just allocated: sim::Simulation::watch_reads() sees
    // bytes that its peers left there before.
    void expose_fresh_pages(const Names& clients, const Names& servers);

  private:
    // A call of a client that goes on calling while the server ends.
    struct CallDuringEnd {
        std::string client;
        bool has_run = false;
        Status status;
    };
    // A process that ends in order while its call is in a handler, or after its reply.
    struct ShortLivedClient {
        TimePoint began = never, left = never, answered = never, heard = never;
    };
    struct PendingReply {
        std::string client;
        TimePoint answered = never;
        bool is_complete = false;
        bool is_whole = false;  // The whole requested reply has arrived.
        Status status;
    };

    void call_repeatedly(std::uint32_t client, const Names& clients, const std::string& server,
                         TimePoint end);
    void send(const std::string& client, const std::string& server);
    // `then` runs when it has ended.
    void call_during_end(const std::string& client, const std::string& server,
                         std::function<void()> then);
    void keep_calling(const std::string& client, const std::string& server);
    void validate_calls_during_end();
    void answer(Call call, const std::string& server);
    std::shared_ptr<void> serve_short_lived_clients(Runtime& runtime);
    void hold_call(Call call);
    std::shared_ptr<void> short_lived_client(Runtime& runtime, const std::string& client_name);
    void leave(Channel& channel);
    void restart_client(const std::string& client_name);
    void slow_down_some(const Names& clients);
    void cut_some(const Names& clients, const std::string& server);
    std::string describe(const PendingReply& pending_reply) const;
    std::uint64_t below(std::uint64_t end) { return simulation_.random() % end; }
    Duration up_to(Duration most) {
        return Duration(static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.count()))));
    }

    sim::Simulation& simulation_;
    RuleResults& results_;
    const Channels channels_;
    std::deque<ShortLivedClient> short_lived_clients_;
    bool keeps_starting_ = false;
    std::deque<PendingReply> pending_replies_;
    std::deque<CallDuringEnd> calls_during_end_;
    bool keeps_calling_ = false;
    std::string paused_client_;  // The client that is paused until the server is up again.
    std::set<std::string> cut_;  // Clients that lose their connection, and large replies with it.
    // Requests of clients that want their share, by the server's context and the client.
    std::map<unsigned, std::map<std::uint32_t, std::uint64_t>> served_;
    std::uint64_t open_ = 0;
};

}  // namespace weft::scenarios
