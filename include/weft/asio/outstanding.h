// The completion handlers of Asio that wait for calls, by their execution context (an io_context,
// say). When the context is destroyed before the calls complete, they are destroyed with it and
// never called.
//
// A call belongs to weft, which may outlive the io_context and may complete the call on another
// thread. So each completion first checks here whether its handler still exists.
#pragma once

#include <concepts>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/system_context.hpp>
#include <boost/asio/thread_pool.hpp>

namespace weft::detail {

// A handler that waits for its call.
class PendingHandler {
  public:
    PendingHandler(const PendingHandler&) = delete;
    PendingHandler& operator=(const PendingHandler&) = delete;

    // Destroys this, and the handler with it.
    void destroy() { destroy_(*this); }

  protected:
    explicit PendingHandler(void (*how)(PendingHandler&)) : destroy_(how) {}
    ~PendingHandler() = default;

  private:
    friend class Outstanding;
    void (*const destroy_)(PendingHandler&);
    PendingHandler* previous_ = nullptr;
    PendingHandler* next_ = nullptr;
};

// The handlers of one execution context. Thread: any.
class Outstanding {
  public:
    Outstanding() = default;
    Outstanding(const Outstanding&) = delete;
    Outstanding& operator=(const Outstanding&) = delete;

    // False: the context is being destroyed.
    bool add(PendingHandler& handler) {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        handler.next_ = first_;
        if (first_) first_->previous_ = &handler;
        first_ = &handler;
        return true;
    }

    // True: the caller owns the handler, and the context stays until the caller calls release().
    // False: the handler was destroyed with its context.
    bool take(PendingHandler& handler) {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        (handler.previous_ ? handler.previous_->next_ : first_) = handler.next_;
        if (handler.next_) handler.next_->previous_ = handler.previous_;
        ++completing_;
        return true;
    }
    void release() {
        const std::lock_guard lock(mutex_);
        if (--completing_ == 0) idle_.notify_all();
    }

    // Called when the context is destroyed. Waits for the release() of taken handlers, and destroys
    // the others.
    void close() {
        std::unique_lock lock(mutex_);
        closed_ = true;
        idle_.wait(lock, [this] { return completing_ == 0; });
        PendingHandler* next = std::exchange(first_, nullptr);
        lock.unlock();
        while (PendingHandler* handler = next) {
            next = handler->next_;
            handler->destroy();
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable idle_;
    PendingHandler* first_ = nullptr;
    int completing_ = 0;
    bool closed_ = false;
};

// Holds the Outstanding of an execution context.
class OutstandingService final : public boost::asio::execution_context::service {
  public:
    [[gnu::visibility("hidden")]] inline static boost::asio::execution_context::id id;

    explicit OutstandingService(boost::asio::execution_context& context)
        : service(context), outstanding(std::make_shared<Outstanding>()) {}

    const std::shared_ptr<Outstanding> outstanding;

  private:
    void shutdown() override { outstanding->close(); }
};

// The executor, tracked as work of its context where the context counts work.
template <class Executor>
auto track(const Executor& executor) {
    if constexpr (boost::asio::execution::is_executor<Executor>::value) {
        return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
    } else {  // Of the Networking TS, such as boost::asio::executor.
        return boost::asio::executor_work_guard<Executor>(executor);
    }
}
template <class Executor>
using Tracked = decltype(track(std::declval<const Executor&>()));
template <class Work>
decltype(auto) executor_of(const Work& work) {
    if constexpr (requires { work.owns_work(); }) {
        return work.get_executor();
    } else {
        return (work);
    }
}

// The context of an executor that a program may destroy during a call; nullptr: there is none. The
// system context lasts as long as the program, and this query must not create it. An executor that
// runs work at once has no context. A type-erased executor that can't be queried is tested for the
// types of Asio's own contexts.
template <class Executor>
boost::asio::execution_context* ending_context(const Executor& executor);

template <class... Types, class Erased>
boost::asio::execution_context* context_of_target(const Erased& erased) {
    boost::asio::execution_context* found = nullptr;
    const auto look = [&]<class Type>(std::type_identity<Type>) {
        const Type* target = erased.template target<Type>();
        if (target) found = ending_context(*target);
        return target != nullptr;
    };
    (void)(look(std::type_identity<Types>()) || ...);
    return found;
}

template <class Executor>
boost::asio::execution_context* ending_context(const Executor& executor) {
    namespace asio = boost::asio;
    using Io = Tracked<asio::io_context::executor_type>;
    using Pool = Tracked<asio::thread_pool::executor_type>;
    if constexpr (requires { executor.get_inner_executor(); }) {  // A strand.
        return ending_context(executor.get_inner_executor());
    } else if constexpr (asio::can_query_v<const Executor&, asio::execution::context_t>) {
        using Context =
            typename asio::query_result<const Executor&, asio::execution::context_t>::type;
        if constexpr (std::same_as<std::decay_t<Context>, asio::system_context> ||
                      !std::convertible_to<Context, asio::execution_context&>) {
            return nullptr;
        } else {
            return &static_cast<asio::execution_context&>(
                asio::query(executor, asio::execution::context));
        }
    } else if constexpr (requires { executor.context(); }) {
        return &executor.context();
    } else if constexpr (requires { executor.template target<Io>(); }) {
        return context_of_target<Io, Pool, asio::strand<Io>, asio::strand<Pool>,
                                 asio::strand<asio::any_io_executor>>(executor);
    } else {
        return nullptr;
    }
}

// nullptr: the executor has no such context.
template <class Executor>
std::shared_ptr<Outstanding> outstanding_of(const Executor& executor) {
    boost::asio::execution_context* const context = ending_context(executor);
    if (!context) return nullptr;
    return boost::asio::use_service<OutstandingService>(*context).outstanding;
}

}  // namespace weft::detail
