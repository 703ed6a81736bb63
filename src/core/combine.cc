#include <weft/combine.h>

#include <stdexcept>

#include "base/duration_text.h"

namespace weft::detail {

Fork::Fork(const char* name, Level* outer, std::size_t ends)
    : name_(name), outer_(outer), ends_(ends) {
    if (!has_home()) throw std::logic_error(std::string(nowhere().text()));
    wait_for_ring();
    if (ends == 0) ring();
}

Fork::~Fork() {
    drop();
    for (Branch* branch = started_; branch; branch = branch->next) branch->fork = nullptr;
}

void Fork::drop() {
    for (Branch* branch = started_; branch; branch = branch->next) branch->is_dropped = true;
}

Status Fork::why_over(Duration limit) const {
    Status why =
        outcome() == Outcome::ended
            ? fail(Code::cancelled, "the runtime is shutting down (with_timeout)")
            : fail(Code::deadline_exceeded, "the task had not ended after " +
                                                base::duration_text(limit) + " (with_timeout)");
    return std::move(why).with_effect(Effect::unknown);
}

std::coroutine_handle<> Fork::end(Branch& branch) {
    require_home_thread(name_,
                        "a task of it ended on a thread that does not turn its runtime: what the "
                        "task awaits must resume it there (Executor::post())");
    if (branch.is_in_dropped()) return std::noop_coroutine();
    branch.has_ended = true;
    if (ends_ == 0) return std::noop_coroutine();
    if (!first_) first_ = &branch;
    return --ends_ == 0 ? ring() : std::noop_coroutine();
}

std::coroutine_handle<> end_branch(Branch& branch) noexcept {
    return branch.fork ? branch.fork->end(branch) : std::noop_coroutine();
}

void require_tasks(bool are_some) {
    if (!are_some) {
        throw std::invalid_argument("when_all, when_any or with_timeout of an empty task, or none");
    }
}

}  // namespace weft::detail
