// Merging what two ranks replied. Pure.
#pragma once

#include <vector>

#include <weft/group_options.h>

namespace weft::coll {

// How the replies of one collective are merged.
struct Merge {
    Reduction reduction;
    MergeFunction function = nullptr;  // Of Operation::method.

    bool is_list() const { return reduction.operation == Reduction::Operation::none; }
    // Whether there is something to merge in a reply, or in a value. Errors: INVALID_ARGUMENT: of
    // numbers there are none, or no whole ones.
    Status judge(ByteView reply) const;
    // Errors: INVALID_ARGUMENT: arrays that are no whole numbers or of different sizes (`into` is
    // as before); UNIMPLEMENTED: the method has no merge function here; what that one says,
    // or INTERNAL, `into` undefined, when it throws.
    Status operator()(std::vector<std::byte>& into, ByteView from) const;
};

// Errors: INVALID_ARGUMENT: no such operation, or not of these numbers.
Status judge(const Reduction& reduction);

}  // namespace weft::coll
