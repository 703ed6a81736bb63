// The composition root: assembles the parts of one runtime. Outlives the Runtime while a Channel
// or Group still refers to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/runtime.h>

#include "api/commons.h"
#include "api/node.h"
#include "api/stop_event.h"
#include "base/assert.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "coll/engine.h"
#include "core/connect_policy.h"
#include "na/door.h"

namespace weft::api {

class RuntimeImpl final : public std::enable_shared_from_this<RuntimeImpl>,
                          private base::ForkObserver {
  public:
    static Result<std::shared_ptr<RuntimeImpl>> make(RuntimeOptions options, RuntimeParts parts);
    ~RuntimeImpl() override;

    static RuntimeImpl& of(Runtime& runtime) { return *runtime.impl_; }

    // Thread of all functions up to shutdown(): any; they run their work on the context's thread.
    // What is served: a service on one thread, one that several threads may use, or one for each
    // context.
    struct Served {
        Service* service = nullptr;
        bool is_shared = false;
        ServiceFactory* factory = nullptr;
        bool is_none() const { return !service && !factory; }
    };
    Status add(const Served& served);
    // At all of these addresses, or at none; a service that was added already stays.
    Status serve(const Served& served, const std::vector<std::string>& uris);
    Status listen(std::string_view uri) { return serve({}, {std::string(uri)}); }
    Result<Channel> connect(const std::vector<std::string>& uris, const ConnectOptions& with);
    Result<Region> expose(Buffer memory, ExposeOptions options);
    Result<Group> group(GroupView view);
    Status join(GroupView view, std::uint32_t rank);
    std::vector<std::string> addresses();
    // Refuses new calls and waits for those in their handlers. `interrupted` waits at most for the
    // time it is given; if it returns true, drain() stops waiting. Errors: DEADLINE_EXCEEDED, also
    // when the context's thread takes no turn; CANCELLED when it is interrupted.
    Status drain(const Node::InterruptWait& interrupted);
    // The steps of drain(), in turns of each context: the drain begins; in rounds, the calls in
    // handlers, and the collectives to deliver; and once all of these were 0 in one round, the
    // calls, and all other pending work. left_to_drain() ends the sessions of an idle context.
    using Left = std::pair<std::uint32_t, std::uint64_t>;
    void begin_drain(Node& at, TimePoint by);
    void begin_drain(Node& at) {
        begin_drain(at, saturating_add(commons.parts.clock->now(), commons.options.drain_timeout));
    }
    void begin_drain() { begin_drain(node); }
    Left work_to_drain(Node& at);
    Left left_to_drain(Node& at);
    Left left_to_drain() { return left_to_drain(node); }
    // While it lives, a thread of the program is in the function `call` of this runtime: shutdown()
    // then aborts and names it.
    class ActiveCall {
      public:
        ActiveCall(RuntimeImpl& impl, const char* call) : impl_(impl) {
            impl_.mark_exit();
            impl_.active_.last = call;
            ++impl_.active_.count;
        }
        ActiveCall(const ActiveCall&) = delete;
        ActiveCall& operator=(const ActiveCall&) = delete;
        ~ActiveCall() {
            WEFT_ASSERT(impl_.active_.count > 0);
            --impl_.active_.count;
        }

      private:
        RuntimeImpl& impl_;
    };
    bool is_in_use() const { return active_.count != 0; }  // There is an ActiveCall. Thread: any.
    // Readable after stop().
    int stop_fd() const { return stop_event_.fd(); }
    void stop() {
        if (!node.context.is_forked()) stop_event_.stop();
    }
    const StopEvent& stop_event() const { return stop_event_; }
    // Stops the driver, delivers pending collectives until drain_timeout, then completes everything
    // with CANCELLED and closes all endpoints. Idempotent. Aborts in a turn, or on a thread of the
    // pool, unless the program is in exit() there.
    void shutdown();
    // Call at the beginning of each function in which a thread of the program may be when another
    // thread calls exit() (base::mark_exit()). Only the first four calls mark, because marks are
    // limited; one of them follows the construction of an owner of static storage.
    void mark_exit() noexcept;
    bool is_down() const {
        return end_.has_begun;
    }  // shutdown() has begun. Thread: that of shutdown().
    // Runtime::set_driven(), of the contexts that have a bit. Thread: any.
    void set_driven(bool is_driven, std::uint64_t contexts = ~std::uint64_t{});
    // For an end in exit(), which destroys objects that handlers use, or was called in a turn:
    // prints `why`, takes no more turns, and destroys no part of the runtime.
    void keep_until_exit(const char* why);

    // The context that the calling thread is in a turn of; with options.manual, else the first one
    // that it turned last; else context 0.
    Node& current();
    // Whether the calling thread is in a turn of any context.
    bool is_entered() const;
    // FAILED_PRECONDITION in a turn of a runtime with several contexts, and in a function that
    // makes or registers a service of it: `call` waits for all.
    Status why_not_in_turn(const char* call) const;
    // Readable when a context has work, for an event loop that turns all of them (options.manual).
    // -1: in a simulation, with several contexts.
    int loop_fd() const;
    // For waiting threads: Node::check_for_stall() of each context.
    void check_for_stall();
    // As of Runtime (runtime_state.cc).
    std::string state();
    std::vector<ContextLoad> loads() const;

    Commons commons;
    const std::vector<std::unique_ptr<Node>> nodes;  // By their contexts' numbers.
    Node& node;                                      // Context 0, which has the collectives.
    coll::Engine collectives;

  private:
    RuntimeImpl(RuntimeOptions options, LogSink sink, RuntimeParts parts);
    static std::vector<std::unique_ptr<Node>> make_nodes(Commons& commons);
    // This copy belongs to a forked child, and is neither used nor destroyed.
    void on_forked() noexcept override;
    Status open_loop();
    void close_descriptors();
    void deliver_collectives();
    const char* call_elsewhere() const;
    bool must_stay_for_exit();
    void require_undriven() const;
    bool stop_drivers();
    void drain_servers();
    void cancel_all();
    void drain_work(TimePoint deadline);
    void release_made_services();
    std::vector<std::optional<Node::Report>> collect_reports(const std::vector<std::size_t>& lines);

    // ---- serving (runtime_serving.cc)
    struct Place {
        na::Address address;
        na::Provider* provider = nullptr;
        std::shared_ptr<na::Door> door;  // Of several contexts; nullptr: context 0 listens alone.
        std::string uri = {};            // Of the endpoint of context 0, once that is open.
    };
    using Opened = std::vector<std::vector<Node::EndpointPtr>>;  // By contexts.
    Status why_not_served(const Node& at) const;
    Status why_unsafe(const Served& served) const;
    Result<std::vector<Place>> parse_places(const std::vector<std::string>& uris) const;
    Status serve_on_all(const Served& served, std::vector<Place> places,
                        const std::vector<std::string>& uris);
    Status open_doors(std::vector<Place>& places, const std::vector<std::string>& uris);
    Status open_endpoints(std::vector<Place>& places, const std::vector<std::string>& uris,
                          Opened& opened);
    Status add_on_all(const Served& served);
    // Before the first service is made on any context: its coroutines may go to all of them.
    Status begin_on_thread(Node& at, const Served& served);
    using Made = std::vector<std::unique_ptr<Service>>;  // By contexts; nullptr: none.
    Status stage_on_thread(Node& to, const Served& served, std::unique_ptr<Service>& result);
    Status register_on_thread(const Node& at, const Served& served, const Made& made);
    Status publish_on_all(Made& made) noexcept;
    void discard_on_thread(Node& at, std::unique_ptr<Service>& made);
    void publish(const Place& place);
    std::unique_lock<std::mutex> lock_serving();
    // Runs work(node) for each context in its turn, until it fails. UNAVAILABLE: exit() has
    // abandoned the runtime.
    Status on_each(const std::function<Status(Node&)>& work);

    std::mutex serving_;  // Of several contexts: one call at a time.
    // Runs code of the program for the call that has it: the thread of that call, or of a context.
    std::atomic<std::thread::id> acting_{};
    std::mutex addresses_mutex_;
    std::vector<std::string> addresses_;    // Guarded by it.
    core::ConnectPolicy connect_policy_;    // Of addresses_. Thread: that of context 0.
    std::vector<const Service*> services_;  // Served; of several contexts: guarded by serving_.
    // Made for the contexts. Coroutines that may continue after the end keep them
    // (core/kept_services.h).
    struct MadeServices {
        using Own = std::vector<std::unique_ptr<Service>>;
        explicit MadeServices(std::size_t contexts) : each(contexts) {}
        Own& operator[](std::size_t context) { return each[context]; }
        bool empty() const {
            const auto is_empty = [](const Own& own) { return own.empty(); };
            return std::ranges::all_of(each, is_empty) && late.empty();
        }
        std::vector<Own> each;  // By the contexts' numbers; used in turns.
        std::mutex late_mutex;
        Own late;  // Guarded by it: of calls of serve() or add() that failed.
    };
    // nullptr: after the end. Used in turns of contexts that are not closed.
    std::shared_ptr<MadeServices> made_services_ = std::make_shared<MadeServices>(nodes.size());
    std::shared_ptr<RuntimeImpl> self_;  // Itself, in a forked child.

    // ---- of any thread
    StopEvent stop_event_;
    struct ActiveCalls {
        std::atomic<int> count{0};  // Threads in an ActiveCall.
        std::atomic<const char*> last{nullptr};
    } active_;

    // ---- its end
    struct End {
        bool has_begun = false;
        std::atomic<int> exit_marks{0};
        // Set once the end has begun: drain_timeout bounds all of it.
        std::atomic<TimePoint> deadline{never};
    } end_;
    std::atomic<std::uint64_t> driven_{0};  // The contexts with an AsioDriver, by their numbers.
    base::UniqueFd loop_;                   // Of several contexts: an epoll instance with theirs.
};

// UNAVAILABLE.
Status shutting_down();

// Aborts for a Runtime that is empty.
RuntimeImpl& own(const std::shared_ptr<RuntimeImpl>& impl);

}  // namespace weft::api

namespace weft {
// For tests and tools.
inline api::RuntimeImpl& impl_of(Runtime& runtime) { return api::RuntimeImpl::of(runtime); }
inline api::Node& node_of(Runtime& runtime) { return api::RuntimeImpl::of(runtime).node; }
}  // namespace weft
