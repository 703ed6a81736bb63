// Requests to the context by threads that do not turn it.
#include <condition_variable>
#include <exception>
#include <mutex>

#include "api/runtime_impl.h"
#include "api/turn_wait.h"
#include "base/assert.h"
#include "base/fork.h"
#include "core/joined_thread.h"

namespace weft::api {

static constexpr Duration state_timeout = 1s;

// Work for the context's thread that another thread waits for.
struct PostedWork {
    std::atomic<bool> is_taken{false};
    std::mutex mutex;  // Guards the rest.
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr thrown;  // By the program's part of the work.

    // False: another call has taken the work, which may be destroyed by now.
    bool run(Function<void()>& work) {
        if (is_taken.exchange(true)) return false;
        std::exception_ptr by_work;
        try {
            work();
        } catch (...) {
            by_work = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        WEFT_ASSERT(!done);
        thrown = by_work;
        done = true;
        changed.notify_one();
        return true;
    }
};

// Before the first turn the guard excludes a thread that borrows the turns.
bool RuntimeImpl::try_run_on_thread(const std::function<bool()>& work) {
    const core::ThreadOwnership::UseGuard here(context);
    if (!here && !context.in_turn()) return false;
    const bool ran = work();
    context.request_turn();
    return ran;
}

void RuntimeImpl::on_context(Function<void()> work) {
    WEFT_ASSERT(work && !context.is_forked());
    const auto at_once = [&] {
        work();
        return true;
    };
    if (try_run_on_thread(at_once)) return;
    // Simulated, and not on the simulation's thread: no turn would follow, so advance_time()
    // aborts.
    if (parts.advance_time) parts.advance_time([] { return true; }, Duration::zero());
    const auto posted = std::make_shared<PostedWork>();
    const auto run = [&work, posted] { return posted->run(work); };
    const core::JoinedThread::Wait helped([&] { return try_run_on_thread(run); });
    TurnWait wait("an operation of weft::Runtime or weft::Group", *this, posted->mutex,
                  posted->changed, posted->done);
    context.post([run] { run(); });
    while (!wait.until_done()) wait.borrow_turns();
    if (posted->thrown) std::rethrow_exception(posted->thrown);
}

// Thread: the context's.
std::string RuntimeImpl::describe() {
    WEFT_ASSERT(!context.is_on_other_thread() && !context.is_forked());
    constexpr std::size_t lines_max = 32;
    return context.state(lines_max) + client.state(lines_max) + server.state(lines_max) +
           "transfers: " + std::to_string(bulk.transfers.in_flight()) + " in flight, " +
           std::to_string(bulk.rendezvous.bytes_in_use()) + " of " +
           std::to_string(bulk.rendezvous.bytes_held()) + " bytes held for large bodies in use\n" +
           "the last events:\n" + context.recorder().last(lines_max, context.clock().now());
}

std::string RuntimeImpl::state() {
    if (context.is_forked()) return std::string(base::forked_text) + "\n";
    if (const core::ThreadOwnership::UseGuard here(context); here || context.in_turn())
        return describe();
    struct Answer {
        std::mutex mutex;
        std::condition_variable changed;
        std::optional<std::string> text;
    };
    const auto answer = std::make_shared<Answer>();
    context.post([this, self = shared_from_this(), answer] {
        const std::lock_guard lock(answer->mutex);
        answer->text = describe();
        answer->changed.notify_one();
    });
    std::unique_lock lock(answer->mutex);
    if (!answer->changed.wait_for(lock, state_timeout, [&] { return answer->text.has_value(); })) {
        return (options.manual ? "no thread turns the runtime (RuntimeOptions::manual), or a "
                                 "handler, completion or coroutine blocks it; "
                               : "the runtime's thread does not turn: a handler, completion or "
                                 "coroutine blocks it; ") +
               last_handler() + "\n";
    }
    return *std::move(answer->text);
}

}  // namespace weft::api
