// One operation of <weft/asio.h>: the handler that waits for its outcome, and the completion of
// weft that delivers it.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/system_executor.hpp>

#include <weft/asio/outstanding.h>
#include <weft/function.h>

namespace weft::detail {

// A handler without an allocator of its own uses Asio's per-thread cache.
template <class Handler>
using HandlerAllocator =
    boost::asio::associated_allocator_t<Handler, boost::asio::recycling_allocator<void>>;
template <class Handler>
HandlerAllocator<Handler> allocator_of(const Handler& handler) {
    return boost::asio::get_associated_allocator(handler, boost::asio::recycling_allocator<void>());
}

// False for executors that run work at once, and for type-erased ones, which may do so.
template <class Executor>
inline constexpr bool can_post =
    !boost::asio::execution::is_executor<Executor>::value ||
    boost::asio::can_require_v<Executor, boost::asio::execution::blocking_t::never_t>;

// While an InitiationScope exists, this thread is inside a function that starts an operation, which
// must not run handlers: a call on a runtime that has ended completes at once.
class InitiationScope {
  public:
    InitiationScope() : outer_(std::exchange(inside_, true)) {}
    InitiationScope(const InitiationScope&) = delete;
    InitiationScope& operator=(const InitiationScope&) = delete;
    ~InitiationScope() { inside_ = outer_; }
    static bool is_inside() { return inside_; }

  private:
    [[gnu::visibility("hidden")]] inline static thread_local bool inside_ = false;
    const bool outer_;
};

// A handler and its outcome, dispatched to the handler's executor.
template <class Handler, class Outcome>
struct BoundResult {
    using allocator_type = HandlerAllocator<Handler>;
    allocator_type get_allocator() const noexcept { return allocator_of(handler); }

    void operator()() {
        require_no_task<decltype(std::move(handler)(std::move(outcome)))>();
        // On the handler's executor, where no signal is emitted at the same time.
        if (auto slot = boost::asio::get_associated_cancellation_slot(handler);
            slot.is_connected()) {
            slot.clear();
        }
        std::move(handler)(std::move(outcome));
    }

    Handler handler;
    Outcome outcome;
};

// `Read` makes the outcome from the arguments of weft's completion. `Keep` is the channel or group,
// kept as long as the operation.
template <class Handler, class Read, class Keep>
class AsioOperation final : public PendingHandler {
  public:
    static AsioOperation* make(Handler&& handler, const Keep& keep) {
        Allocator allocator(allocator_of(handler));
        AsioOperation* memory = Traits::allocate(allocator, 1);
        return ::new (static_cast<void*>(memory)) AsioOperation(std::move(handler), keep);
    }

    decltype(auto) executor() const { return executor_of(work_); }

    template <class... Values>
    void complete(Values&&... values) {
        [[maybe_unused]] const Work work(std::move(work_));
        BoundResult<Handler, Outcome<Values...>> arrived{std::move(handler_),
                                                         Read()(std::forward<Values>(values)...)};
        // Before the handler runs: it may start the next operation in the same memory.
        free(arrived.get_allocator());
        if (!InitiationScope::is_inside()) [[likely]] {
            boost::asio::dispatch(executor_of(work), std::move(arrived));
        } else if constexpr (can_post<std::decay_t<decltype(executor_of(work))>>) {
            boost::asio::post(executor_of(work), std::move(arrived));
        } else {  // Through a thread of the system executor.
            boost::asio::post(boost::asio::system_executor(),
                              [work, arrived = std::move(arrived)]() mutable {
                                  boost::asio::dispatch(executor_of(work), std::move(arrived));
                              });
        }
    }

  private:
    using Work = Tracked<boost::asio::associated_executor_t<Handler>>;
    using Traits = typename std::allocator_traits<
        HandlerAllocator<Handler>>::template rebind_traits<AsioOperation>;
    using Allocator = typename Traits::allocator_type;
    template <class... Values>
    using Outcome = std::invoke_result_t<Read, Values...>;

    AsioOperation(Handler&& handler, const Keep& keep)
        : PendingHandler(
              [](PendingHandler& self) { static_cast<AsioOperation&>(self).destroy_here(); }),
          handler_(std::move(handler)),
          work_(track(boost::asio::get_associated_executor(handler_))),
          keep_(keep) {}
    ~AsioOperation() = default;

    void destroy_here() {
        // Destroys the work first: the handler may own the context that the work counts for.
        const Handler handler(std::move(handler_));
        [[maybe_unused]] const Work work(std::move(work_));
        free(allocator_of(handler));
    }

    void free(Allocator allocator) {
        this->~AsioOperation();
        Traits::deallocate(allocator, this, 1);
    }

    Handler handler_;
    Work work_;
    const Keep keep_;
};

// weft's completion of an operation. Dropped without a call, it destroys the handler.
template <class Operation>
class CompletionTicket {
  public:
    explicit CompletionTicket(Operation& operation)
        : outstanding_(outstanding_of(operation.executor())), operation_(&operation) {
        if (!outstanding_ || outstanding_->add(operation)) return;
        std::exchange(operation_, nullptr)->destroy();
    }
    CompletionTicket(CompletionTicket&& other) noexcept
        : outstanding_(std::move(other.outstanding_)),
          operation_(std::exchange(other.operation_, nullptr)) {}
    CompletionTicket& operator=(CompletionTicket&&) = delete;
    ~CompletionTicket() {
        if (!operation_) return;
        const Taken taken(*this);
        if (taken.operation) taken.operation->destroy();
    }

    template <class... Values>
    void operator()(Values&&... values) {
        const Taken taken(*this);
        if (taken.operation) taken.operation->complete(std::forward<Values>(values)...);
    }

  private:
    // The operation, unless it was destroyed with its context. The context stays as long as this.
    struct Taken {
        explicit Taken(CompletionTicket& ticket)
            : outstanding(std::move(ticket.outstanding_)),
              operation(std::exchange(ticket.operation_, nullptr)) {
            if (outstanding && !outstanding->take(*operation)) operation = nullptr;
        }
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;
        ~Taken() {
            if (outstanding && operation) outstanding->release();
        }
        const std::shared_ptr<Outstanding> outstanding;
        Operation* operation;
    };

    std::shared_ptr<Outstanding> outstanding_;
    Operation* operation_;
};

}  // namespace weft::detail
