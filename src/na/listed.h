// The node of an entry that the poll of an endpoint reaches through a list.
#pragma once

#include "base/assert.h"
#include "base/intrusive_list.h"

namespace weft::na {

// An entry leaves each of its lists before it is destroyed, or the next poll uses freed memory. A
// list is empty when it is destroyed. Both are asserted in every build.
struct Listed : base::ListNode {
    ~Listed() { WEFT_ASSERT(!is_linked() || next == this); }  // The head of an empty list.
    void unlink_if_linked() {
        if (is_linked()) unlink();
    }
};

}  // namespace weft::na
