// The scope of a call: the operations that its handler starts, at once or later in their
// completions, end with the call. docs/adr/0007-inherited-deadlines.md
#pragma once

#include <cstdint>

#include <weft/status.h>
#include <weft/time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/intrusive_list.h"

namespace weft::core {

struct CallScope;

// Why an operation was cancelled, or refused.
inline constexpr const char* scope_cancelled_text = "the call that it was made for was cancelled";

// The deadline of the scope has passed during a long turn, before its timer could fire.
inline Status scope_expired_status() {
    return fail(Code::deadline_exceeded,
                "the deadline of the call that it was made for has passed: it is not begun");
}

// One operation, from its start to its completion. Lifetime: in place until it is detached.
struct ScopedOperation : base::ListNode {
    ScopedOperation() = default;
    ~ScopedOperation() { detach(); }
    void detach() {
        if (is_linked()) unlink();
        scope = nullptr;
    }

    CallScope* scope = nullptr;  // nullptr: the scope ended first, or there was none.
    // Cancels it; its completion follows later. nullptr: it can't be cancelled.
    void (*cancel)(ScopedOperation&) = nullptr;
};

// Thread: the context's.
struct CallScope {
    // `generation` is odd while the scope is open; another value is another scope in the same
    // place.
    explicit CallScope(const std::uint32_t& open_generation) : generation(open_generation) {}

    bool is_open() const { return generation % 2 != 0; }
    bool is_expired(const base::Clock& clock) const {
        return deadline != never && deadline <= clock.now();
    }
    void add(ScopedOperation& operation) {
        WEFT_DCHECK(is_open() && !operation.scope && !operation.is_linked());
        operation.scope = this;
        needs_cleanup = true;
        operations.push_back(operation);
    }
    void cancel_operations() {
        WEFT_DCHECK(is_open());
        operations.for_each([](ScopedOperation& operation) {
            if (operation.cancel) operation.cancel(operation);
        });
    }
    // The remaining operations continue outside of the scope.
    void release_operations() {
        WEFT_DCHECK(is_open());
        operations.for_each([](ScopedOperation& operation) { operation.detach(); });
    }

    const std::uint32_t& generation;
    TimePoint deadline = never;  // Bounds every operation.
    bool cancelled = false;      // New operations fail at once.
    bool needs_cleanup = false;  // Its end has more to clear than usual.
    base::IntrusiveList<ScopedOperation> operations;
};

}  // namespace weft::core
