// What co_await comes to where the operation or task was destroyed before its end.
#pragma once

#include <type_traits>

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
[[noreturn]] void throw_lost(const char* what);  // BadResult, of that.

// That status where R can say it, else throws it.
template <class R>
R lost(const char* what) {
    if constexpr (std::is_same_v<R, Status> || is_result<R>) {
        return R(lost_status(what));
    } else {
        throw_lost(what);
    }
}

}  // namespace detail
}  // namespace weft
