#include "coll/reduce.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "base/assert.h"
#include "base/codec.h"

namespace weft::coll {

namespace {

using Kind = Reduction::Operation;
using Number = Reduction::Number;

// Unsigned, so that it wraps.
template <class T>
T sum_of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        return a + b;
    } else {
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    }
}

// Independent of grouping and order: NaN when one is NaN, and -0 is less than 0.
double least(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
double most(double a, double b) {
    const double least_negated = least(-a, -b);
    return std::isnan(least_negated) ? least_negated : -least_negated;
}

template <class T>
T least(T a, T b) {
    return std::min(a, b);
}
template <class T>
T most(T a, T b) {
    return std::max(a, b);
}

template <class T, class Apply>
void merge_each(std::vector<std::byte>& into, ByteView from, Apply apply) {
    WEFT_ASSERT(into.size() == from.size() && into.size() % sizeof(T) == 0);
    for (std::size_t at = 0; at < into.size(); at += sizeof(T)) {
        const T a = base::load<T>(into.data() + at);
        const T b = base::load<T>(from.data() + at);
        base::store(into.data() + at, apply(a, b));
    }
}

template <class T>
void merge_numbers(Kind operation, std::vector<std::byte>& into, ByteView from) {
    switch (operation) {
        case Kind::sum: return merge_each<T>(into, from, sum_of<T>);
        case Kind::min: return merge_each<T>(into, from, [](T a, T b) { return least(a, b); });
        case Kind::max: return merge_each<T>(into, from, [](T a, T b) { return most(a, b); });
        default: break;
    }
    if constexpr (!std::is_floating_point_v<T>) {
        if (operation == Kind::bit_and) {
            merge_each<T>(into, from, [](T a, T b) { return static_cast<T>(a & b); });
        } else {
            merge_each<T>(into, from, [](T a, T b) { return static_cast<T>(a | b); });
        }
    }
}

}  // namespace

Status validate(const Reduction& reduction) {
    if (reduction.operation > Kind::method || reduction.number > Number::f64) {
        return fail(Code::invalid_argument,
                    "Reduction::operation or Reduction::number has no known value");
    }
    const bool is_bitwise =
        reduction.operation == Kind::bit_and || reduction.operation == Kind::bit_or;
    if (is_bitwise && reduction.number == Number::f64) {
        return fail(Code::invalid_argument, "floating point numbers have no bitwise reduction");
    }
    return {};
}

Status Merge::validate(ByteView reply) const {
    if (is_list() || reduction.operation == Kind::method) return {};
    if (!reply.empty() && reply.size() % sizeof(std::uint64_t) == 0) return {};
    return fail(Code::invalid_argument,
                "a reduction expects numbers of 8 bytes each, and not a reply of " +
                    std::to_string(reply.size()) + " bytes");
}

// The program's own function.
static Status merge_by(MergeFunction function, std::vector<std::byte>& into, ByteView from) {
    try {
        return function(into, from);
    } catch (const std::exception& error) {
        return fail(Code::internal,
                    std::string("the merge function (MethodTraits::merge) threw: ") + error.what());
    } catch (...) {
        return fail(Code::internal, "the merge function (MethodTraits::merge) threw");
    }
}

Status Merge::operator()(std::vector<std::byte>& into, ByteView from) const {
    if (reduction.operation == Kind::method) {
        if (function) return merge_by(function, into, from);
        return fail(Code::unimplemented,
                    "the method has no merge function here (MethodTraits::merge, or `group: { "
                    "merge: true }` in the .proto)");
    }
    if (into.size() != from.size() || into.size() % sizeof(std::uint64_t) != 0) {
        return fail(Code::invalid_argument, "a reduction of " + std::to_string(from.size()) +
                                                " bytes, where " + std::to_string(into.size()) +
                                                " were merged so far");
    }
    switch (reduction.number) {
        case Number::u64: merge_numbers<std::uint64_t>(reduction.operation, into, from); break;
        case Number::i64: merge_numbers<std::int64_t>(reduction.operation, into, from); break;
        case Number::f64: merge_numbers<double>(reduction.operation, into, from); break;
    }
    return {};
}

}  // namespace weft::coll
