// Callbacks that are kept and copied: a std::function with the checks of weft::Function.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include <weft/function.h>

namespace weft {

template <class Signature>
class Callback;

// Refuses, when it is compiled, a callable that returns a task or an operation: nothing would await
// it. A std::function that is made from an empty Callback is not empty, but throws when it is
// called.
template <class... Args>
class Callback<void(Args...)> : public std::function<void(Args...)> {
    using Base = std::function<void(Args...)>;

  public:
    Callback() = default;
    Callback(std::nullptr_t) {}
    template <class F>
        requires(!std::is_same_v<std::remove_cvref_t<F>, Callback> &&
                 std::is_constructible_v<Base, F>)
    Callback(F&& callable) : Base(std::forward<F>(callable)) {
        detail::require_no_task<std::invoke_result_t<std::decay_t<F>&, Args...>>();
    }
};

}  // namespace weft
