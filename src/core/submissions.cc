#include "core/submissions.h"

#include "core/context_options.h"

namespace weft::core {

void Submissions::clear() {
    while (Submission* const one = pop()) one->finish(*one, Submission::Use::drop);
}

bool Submissions::admit(std::size_t bytes) {
    if (bytes > bytes_max_) return false;
    const std::size_t before = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes <= bytes_max_) return true;
    release(bytes);
    return false;
}

Status Submissions::why_not_admitted(std::size_t bytes) const {
    Status why = fail(Code::resource_exhausted, "other threads have handed over " +
                                                    std::to_string(bytes_max_ >> 20) +
                                                    " MiB that wait for the context's turn");
    if (bytes > bytes_max_) {
        why = fail(Code::invalid_argument, "a request of " +
                                               std::to_string(bytes - submission_overhead_bytes) +
                                               " bytes; pass large data by weft.BulkRef");
    }
    return std::move(why).with_stage(Stage::queued);
}

}  // namespace weft::core
