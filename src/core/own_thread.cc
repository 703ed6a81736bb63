#include "core/own_thread.h"

#include "base/assert.h"

namespace weft::core {

constinit thread_local OwnThread::Entered* OwnThread::innermost_ = nullptr;

std::vector<const Executor*> OwnThread::entered() {
    std::vector<const Executor*> all;
    if (current_) all.push_back(current_);
    for (const Entered* one = innermost_; one; one = one->outer_) {
        if (one->around_) all.push_back(one->around_);
    }
    return all;
}

bool OwnThread::is_in(const Executor& context) {
    if (current_ == &context) return true;
    for (const Entered* one = innermost_; one; one = one->outer_) {
        if (one->around_ == &context) return true;
    }
    return false;
}

void OwnThread::abort_nested_turn() {
    base::abort_misused("Runtime::turn()",
                        "called in a callback, handler or coroutine of the same runtime, which "
                        "runs inside a turn: return from it, or co_await what it waits for");
}

void OwnThread::abort_elsewhere(const char* call, const char* why) {
    base::abort_misused(call, why);
}

}  // namespace weft::core
