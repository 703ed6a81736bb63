// What <weft/asio.h> does when an execution context (an io_context, say) is destroyed while calls
// are under way whose handlers belong to it: those handlers are destroyed with it and never called.
//
// A call lives in weft, which outlives the io_context or not, on a thread of its own or not. So who
// completes it asks here first whether the handler is still there.
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
class Waiting {
  public:
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    // Frees this, and the handler with it.
    void destroy() { destroy_(*this); }

  protected:
    explicit Waiting(void (*how)(Waiting&)) : destroy_(how) {}
    ~Waiting() = default;

  private:
    friend class Outstanding;
    void (*const destroy_)(Waiting&);
    Waiting* before_ = nullptr;
    Waiting* after_ = nullptr;
};

// The handlers of one execution context. Thread: any.
class Outstanding {
  public:
    Outstanding() = default;
    Outstanding(const Outstanding&) = delete;
    Outstanding& operator=(const Outstanding&) = delete;

    // False: the context is going.
    bool add(Waiting& handler) {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        handler.after_ = first_;
        if (first_) first_->before_ = &handler;
        first_ = &handler;
        return true;
    }

    // True: the handler is the caller's, and the context stays until the caller leave()s. False: it
    // went with its context.
    bool take(Waiting& handler) {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        (handler.before_ ? handler.before_->after_ : first_) = handler.after_;
        if (handler.after_) handler.after_->before_ = handler.before_;
        ++completing_;
        return true;
    }
    void leave() {
        const std::lock_guard lock(mutex_);
        if (--completing_ == 0) idle_.notify_all();
    }

    // The context is being destroyed.
    void close() {
        std::unique_lock lock(mutex_);
        closed_ = true;
        idle_.wait(lock, [this] { return completing_ == 0; });
        Waiting* next = std::exchange(first_, nullptr);
        lock.unlock();
        while (Waiting* handler = next) {
            next = handler->after_;
            handler->destroy();
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable idle_;
    Waiting* first_ = nullptr;
    int completing_ = 0;
    bool closed_ = false;
};

// Where an execution context keeps them.
class OutstandingService final : public boost::asio::execution_context::service {
  public:
    [[gnu::visibility("hidden")]] inline static boost::asio::execution_context::id id;

    explicit OutstandingService(boost::asio::execution_context& context)
        : service(context), outstanding(std::make_shared<Outstanding>()) {}

    const std::shared_ptr<Outstanding> outstanding;

  private:
    void shutdown() override { outstanding->close(); }
};

// An executor that counts as work for its context, where that counts.
template <class Executor>
auto track(const Executor& executor) {
    if constexpr (boost::asio::execution::is_executor<Executor>::value) {
        return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
    } else {  // Of the Networking TS, as boost::asio::executor is.
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

// The context of an executor that a program may destroy under a call; nullptr: there is
// none. That of the system lasts as long as the program and is not to be created for the question;
// an executor that runs things at once has none. One whose type is erased and that can't be asked
// is asked for the types of Asio's own contexts.
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

// nullptr: nothing to be asked.
template <class Executor>
std::shared_ptr<Outstanding> outstanding_of(const Executor& executor) {
    boost::asio::execution_context* const context = ending_context(executor);
    if (!context) return nullptr;
    return boost::asio::use_service<OutstandingService>(*context).outstanding;
}

}  // namespace weft::detail
