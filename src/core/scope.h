// What is done for the sake of a call: the operations that its handler starts, at once or later in
// their completions, end with it. docs/adr/0007-inherited-deadlines.md
#pragma once

#include <cstdint>

#include <weft/status.h>
#include <weft/time.h>

#include "base/clock.h"
#include "base/intrusive_list.h"

namespace weft::core {

struct Scope;

// Why an operation ended, or never began.
inline constexpr const char* scope_cancelled_text = "the call that it was made for was cancelled";

// Its deadline has passed in a turn that took longer, so that no timer has said so yet.
inline Status scope_is_late() {
    return fail(Code::deadline_exceeded,
                "the deadline of the call that it was made for has passed: it is not begun");
}

// One operation, from its start to its completion. Lifetime: in place until it left.
struct InScope : base::ListNode {
    InScope() = default;
    ~InScope() { leave(); }
    void leave() {
        if (is_linked()) unlink();
        scope = nullptr;
    }

    Scope* scope = nullptr;  // nullptr: the scope ended first, or there was none.
    // Its completion follows, later. nullptr: it can't be cancelled.
    void (*cancel)(InScope&) = nullptr;
};

// Thread: the one that turns its context.
struct Scope {
    // `generation` is odd while the scope is open; another one is another scope in the same place.
    explicit Scope(const std::uint32_t& of) : generation(of) {}

    bool is_open() const { return generation % 2 != 0; }
    bool has_passed(const base::Clock& clock) const {
        return deadline != never && deadline <= clock.now();
    }
    void add(InScope& operation) {
        operation.scope = this;
        marked = true;
        operations.push_back(operation);
    }
    void cancel_operations() {
        operations.for_each([](InScope& operation) {
            if (operation.cancel) operation.cancel(operation);
        });
    }
    // Nobody waits for what is left: it goes on by itself.
    void let_go() {
        operations.for_each([](InScope& operation) { operation.leave(); });
    }

    const std::uint32_t& generation;
    TimePoint deadline = never;  // No operation is given more time.
    bool cancelled = false;      // New operations end at once.
    bool marked = false;         // It has more to clear when it ends than the usual.
    base::IntrusiveList<InScope> operations;
};

}  // namespace weft::core
