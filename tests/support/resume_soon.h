// What a program's own awaitable does that gives way: the coroutine goes on in a later turn.
#pragma once

#include <coroutine>

#include <weft/executor.h>

namespace weft::test {

inline void resume_soon(std::coroutine_handle<> awaiting) {
    Executor::current()->post([awaiting] { awaiting.resume(); });
}

}  // namespace weft::test
