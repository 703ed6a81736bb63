#pragma once

#include "base/intrusive_list.h"

namespace weft::core {

// Work for the start of the next turn: for completions that must not happen inside the call that
// caused them. Lifetime: must stay in place until it ran or was undeferred.
struct Deferred : base::ListNode {
    void (*run)(Deferred&) = nullptr;
    void undefer() {
        if (is_linked()) unlink();
    }
};

}  // namespace weft::core
