// Merges the replies of two ranks. Pure.
#pragma once

#include <vector>

#include <weft/group_options.h>

namespace weft::coll {

// How the replies of one collective are merged.
struct Merge {
    Reduction reduction;
    MergeFunction function = nullptr;  // Of Operation::method.

    bool is_list() const { return reduction.operation == Reduction::Operation::none; }
    // Whether a reply or a value can be merged. Errors: INVALID_ARGUMENT: no numbers, or not a
    // whole number of them.
    Status validate(ByteView reply) const;
    // Errors: INVALID_ARGUMENT: no whole numbers, or different sizes (`into` is unchanged);
    // UNIMPLEMENTED: the method has no merge function here; the status of that function, or
    // INTERNAL, `into` undefined, if it throws.
    Status operator()(std::vector<std::byte>& into, ByteView from) const;
};

// Errors: INVALID_ARGUMENT: no such operation, or not possible for these numbers.
Status validate(const Reduction& reduction);

}  // namespace weft::coll
