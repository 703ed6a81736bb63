// One runtime's parts, put together: the composition root. Outlives the Runtime while a Channel,
// Region or Buffer still refers to it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/runtime.h>

#include "api/waiters.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "bulk/bulk.h"
#include "coll/engine.h"
#include "core/context.h"
#include "core/driver.h"
#include "core/offload_pool.h"
#include "na/arena.h"
#include "na/registry.h"
#include "rpc/channel_impl.h"
#include "rpc/client.h"
#include "rpc/server.h"

namespace weft::api {

// What a simulation or a test brings instead of the real thing.
struct NodeParts {
    std::shared_ptr<base::Clock> clock;
    std::shared_ptr<base::Random> random;
    std::shared_ptr<na::Registry> providers;
    // Where time passes by a call of this: until done(), with turns of all that there is. False:
    // `limit` was over first, or nothing was left to happen.
    std::function<bool(const std::function<bool()>& done, Duration limit)> pass_time;
};

// The real thing: steady clock, kernel randomness, the transports of this build.
NodeParts real_parts();

class Node final : public std::enable_shared_from_this<Node>,
                   private MethodRegistrar,
                   private base::ForkWatcher {
  public:
    static Result<std::shared_ptr<Node>> make(RuntimeOptions options, NodeParts parts);
    ~Node() override;

    // Thread of all that follow up to shutdown(): any; they hop to the context's.
    Status add(Service& service);
    // At all of these addresses, or at none; a service that is there already stays.
    Status serve(Service* service, const std::vector<std::string>& uris);
    Status listen(std::string_view uri) { return serve(nullptr, {std::string(uri)}); }
    Result<Channel> connect(const std::vector<std::string>& uris);
    Result<Region> expose(Buffer memory, ExposeOptions options);
    Result<Group> group(GroupView view);
    Status join(GroupView view, std::uint32_t rank);
    std::vector<std::string> addresses();
    // As Runtime::state().
    std::string state();
    // Runs `work` on the context's thread and waits; inline when this is that thread.
    void on_context(Function<void()> work);
    // Refuses new calls and waits for those in their handlers. `hurried` waits for so long at most;
    // true: the rest is not to be waited for. Errors: DEADLINE_EXCEEDED, also when the context's
    // thread takes no turn; CANCELLED when it is hurried.
    using Hurried = std::function<bool(Duration)>;
    Status drain(const Hurried& hurried);
    // What it consists of, in turns: it begins; calls, and what else is left.
    void begin_drain(TimePoint by);
    void begin_drain() { begin_drain(saturating_add(parts.clock->now(), options.drain_timeout)); }
    std::pair<std::uint32_t, std::uint64_t> left_to_drain();
    // While it lives a thread is in a call of the program that uses this until it returns:
    // shutdown() then aborts and names `call`.
    class Inside {
      public:
        Inside(Node& node, const char* call) : node_(node) {
            node_.mark_exit();
            node_.inside_in_ = call;
            ++node_.inside_;
        }
        Inside(const Inside&) = delete;
        Inside& operator=(const Inside&) = delete;
        ~Inside() { --node_.inside_; }

      private:
        Node& node_;
    };
    bool is_in_use() const { return inside_ != 0; }  // Such a thread is there. Thread: any.
    // For a thread that waits meanwhile, every second or more often: logs what blocks the context's
    // thread while it does, once for each turn.
    void look_for_stall();
    // Readable after stop().
    int stop_fd() const { return stop_fd_.get(); }
    void stop();
    // Returns when no stop() is under way. What happened before one happened before this.
    void await_stops() const;
    // Delivers what collectives owe, until drain_timeout; then stops the driver, completes
    // everything with CANCELLED, closes all endpoints. Idempotent. Not in a turn, nor on a thread
    // of the pool: aborts, unless the program is in exit() there.
    void shutdown();
    // Of a call by a thread of the program that may be there when another one calls exit(): at the
    // first few, some of which come after a static object that owns the runtime was made.
    void mark_exit() noexcept;
    // exit() has ended its turns and left all else: what waits for one waits in vain. Thread: any.
    bool is_left() const { return is_left_; }
    bool is_down() const { return down_; }  // shutdown() has begun. Thread: what calls that.
    void be_driven(bool is_driven);         // Runtime::be_driven().
    // For an end in exit(), where what its handlers use goes, or what called exit() is in the
    // middle of anything: says why, takes no turn any more, and nothing of it is destroyed.
    void stay_for_exit(const char* why);

    const RuntimeOptions options;  // Without log_sink.
    const NodeParts parts;
    base::Log log;
    std::shared_ptr<na::Arena> arena;
    const na::Incarnation incarnation;
    core::OffloadPool pool;
    core::Context context;
    bulk::Bulk bulk;
    rpc::Client client;
    const std::unique_ptr<rpc::Server, rpc::Server::Leave> server_held;
    rpc::Server& server;
    coll::Engine collectives;
    core::Driver driver;
    Waiters waiters;

  private:
    Node(RuntimeOptions options, LogSink sink, NodeParts parts);
    void add(const MethodId& method, RawHandler handler, MethodTraits traits) override;
    // This copy of it is a forked child's, and is neither used nor destroyed.
    void on_forked() noexcept override;
    std::string describe();
    // `work` and its result, where this is the context's thread; else false.
    bool run_here(const std::function<bool()>& work);
    void in_turn(Function<void()> work);
    void turn_for(Function<void()> work);
    void end_work();
    void close_descriptors();
    void deliver_collectives();
    bool stays_in_use();
    void require_undriven() const;
    Status add_here(Service& service);
    Status why_not_served() const;
    bool in_turn_by(TimePoint by, const Hurried& hurried, Function<void()> work);
    std::string last_handler() const;
    bool deliver_lines_later();
    using EndpointPtr = std::unique_ptr<na::Endpoint>;
    Result<EndpointPtr> make_endpoint(na::Provider& provider, const na::Address* listen,
                                      std::size_t others);
    void take_in(EndpointPtr endpoint);
    Status open(na::Provider& provider);
    void on_blocked(Duration took);
    bool speaks(std::string_view scheme) const;
    Result<Channel> connect_here(const std::vector<std::string>& uris);
    // The same to a member that a peer named.
    Result<Channel> connect_named(const std::vector<std::string>& uris, const core::Reach& view);
    Result<Channel> connect_to(std::vector<na::Address> addresses);

    struct Lines : core::Deferred {
        base::Log* log = nullptr;
    } lines_;  // For the sink, in a turn's own time.
    std::vector<std::string> addresses_;
    core::Reach reach_;   // Of these.
    Status registering_;  // First error of the service that is being added.
    TimePoint blocked_told_until_{};
    std::vector<const Service*> served_;
    base::UniqueFd stop_fd_;
    std::atomic<int> stops_{0};  // Under way.
    std::atomic<bool> is_stopped_{false};
    std::atomic<int> exit_marks_{0};
    std::atomic<int> inside_{0};  // Threads, and what the last of them called.
    std::atomic<const char*> inside_in_{nullptr};
    std::atomic<TimePoint> stall_named_{TimePoint{}};  // In the turn that began then.
    std::shared_ptr<Node> kept_;                       // Itself, in a forked child.
    bool is_driven_ = false;                           // By an AsioDriver.
    bool down_ = false;
    std::atomic<bool> is_left_{false};
    // Once its end has begun: drain_timeout bounds all of it.
    std::atomic<TimePoint> ends_by_{never};
};

}  // namespace weft::api
