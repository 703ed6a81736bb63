// The result of co_await when the operation or task was destroyed before its end.
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
Status destroyed_status(const char* what);
[[noreturn]] void throw_destroyed(const char* what);  // BadResult, with that status.

// Returns that status where R can hold it, else throws it.
template <class R>
R destroyed_result(const char* what) {
    if constexpr (std::is_same_v<R, Status> || is_result<R>) {
        return R(destroyed_status(what));
    } else {
        throw_destroyed(what);
    }
}

}  // namespace detail
}  // namespace weft
