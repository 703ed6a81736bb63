// The composition root: assembles the parts of one runtime. Outlives the Runtime while a Channel
// or Group still refers to it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/runtime.h>

#include "api/commons.h"
#include "api/node.h"
#include "api/stop_event.h"
#include "base/assert.h"
#include "base/fork.h"
#include "coll/engine.h"
#include "core/connect_policy.h"

namespace weft::api {

class RuntimeImpl final : public std::enable_shared_from_this<RuntimeImpl>,
                          private MethodRegistrar,
                          private base::ForkObserver {
  public:
    static Result<std::shared_ptr<RuntimeImpl>> make(RuntimeOptions options, RuntimeParts parts);
    ~RuntimeImpl() override;

    static RuntimeImpl& of(Runtime& runtime) { return *runtime.impl_; }

    // Thread of all functions up to shutdown(): any; they run their work on the context's thread.
    Status add(Service& service);
    // At all of these addresses, or at none; a service that was added already stays.
    Status serve(Service* service, const std::vector<std::string>& uris);
    Status listen(std::string_view uri) { return serve(nullptr, {std::string(uri)}); }
    Result<Channel> connect(const std::vector<std::string>& uris);
    Result<Region> expose(Buffer memory, ExposeOptions options);
    Result<Group> group(GroupView view);
    Status join(GroupView view, std::uint32_t rank);
    std::vector<std::string> addresses();
    // Refuses new calls and waits for those in their handlers. `interrupted` waits at most for the
    // time it is given; if it returns true, drain() stops waiting. Errors: DEADLINE_EXCEEDED, also
    // when the context's thread takes no turn; CANCELLED when it is interrupted.
    Status drain(const Node::InterruptWait& interrupted);
    // The steps of drain(), in turns. left_to_drain(): calls in handlers, and other pending work.
    void begin_drain(TimePoint by);
    void begin_drain() {
        begin_drain(saturating_add(commons.parts.clock->now(), commons.options.drain_timeout));
    }
    std::pair<std::uint32_t, std::uint64_t> left_to_drain();
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
    }                                 // shutdown() has begun. Thread: that of shutdown().
    void set_driven(bool is_driven);  // Runtime::set_driven().
    // For an end in exit(), which destroys objects that handlers use, or was called in a turn:
    // prints `why`, takes no more turns, and destroys no part of the runtime.
    void keep_until_exit(const char* why);

    Commons commons;
    Node node;  // Its only context.
    coll::Engine collectives;

  private:
    RuntimeImpl(RuntimeOptions options, LogSink sink, RuntimeParts parts);
    void add(const MethodId& method, RawHandler handler, MethodTraits traits) override;
    // This copy belongs to a forked child, and is neither used nor destroyed.
    void on_forked() noexcept override;
    void close_descriptors();
    void deliver_collectives();
    bool must_stay_for_exit();
    void require_undriven() const;
    Status add_on_thread(Service& service);
    Status why_not_served() const;

    // ---- of the context's thread
    std::vector<std::string> addresses_;
    core::ConnectPolicy connect_policy_;  // Of addresses_.
    struct Services {
        std::vector<const Service*> served;
        Status error;  // The first one of the service that is being added.
    } services_;
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
    bool is_driven_ = false;  // By an AsioDriver.
};

}  // namespace weft::api

namespace weft {
// For tests and tools.
inline api::RuntimeImpl& impl_of(Runtime& runtime) { return api::RuntimeImpl::of(runtime); }
inline api::Node& node_of(Runtime& runtime) { return api::RuntimeImpl::of(runtime).node; }
}  // namespace weft
