// A program's own awaitable that yields: the coroutine resumes in a later turn.
#pragma once

#include <coroutine>

#include <weft/executor.h>

namespace weft::test {

inline void resume_soon(std::coroutine_handle<> awaiting) {
    Executor::current()->post([awaiting] { awaiting.resume(); });
}

}  // namespace weft::test
