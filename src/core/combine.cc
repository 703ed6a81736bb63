#include <weft/combine.h>

#include <stdexcept>

#include "base/duration_text.h"

namespace weft::detail {

TaskCombinator::TaskCombinator(const char* name, AsyncFrame* outer, std::size_t needed)
    : name_(name), outer_(outer), pending_(needed) {
    if (!has_home()) throw std::logic_error(std::string(no_context_status().text()));
    wait_for_notify();
    if (needed == 0) notify();
}

TaskCombinator::~TaskCombinator() {
    drop();
    for (Branch* branch = started_; branch; branch = branch->next) branch->combinator = nullptr;
}

void TaskCombinator::drop() {
    for (Branch* branch = started_; branch; branch = branch->next) branch->is_dropped = true;
}

Status TaskCombinator::timeout_status(Duration limit) const {
    Status why =
        wake_reason() == WakeReason::runtime_ended
            ? fail(Code::cancelled, "the runtime is shutting down (with_timeout)")
            : fail(Code::deadline_exceeded, "the task had not ended after " +
                                                base::duration_text(limit) + " (with_timeout)");
    return std::move(why).with_effect(Effect::unknown);
}

std::coroutine_handle<> TaskCombinator::on_branch_end(Branch& branch) {
    require_home_thread(name_,
                        "a task of it ended on a thread that does not turn its runtime: what the "
                        "task awaits must resume it there (Executor::post())");
    if (branch.is_in_dropped()) return std::noop_coroutine();
    branch.has_ended = true;
    if (pending_ == 0) return std::noop_coroutine();
    if (!first_) first_ = &branch;
    return --pending_ == 0 ? notify() : std::noop_coroutine();
}

std::coroutine_handle<> end_branch(Branch& branch) noexcept {
    return branch.combinator ? branch.combinator->on_branch_end(branch) : std::noop_coroutine();
}

void require_tasks(bool are_some) {
    if (!are_some) {
        throw std::invalid_argument("when_all, when_any or with_timeout of an empty task, or none");
    }
}

}  // namespace weft::detail
