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

namespace detail {

// A type that may hold nothing to call: a pointer, a std::function or a similar class.
template <class C>
concept MayBeEmpty = std::is_pointer_v<C> || std::is_member_pointer_v<C> ||
    (std::is_class_v<C> && !std::is_empty_v<C> && std::is_constructible_v<bool, const C&>);

// Aborts the program with a message: `call` was given an empty function.
[[noreturn]] void refuse_empty(const char* call);

// True: there is nothing to call. False for a function, which always exists.
template <class C>
bool is_empty(C& callable) {
    if constexpr (MayBeEmpty<std::remove_cv_t<C>>) {
        return !static_cast<bool>(callable);
    } else {
        return false;
    }
}

template <class T>
concept HasCoAwait = requires {
    std::declval<T>().operator co_await();
};
template <class T>
concept IsAwaiter = requires {
    std::declval<std::remove_cvref_t<T>&>().await_ready();
};
// A task, an operation, or an awaitable of another library.
template <class T>
concept Awaitable = HasCoAwait<std::add_lvalue_reference_t<std::remove_cvref_t<T>>> || IsAwaiter<T>;

// Refuses a callback that returns an awaitable, which nothing would await: the body of a lambda
// that is a coroutine would never run, and an operation would be cancelled at once.
template <class Outcome>
constexpr void require_no_task() {
    static_assert(!Awaitable<Outcome>,
                  "this callback returns a task or an operation, which nothing would await: make "
                  "it a plain function, which starts the task with runtime.spawn(...)");
}

}  // namespace detail

// A callable that is moved and not copied; closures of up to `inline_bytes` allocate nothing.
template <class R, class... Args, std::size_t inline_bytes>
class Function<R(Args...), inline_bytes> {
  public:
    // Empty, as after a move, consume() or reset(): it can't be called.
    Function() = default;
    Function(std::nullptr_t) {}

    // Allocates only when the closure is over `inline_bytes`, has a larger alignment than a
    // pointer, or may throw when moved. An empty std::function or a null pointer makes an empty
    // Function. A Function of void drops the closure's result, and refuses a task or an operation.
    template <class F>
        requires(!std::is_same_v<std::decay_t<F>, Function> &&
                 std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
    Function(F&& closure) {
        using Closure = std::decay_t<F>;
        if constexpr (std::is_void_v<R>) {
            detail::require_no_task<std::invoke_result_t<Closure&, Args...>>();
        }
        if (detail::is_empty(closure)) return;
        if constexpr (fits<Closure>) {
            ::new (static_cast<void*>(storage_)) Closure(std::forward<F>(closure));
            table_ = &Inline<Closure>::table;
        } else {
            ::new (static_cast<void*>(storage_)) Closure*(new Closure(std::forward<F>(closure)));
            table_ = &OnHeap<Closure>::table;
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

    // Invokes the closure and destroys it, in one step: it runs in place, for the last time.
    // Requires: not empty; nothing is assigned to this before the closure has returned.
    R consume(Args... args) {
        const Table* table = std::exchange(table_, nullptr);
        return table->consume(storage_, std::forward<Args>(args)...);
    }

    void reset() {
        const Table* table = std::exchange(table_, nullptr);
        if (table && table->destroy) table->destroy(storage_);
    }

  private:
    // How an argument is passed to the closure: by value where it fits into registers.
    template <class T>
    using Passed = std::conditional_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 16, T, T&&>;

    struct Table {
        R (*invoke)(void*, Passed<Args>...);
        R (*consume)(void*, Passed<Args>...);
        void (*move)(void* from, void* to);  // Leaves `from` destroyed. nullptr: copy the bytes.
        void (*destroy)(void*);              // nullptr: nothing to do.
    };

    // clang-format 14 takes the && after a template's > for a reference.
    // clang-format off
    template <class C>
    static constexpr bool fits = sizeof(C) <= inline_bytes &&
                                 alignof(C) <= alignof(void*) &&
                                 std::is_nothrow_move_constructible_v<C>;

    template <class C>
    static constexpr bool is_trivial =
        std::is_trivially_copyable_v<C> && std::is_trivially_destructible_v<C>;
    // clang-format on

    template <class C>
    static R call(C& closure, Passed<Args>... args) {
        if constexpr (std::is_void_v<R>) {
            static_cast<void>(closure(std::forward<Args>(args)...));
        } else {
            return closure(std::forward<Args>(args)...);
        }
    }
    template <class C>
    static R invoke_inline(void* at, Passed<Args>... args) {
        return call(*static_cast<C*>(at), std::forward<Args>(args)...);
    }
    template <class C>
    static R consume_inline(void* at, Passed<Args>... args) {
        struct Destroys {
            C& closure;
            ~Destroys() { closure.~C(); }
        } const ends{*static_cast<C*>(at)};
        return call(ends.closure, std::forward<Args>(args)...);
    }

    // Hidden: otherwise the plugins of a program would share the table (with g++) where their C
    // have the same name, and so run each other's closures.
    template <class C>
    struct [[gnu::visibility("hidden")]] Inline {
        static constexpr Table table{
            &invoke_inline<C>,
            is_trivial<C> ? &invoke_inline<C> : &consume_inline<C>,
            is_trivial<C> ? nullptr
                          : +[](void* from, void* to) {
                                ::new (to) C(std::move(*static_cast<C*>(from)));
                                static_cast<C*>(from)->~C();
                            },
            is_trivial<C> ? nullptr : +[](void* at) { static_cast<C*>(at)->~C(); },
        };
    };
    template <class C>
    struct [[gnu::visibility("hidden")]] OnHeap {
        static constexpr Table table{
            [](void* at, Passed<Args>... args) -> R {
                return call(**static_cast<C**>(at), std::forward<Args>(args)...);
            },
            [](void* at, Passed<Args>... args) -> R {
                const std::unique_ptr<C> closure(*static_cast<C**>(at));
                return call(*closure, std::forward<Args>(args)...);
            },
            nullptr,
            [](void* at) { delete *static_cast<C**>(at); },
        };
    };

    void take(Function& other) noexcept {
        table_ = std::exchange(other.table_, nullptr);
        if (!table_) return;
        if (!table_->move) [[likely]] {
            // Copies all bytes, also of a smaller closure: a fixed copy costs less than a length.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
            std::memcpy(storage_, other.storage_, inline_bytes);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
        } else {
            table_->move(other.storage_, storage_);
        }
    }

    const Table* table_ = nullptr;
    alignas(void*) std::byte storage_[inline_bytes];
};

}  // namespace weft
