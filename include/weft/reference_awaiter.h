// Awaits operations by reference, wherever they are stored. An awaiter and its operation unlink
// from each other, whichever is destroyed first.
#pragma once

#include <coroutine>
#include <utility>

#include <weft/executor.h>
#include <weft/task_promise.h>

namespace weft::detail {

class AwaiterSlot;

// `what`: the operation, as a program writes it.
[[noreturn]] void throw_awaited_operation(const char* what);
// Throws std::logic_error in a turn of another context than `home`, unless that has ended; it may
// be destroyed.
void check_awaited_elsewhere(const Executor* home, const char* what);

// In the frame of the coroutine that awaits an operation, from its co_await until it resumes.
class Awaiter : public WeftAwaiter {
  public:
    Awaiter(const Awaiter&) = delete;  // The operation has its address.
    Awaiter& operator=(const Awaiter&) = delete;

  protected:
    // Throws std::logic_error when the operation is awaited, or has given its result; and in a turn
    // of another context than its own.
    Awaiter(AwaiterSlot& slot, const char* what);
    ~Awaiter();
    template <class Promise>
    void suspend(std::coroutine_handle<Promise> coroutine) noexcept {
        coroutine_ = coroutine;
        async_frame_ = async_frame_of(coroutine);
    }
    // The operation was destroyed before its end, or finish_await() was called. Requires: the
    // coroutine is not suspended.
    bool is_unlinked() const noexcept { return !slot_; }
    // The result is taken. Requires: the operation exists.
    void finish_await() noexcept;

  private:
    friend AwaiterSlot;
    AwaiterSlot* slot_;                    // nullptr: operation destroyed, or result taken.
    std::coroutine_handle<> coroutine_{};  // nullptr: not suspended.
    AsyncFrame* async_frame_ = nullptr;    // Of the coroutine.
};

// The link of an operation to its awaiter; the operation does not move. One coroutine gets the
// result; if it is destroyed first, another one may await the operation. Thread: the awaiting one.
class AwaiterSlot {
  public:
    AwaiterSlot() = default;
    AwaiterSlot(const AwaiterSlot&) = delete;
    AwaiterSlot& operator=(const AwaiterSlot&) = delete;
    ~AwaiterSlot() {
        if (awaiter_) [[unlikely]]
            on_destroyed();
    }

    // The executor on which the operation resumes its awaiter. nullptr, as before this call: any
    // context may await it.
    void set_home(const Executor* home) noexcept { home_ = home; }
    // From here on the operation resumes no coroutine.
    void detach() noexcept {
        if (awaiter_) std::exchange(awaiter_, nullptr)->slot_ = nullptr;
    }
    // The operation is destroyed. Its awaiter continues in a later turn, with a destroyed_status();
    // a coroutine of the program's own type stays suspended.
    void on_destroyed() noexcept;
    // Unlinks the awaiter, if there is one. From here on the operation may be awaited, also if it
    // was awaited before.
    void reset() noexcept {
        detach();
        is_awaited_ = false;
    }
    bool is_suspended() const noexcept { return awaiter_ && awaiter_->coroutine_; }
    // The AsyncFrame of the suspended coroutine; nullptr: its type has none. Requires:
    // is_suspended().
    AsyncFrame* async_frame() const noexcept { return awaiter_->async_frame_; }
    // Requires: is_suspended().
    std::coroutine_handle<> coroutine() const noexcept { return awaiter_->coroutine_; }
    // Requires: is_suspended(). May destroy the operation.
    void resume() const { awaiter_->coroutine_.resume(); }
    // Takes over the awaiter of `other`.
    void replace(AwaiterSlot& other) noexcept {
        awaiter_ = std::exchange(other.awaiter_, nullptr);
        if (awaiter_) awaiter_->slot_ = this;
    }
    // Resumes the coroutine. After the runtime's end, a coroutine that loops without end is not
    // resumed; its root is destroyed instead.
    void resume_or_end() const {
        detail::resume_or_end(awaiter_->coroutine_, awaiter_->async_frame_);
    }

  private:
    friend Awaiter;
    Awaiter* awaiter_ = nullptr;
    const Executor* home_ = nullptr;
    bool is_awaited_ = false;  // Or its result was taken.
};

inline Awaiter::Awaiter(AwaiterSlot& slot, const char* what) : slot_(&slot) {
    if (slot.home_ && slot.home_ != Executor::current()) [[unlikely]]
        check_awaited_elsewhere(slot.home_, what);  // Before anything of the other thread is used.
    if (slot.is_awaited_) [[unlikely]]
        throw_awaited_operation(what);
    slot.is_awaited_ = true;
    slot.awaiter_ = this;
}

inline Awaiter::~Awaiter() {
    if (slot_) [[unlikely]]
        slot_->reset();
}

inline void Awaiter::finish_await() noexcept { std::exchange(slot_, nullptr)->awaiter_ = nullptr; }

// g++ 12 copies an awaited lvalue, unless it is the name of a variable. An operation can't be
// copied, so `co_await *pointer` needs this separate awaiter.
template <class Operation>
class ReferenceAwaiter : public Awaiter {
  public:
    explicit ReferenceAwaiter(Operation& operation)
        : Awaiter(operation.awaiter_slot(), Operation::what), operation_(&operation) {}

    bool await_ready() const noexcept { return operation_->await_ready(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> coroutine) noexcept {
        suspend(coroutine);
    }
    decltype(auto) await_resume() {
        using R = decltype(operation_->await_resume());
        if (is_unlinked()) [[unlikely]] {
            if constexpr (requires { Operation::destroyed_result(destroyed_status("")); }) {
                return Operation::destroyed_result(destroyed_status(Operation::what));
            } else {
                return destroyed_result<R>(Operation::what);
            }
        }
        finish_await();
        return operation_->await_resume();
    }

  protected:
    Operation& operation() const { return *operation_; }

  private:
    Operation* operation_;
};

}  // namespace weft::detail
