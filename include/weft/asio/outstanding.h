// What <weft/asio.h> does when an execution context (an io_context, say) is destroyed while calls
// are under way whose handlers belong to it: those handlers are destroyed with it and never called.
//
// A call lives in weft, which outlives the io_context or not, on a thread of its own or not. So who
// completes it asks here first whether the handler is still there.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/strand.hpp>

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
    inline static boost::asio::execution_context::id id;

    explicit OutstandingService(boost::asio::execution_context& context)
        : service(context), outstanding(std::make_shared<Outstanding>()) {}

    const std::shared_ptr<Outstanding> outstanding;

  private:
    void shutdown() override { outstanding->close(); }
};

// Whether an executor's context may end under a call: one that counts work may. The others (the
// system's, and use_future's) last as long as the program, and are not to be created for this.
template <class Executor>
inline constexpr bool has_ending_context =
    boost::asio::can_require_v<Executor, boost::asio::execution::outstanding_work_t::tracked_t>;
template <>
inline constexpr bool has_ending_context<boost::asio::any_io_executor> = true;
template <class Inner>
inline constexpr bool has_ending_context<boost::asio::strand<Inner>> = has_ending_context<Inner>;

// nullptr: nothing to be asked.
template <class Executor>
std::shared_ptr<Outstanding> outstanding_of(const Executor& executor) {
    if constexpr (has_ending_context<Executor>) {
        boost::asio::execution_context& context =
            boost::asio::query(executor, boost::asio::execution::context);
        return boost::asio::use_service<OutstandingService>(context).outstanding;
    } else {
        return nullptr;
    }
}

}  // namespace weft::detail
