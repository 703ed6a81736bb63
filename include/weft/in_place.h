// How operations are awaited: by reference, wherever they are. What awaits and what is awaited
// forget each other, whichever ends first.
#pragma once

#include <coroutine>
#include <utility>

#include <weft/task_promise.h>

namespace weft::detail {

class Awaiting;

// `what`: the operation, as a program writes it.
[[noreturn]] void throw_awaited_operation(const char* what);

// In the frame of the coroutine that awaits an operation, from its co_await on until it goes on.
class Awaiter : public OwnAwaiter {
  public:
    Awaiter(const Awaiter&) = delete;  // The operation has its address.
    Awaiter& operator=(const Awaiter&) = delete;

  protected:
    // Throws std::logic_error when the operation is awaited, or gave its result before.
    Awaiter(Awaiting& awaiting, const char* what);
    ~Awaiter();
    template <class Promise>
    void suspend(std::coroutine_handle<Promise> coroutine) noexcept {
        coroutine_ = coroutine;
        level_ = level_of(coroutine);
    }
    // Resumed, or not suspended at all: the operation was destroyed before its end.
    bool is_lost() const noexcept { return !awaiting_; }
    // The result is taken. Requires: the operation is there.
    void go_on() noexcept;

  private:
    friend Awaiting;
    Awaiting* awaiting_;                   // nullptr: the operation is gone, or has been awaited.
    std::coroutine_handle<> coroutine_{};  // nullptr: not suspended.
    Level* level_ = nullptr;               // Of the coroutine.
};

// Of an operation, which stays in place: what awaits it. One coroutine gets its result; when one
// was destroyed before, another one may await it. Thread: the one that it is awaited on.
class Awaiting {
  public:
    Awaiting() = default;
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;
    ~Awaiting() {
        if (awaiter_) [[unlikely]]
            lose();
    }

    // Resumes nothing from here on.
    void leave() noexcept {
        if (awaiter_) std::exchange(awaiter_, nullptr)->awaiting_ = nullptr;
    }
    // The operation is gone. What awaits it goes on in a later turn, with lost(); a coroutine of
    // the program's own type stays suspended.
    void lose() noexcept;
    // The operation begins anew, not awaited yet.
    void reset() noexcept {
        leave();
        is_awaited_ = false;
    }
    bool is_suspended() const noexcept { return awaiter_ && awaiter_->coroutine_; }
    // Of the suspended coroutine; nullptr: of a type that has none.
    Level* level() const noexcept { return awaiter_->level_; }
    // Requires: is_suspended().
    std::coroutine_handle<> coroutine() const noexcept { return awaiter_->coroutine_; }
    // The same. May destroy the operation.
    void resume() const { awaiter_->coroutine_.resume(); }
    // Takes the place of that one for what awaits it.
    void replace(Awaiting& other) noexcept {
        awaiter_ = std::exchange(other.awaiter_, nullptr);
        if (awaiter_) awaiter_->awaiting_ = this;
    }
    // Where no turn will come any more, and the coroutine goes on and on: destroys its root.
    void resume_or_end() const { detail::resume_or_end(awaiter_->coroutine_, awaiter_->level_); }

  private:
    friend Awaiter;
    Awaiter* awaiter_ = nullptr;
    bool is_awaited_ = false;  // Or its result was taken.
};

inline Awaiter::Awaiter(Awaiting& awaiting, const char* what) : awaiting_(&awaiting) {
    if (awaiting.is_awaited_) [[unlikely]]
        throw_awaited_operation(what);
    awaiting.is_awaited_ = true;
    awaiting.awaiter_ = this;
}

inline Awaiter::~Awaiter() {
    if (awaiting_) [[unlikely]]
        awaiting_->reset();
}

inline void Awaiter::go_on() noexcept { std::exchange(awaiting_, nullptr)->awaiter_ = nullptr; }

// g++ 12 copies what is awaited unless it is a temporary or a variable by its name, so
// `co_await *pointer` of an operation, which can't be copied, needs an awaiter beside it.
template <class Operation>
class InPlace : public Awaiter {
  public:
    explicit InPlace(Operation& operation)
        : Awaiter(operation.awaiting(), Operation::what), operation_(&operation) {}

    bool await_ready() const noexcept { return operation_->await_ready(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> coroutine) noexcept {
        suspend(coroutine);
    }
    decltype(auto) await_resume() {
        using R = decltype(operation_->await_resume());
        if (is_lost()) [[unlikely]] {
            if constexpr (requires { Operation::lost(lost_status("")); }) {
                return Operation::lost(lost_status(Operation::what));
            } else {
                return lost<R>(Operation::what);
            }
        }
        go_on();
        return operation_->await_resume();
    }

  protected:
    Operation& operation() const { return *operation_; }

  private:
    Operation* operation_;
};

}  // namespace weft::detail
