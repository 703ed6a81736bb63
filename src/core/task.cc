#include <weft/reference_awaiter.h>
#include <weft/task.h>

#include <stdexcept>
#include <system_error>

#include "core/context.h"
#include "core/context_registration.h"

namespace weft::core {

// Work that was dropped with its runtime (weft/offload.h) is no fault of the task.
static LogLevel level_of(const Context* context, const std::error_code& thrown) {
    const bool is_ending = context && context->is_closed();
    return is_ending && thrown == std::errc::operation_canceled ? LogLevel::info : LogLevel::error;
}

void log_thrown(Context* context, std::string text, const std::exception_ptr& thrown) noexcept {
    LogLevel level = LogLevel::error;
    try {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            text += std::string(": ") + error.what();
            level = level_of(context, error.code());
        } catch (const std::exception& error) {
            text += std::string(": ") + error.what();
        } catch (...) {
        }
        if (!context) return base::Log().write(level, text);
        context->log().write_rate_limited(level, context->now(), text);
    } catch (...) {
        // No memory for the line.
    }
}

}  // namespace weft::core

namespace weft::detail {

void throw_empty_task() {
    throw std::invalid_argument(
        "an empty weft::Task, default-made or moved from, can't be awaited or spawned");
}

void throw_awaited_task() {
    throw std::logic_error(
        "co_await of a weft::Task that was awaited before: a task is awaited once; its result can "
        "be kept in what several coroutines read");
}

void throw_awaited_operation(const char* what) {
    throw std::logic_error(
        "co_await of an operation that was awaited before: " + std::string(what) +
        " gives its result once, to one coroutine; keep the result in what "
        "several coroutines read");
}

void check_awaited_elsewhere(const Executor* home, const char* what) {
    if (!Executor::current() || !core::ContextRegistration::is_running(home)) return;
    throw std::logic_error(
        "co_await of an operation on another context than its own: " + std::string(what) +
        " resumes the coroutine on the context that began it; make it in the coroutine that "
        "awaits it");
}

void log_unhandled() noexcept {
    core::log_thrown(static_cast<core::Context*>(Executor::current()),
                     "an exception left a spawned task", std::current_exception());
}

}  // namespace weft::detail
