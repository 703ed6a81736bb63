// Merging protobuf replies: the library part of the merge functions that protoc-gen-weft generates
// for (weft.field).merge. Generated sources include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/protobuf.h>

namespace weft::merging {

// ---- two values ---------------------------------------------------------------------------------

// Integers wrap, so that order and grouping make no difference.
struct Sum {
    template <class T>
    T operator()(T into, T from) const {
        if constexpr (std::is_integral_v<T>) {
            using Bits = std::make_unsigned_t<T>;
            return static_cast<T>(static_cast<Bits>(into) + static_cast<Bits>(from));
        } else {
            return into + from;
        }
    }
};

template <class T>
bool is_nan(T value) {
    if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
    return false;
}

// Orders -0 before 0, which compare equal, so that the result does not depend on their order.
template <class T>
bool is_less(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (a == b) return std::signbit(a) && !std::signbit(b);
    }
    return a < b;
}

struct Min {
    template <class T>
    T operator()(T into, T from) const {
        if (is_nan(into) || is_nan(from)) return std::numeric_limits<T>::quiet_NaN();
        return is_less(from, into) ? from : into;
    }
};

struct Max {
    template <class T>
    T operator()(T into, T from) const {
        if (is_nan(into) || is_nan(from)) return std::numeric_limits<T>::quiet_NaN();
        return is_less(into, from) ? from : into;
    }
};

struct And {
    template <class T>
    T operator()(T into, T from) const {
        return into & from;
    }
};

struct Or {
    template <class T>
    T operator()(T into, T from) const {
        return into | from;
    }
};

struct First {
    template <class T>
    T operator()(T into, T from) const {
        return into != T{} ? into : from;
    }
};

// ---- repeated and unknown fields ----------------------------------------------------------------

// Element by element; the excess elements of the longer list stay.
template <class List, class Operation>
void each(List& into, const List& from, Operation merge) {
    const int both = std::min(into.size(), from.size());
    for (int i = 0; i < both; ++i) into.Set(i, merge(into.Get(i), from.Get(i)));
    for (int i = both; i < from.size(); ++i) into.Add(from.Get(i));
}

// Keeps fields that this program's .proto lacks: those of one reply follow those of the other.
template <class Message>
void unknown(Message& into, const Message& from) {
    const auto& fields = from.GetReflection()->GetUnknownFields(from);
    if (fields.empty()) [[likely]]
        return;
    into.GetReflection()->MutableUnknownFields(&into)->MergeFrom(fields);
}

// ---- USER ---------------------------------------------------------------------------------------

// Ordinary lookup finds this function, which can't be called. So a call of merge() finds the
// program's function of that name, next to its message, and no namespace or variable.
void merge() = delete;

template <class Message>
concept HasMerge = requires(Message& into, const Message& from) {
    merge(into, from);
    requires std::same_as<decltype(merge(into, from)), void> ||
        std::same_as<decltype(merge(into, from)), Status>;
};

template <class Message>
Status by_user(Message& into, const Message& from) {
    if constexpr (!HasMerge<Message>) {
        return {};  // A static_assert of the generated caller reports it.
    } else if constexpr (std::is_void_v<decltype(merge(into, from))>) {
        merge(into, from);
        return {};
    } else {
        return merge(into, from);
    }
}

// ---- replies ------------------------------------------------------------------------------------

// The largest size that protobuf can read and write.
inline constexpr std::size_t bytes_max = std::numeric_limits<int>::max();

Status too_large(std::string_view type);
// For an exception: INTERNAL, without its text.
Status thrown(std::string_view type);

// A MergeFunction that merges messages by `fields`.
// Errors, with `into` unchanged: INTERNAL: bytes that do not parse, an exception;
// RESOURCE_EXHAUSTED: over `most` bytes; any error of `fields`. Thread: any.
template <class Reply>
Status replies(std::vector<std::byte>& into, ByteView from, Status (*fields)(Reply&, Reply&),
               std::size_t most = bytes_max) {
    detail::Pooled<Reply> merged, other;
    const auto type = [&] { return (*merged).GetTypeName(); };
    // The bound is on the sum, so that no list has more elements than it can count.
    if (into.size() > most || from.size() > most - into.size()) return too_large(type());
    try {
        Status status = merged.read_reply(into);
        if (status.ok()) status = other.read_reply(from);
        if (!status.ok()) return status;
        merged.mix(other);
        status = fields(*merged, *other);
        if (!status.ok()) {
            merged.not_written();
            return status;
        }
        const BodyWriter writer = merged.writer();
        if (writer.bytes > most) return too_large(type());
        into.resize(writer.bytes);
        writer(into.data());
        return {};
    } catch (...) {
        merged.not_written();
        return thrown(type());
    }
}

}  // namespace weft::merging
