// How operations are awaited: by reference, wherever they are.
#pragma once

#include <coroutine>

namespace weft::detail {

// g++ 12 copies what is awaited unless it is a temporary or a variable by its name, so
// `co_await *pointer` of an operation, which can't be copied, needs an awaiter beside it.
template <class Operation>
class InPlace {
  public:
    explicit InPlace(Operation& operation) : operation_(&operation) {}

    bool await_ready() const noexcept { return operation_->await_ready(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> awaiting) const {
        return operation_->await_suspend(awaiting);
    }
    decltype(auto) await_resume() const { return operation_->await_resume(); }

  private:
    Operation* operation_;
};

}  // namespace weft::detail
