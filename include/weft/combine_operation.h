// Refuses operations where when_all(), when_any() and with_timeout() take tasks. Include
// weft/combine.h.
#pragma once

#include <type_traits>

#include <weft/time.h>

namespace weft {

namespace detail {

template <class T>
concept IsOperation = requires {
    std::remove_cvref_t<T>::what;
};

template <class... Ts>
constexpr void reject_operations() {
    static_assert(sizeof...(Ts) == 0,
                  "an operation stays where it was made, so it is combined inside a task: write a "
                  "coroutine that returns weft::Task and does co_await of it");
}

}  // namespace detail

template <class... Ts>
    requires(detail::IsOperation<Ts> || ...)
auto when_all(Ts&&...) { detail::reject_operations<Ts...>(); }

template <class... Ts>
    requires(detail::IsOperation<Ts> || ...)
auto when_any(Ts&&...) { detail::reject_operations<Ts...>(); }

template <detail::IsOperation T>
auto with_timeout(Duration, T&&) {
    detail::reject_operations<T>();
}

}  // namespace weft
