// A coroutine that starts at once and is destroyed by its handle, suspended or not: for programs
// that drop an operation before it completes.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace weft::test {

class OwnedCoroutine {
  public:
    struct promise_type {
        OwnedCoroutine get_return_object() {
            return OwnedCoroutine(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_always final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };

    OwnedCoroutine() = default;
    OwnedCoroutine(OwnedCoroutine&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)) {}
    OwnedCoroutine& operator=(OwnedCoroutine&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~OwnedCoroutine() { destroy(); }

    bool done() const { return handle_.done(); }
    void destroy() {
        if (auto handle = std::exchange(handle_, nullptr)) handle.destroy();
    }

  private:
    explicit OwnedCoroutine(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

}  // namespace weft::test
