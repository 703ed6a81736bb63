// Either a value or the Status that gives the reason why there is none.
//
// A type of its own: std::expected is not in C++20, and an alias that changes with the language
// mode would break the ABI.
#pragma once

#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <weft/refuse.h>
#include <weft/status.h>

namespace weft {

// Thrown by Result::value() without a value, by Runtime::block_on() when its task is cancelled, and
// by co_await of a task that was destroyed.
class BadResult : public std::runtime_error {
  public:
    explicit BadResult(const Status& status)
        : std::runtime_error(status.to_string()), status_(status) {}
    const Status& status() const { return status_; }

  private:
    Status status_;
};

// A value of type T, or the failure that prevented it. `value()` without a value throws BadResult.
template <class T>
class [[nodiscard]] Result {
    static_assert(!std::is_reference_v<T>,
                  "weft::Result holds no reference: give a pointer or std::reference_wrapper");
    static_assert(!std::is_void_v<T>, "weft::Result<void> is weft::Status");
    static_assert(!std::is_same_v<std::remove_cv_t<T>, Status>,
                  "weft::Result<weft::Status> would hold two outcomes: give a weft::Status");

  public:
    // A default-made value: `return {};`.
    Result() requires std::is_default_constructible_v<T> : value_(std::in_place) {}
    Result(T value) : value_(std::move(value)) {}
    // A type that converts to T: `co_return "text";` of a Result<std::string>.
    template <class From>
        requires(!std::is_same_v<std::remove_cvref_t<From>, T> &&
                 !std::is_same_v<std::remove_cvref_t<From>, Result> && !std::is_arithmetic_v<T> &&
                 !std::is_null_pointer_v<std::remove_cvref_t<From>> &&
                 !std::is_convertible_v<From, Status> && std::is_convertible_v<From, T>)
    Result(From&& value) : value_(std::in_place, std::forward<From>(value)) {}
    // Requires: !status.ok(). A success without a value becomes INTERNAL.
    Result(Status status) : status_(std::move(status)) {
        if (status_.ok()) status_ = Status(Code::internal, "a result without a value");
    }

    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }

    // OK when there is a value.
    const Status& status() const& { return status_; }
    Status status() && { return std::move(status_); }

    // Require ok(); without a value they abort the program with a message that has the status.
    T& operator*() & {
        require("operator* of a Result that failed");
        return *value_;
    }
    const T& operator*() const& {
        require("operator* of a Result that failed");
        return *value_;
    }
    T&& operator*() && {
        require("operator* of a Result that failed");
        return std::move(*value_);
    }
    T* operator->() {
        require("operator-> of a Result that failed");
        return &*value_;
    }
    const T* operator->() const {
        require("operator-> of a Result that failed");
        return &*value_;
    }

    // Throws BadResult without a value.
    T& value() & {
        require_value();
        return *value_;
    }
    const T& value() const& {
        require_value();
        return *value_;
    }
    T&& value() && {
        require_value();
        return std::move(*value_);
    }

  private:
    void require(const char* call) const {
        if (!value_) [[unlikely]]
            detail::refuse_value(call, status_);
    }
    void require_value() const {
        if (!value_) throw BadResult(status_);
    }

    std::optional<T> value_;
    Status status_;
};

}  // namespace weft
