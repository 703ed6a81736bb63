#include <weft/in_place.h>
#include <weft/task.h>

#include <stdexcept>

#include "core/context.h"

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

void log_unhandled() noexcept {
    try {
        std::string text = "an exception left a spawned task";
        try {
            throw;
        } catch (const std::exception& error) {
            text += std::string(": ") + error.what();
        } catch (...) {
        }
        if (auto* const here = static_cast<core::Context*>(Executor::current())) {
            here->log().write_of_peer(LogLevel::error, here->now(), text);
        } else {
            base::Log().error(text);
        }
    } catch (...) {
        // No memory for the line.
    }
}

}  // namespace weft::detail
