#include <weft/combine.h>

#include <stdexcept>

#include "base/duration_text.h"

namespace weft::detail {

bool Branch::is_in_dropped() const {
    for (const Branch* around = this; around; around = around->outer) {
        if (around->is_dropped) return true;
    }
    return false;
}

Fork::Fork(Branch* outer, std::size_t ends) : outer_(outer), ends_(ends) {
    if (!has_home()) throw std::logic_error(std::string(nowhere().text()));
    if (ends == 0) ring();
}

void Fork::drop() {
    for (Branch* branch = started_; branch; branch = branch->next) branch->is_dropped = true;
}

void Fork::end(Branch& branch) {
    branch.has_ended = true;
    if (ends_ == 0) return;
    if (!first_) first_ = &branch;
    if (--ends_ == 0) ring();
}

void end_branch(Branch& branch) noexcept {
    if (!branch.is_in_dropped()) branch.fork->end(branch);
}

void require_task(bool is_task) {
    if (!is_task) {
        throw std::invalid_argument("when_all, when_any or with_timeout of an empty task, or none");
    }
}

Status timed_out(Duration limit) {
    return fail(Code::deadline_exceeded,
                "the task had not ended after " + base::duration_text(limit) + " (with_timeout)")
        .with_effect(Effect::unknown);
}

}  // namespace weft::detail
