// A move-only callable that keeps small closures inside itself.
//
// std::function allocates from 16 bytes of capture on; a completion per call must not allocate.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace weft {

template <class Signature, std::size_t inline_bytes = 48>
class Function;

template <class R, class... Args, std::size_t inline_bytes>
class Function<R(Args...), inline_bytes> {
  public:
    Function() = default;
    Function(std::nullptr_t) {}

    // Allocates only when the closure is over `inline_bytes` or may throw when moved.
    template <class F>
        requires(!std::is_same_v<std::decay_t<F>, Function> &&
                 std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
    Function(F&& closure) {
        using Closure = std::decay_t<F>;
        if constexpr (fits<Closure>) {
            ::new (static_cast<void*>(storage_)) Closure(std::forward<F>(closure));
            table_ = &inline_table<Closure>;
        } else {
            ::new (static_cast<void*>(storage_)) Closure*(new Closure(std::forward<F>(closure)));
            table_ = &heap_table<Closure>;
        }
    }

    Function(Function&& other) noexcept { take(other); }
    Function& operator=(Function&& other) noexcept {
        if (this != &other) {
            reset();
            take(other);
        }
        return *this;
    }
    Function(const Function&) = delete;
    Function& operator=(const Function&) = delete;
    ~Function() { reset(); }

    explicit operator bool() const { return table_ != nullptr; }

    // Requires: not empty.
    R operator()(Args... args) { return table_->invoke(storage_, std::forward<Args>(args)...); }

    void reset() {
        const Table* table = std::exchange(table_, nullptr);
        if (table && table->destroy) table->destroy(storage_);
    }

  private:
    struct Table {
        R (*invoke)(void*, Args&&...);
        void (*move)(void* from, void* to);  // Leaves `from` destroyed. nullptr: copy the bytes.
        void (*destroy)(void*);              // nullptr: nothing to do.
    };

    // clang-format 14 takes the && after a template's > for a reference.
    // clang-format off
    template <class C>
    static constexpr bool fits = sizeof(C) <= inline_bytes &&
                                 alignof(C) <= alignof(std::max_align_t) &&
                                 std::is_nothrow_move_constructible_v<C>;

    template <class C>
    static constexpr bool is_trivial =
        std::is_trivially_copyable_v<C> && std::is_trivially_destructible_v<C>;
    // clang-format on

    template <class C>
    static constexpr Table inline_table{
        [](void* at, Args&&... args) -> R {
            return (*static_cast<C*>(at))(std::forward<Args>(args)...);
        },
        is_trivial<C> ? nullptr
                      : +[](void* from, void* to) {
                            ::new (to) C(std::move(*static_cast<C*>(from)));
                            static_cast<C*>(from)->~C();
                        },
        is_trivial<C> ? nullptr : +[](void* at) { static_cast<C*>(at)->~C(); },
    };

    template <class C>
    static constexpr Table heap_table{
        [](void* at, Args&&... args) -> R {
            return (**static_cast<C**>(at))(std::forward<Args>(args)...);
        },
        nullptr,
        [](void* at) { delete *static_cast<C**>(at); },
    };

    void take(Function& other) noexcept {
        table_ = std::exchange(other.table_, nullptr);
        if (!table_) return;
        if (table_->move) {
            table_->move(other.storage_, storage_);
        } else {
            std::memcpy(storage_, other.storage_, inline_bytes);
        }
    }

    const Table* table_ = nullptr;
    alignas(std::max_align_t) std::byte storage_[inline_bytes];
};

}  // namespace weft
