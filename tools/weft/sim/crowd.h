// Many clients of one server that ask for more than it can read, or read less than it answers, and
// memory that held what others said: what each of them is owed. Played when nothing else is wrong.
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

#include "sim/rules.h"

namespace weft::tool {

class Crowd {
  public:
    using Channels =
        std::function<const Channel&(const std::string& client, const std::string& server)>;
    using Names = std::vector<std::string>;

    Crowd(sim::Simulation& simulation, Verdict& verdict, Channels channels)
        : simulation_(simulation), verdict_(verdict), channels_(std::move(channels)) {}

    // Of each server, whenever it starts.
    void add_method(MethodRegistrar& registrar, const std::string& server);
    // All keep the server busy with large requests: each gets its share of it.
    void judge_shares(const Names& clients, const std::string& server);
    // All have replies under way, which some of them read slowly, when the server ends in order,
    // and go on calling until it is up again. Now and then one stands still all that time, and some
    // lose their connection.
    void judge_end(const Names& clients, const std::string& server);
    // Processes come to a server of their own, call and end in order, without pause, before it ends
    // and meanwhile: its handlers hear of each end, and nothing of them holds up its own.
    void judge_visits();

    // Each server exposes memory that it has just allocated: what its peers left there before is
    // seen by sim::Simulation::watch_reads().
    void show_pages(const Names& clients, const Names& servers);

  private:
    // A call of a client that goes on calling while the server ends.
    struct Knock {
        std::string client;
        bool has_run = false;
        Status status;
    };
    // A process that ends in order while its call is in a handler, or when it was answered.
    struct Visit {
        TimePoint began = never, left = never, answered = never, heard = never;
    };
    struct Errand {
        std::string client;
        TimePoint answered = never;
        bool is_complete = false;
        bool is_whole = false;  // The reply is all that was asked for.
        Status status;
    };

    void ask_on(const std::string& client, const std::string& server, TimePoint end);
    void send(const std::string& client, const std::string& server);
    // `then` is called when it has ended.
    void knock(const std::string& client, const std::string& server, std::function<void()> then);
    void go_on_knocking(const std::string& client, const std::string& server);
    void judge_knocks();
    void answer(Call call, const std::string& server);
    std::shared_ptr<void> serve_visits(Runtime& runtime);
    void hold_visit(Call call);
    std::shared_ptr<void> visit(Runtime& runtime, const std::string& visitor);
    void leave(Channel& channel);
    void come_again(const std::string& visitor);
    void slow_down_some(const Names& clients);
    void cut_some(const Names& clients, const std::string& server);
    std::string describe(const Errand& errand) const;
    std::uint64_t below(std::uint64_t end) { return simulation_.random() % end; }
    Duration up_to(Duration most) {
        return Duration(static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.count()))));
    }

    sim::Simulation& simulation_;
    Verdict& verdict_;
    const Channels channels_;
    std::deque<Visit> visits_;
    bool visiting_ = false;
    std::deque<Errand> errands_;
    std::deque<Knock> knocks_;
    bool knocking_ = false;
    std::string standing_;       // The client that stands still until the server is up again.
    std::set<std::string> cut_;  // Clients that lose their connection, and large replies with it.
    std::map<std::string, std::uint64_t> served_;
    std::uint64_t open_ = 0;
};

}  // namespace weft::tool
