// What co_await comes to where the operation or task was destroyed before its end, or the runtime
// has ended before that of the task.
#pragma once

#include <type_traits>
#include <utility>

#include <weft/status.h>

namespace weft {

template <class T>
class Result;

namespace detail {

template <class R>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<Result<T>> = true;

// CANCELLED, effect unknown. `what`: the operation, as a program writes it.
Status lost_status(const char* what);
Status ended_status();                     // The same, of a task that did not end with the runtime.
[[noreturn]] void throw_lost(Status why);  // BadResult, of that.

// That status where R can say it, else throws it.
template <class R>
R lost(Status why) {
    if constexpr (std::is_same_v<R, Status> || is_result<R>) {
        return R(std::move(why));
    } else {
        throw_lost(std::move(why));
    }
}

}  // namespace detail
}  // namespace weft
