// The part of merge.proto that the program defines: fields with USER.
#pragma once

#include <stdexcept>

#include <weft/status.h>

#include "merge.pb.h"

#ifndef WITHOUT_MERGE_OF_SLOWEST  // For tests/compile.
namespace merge::v1 {

inline void merge(Slowest& into, const Slowest& from) {
    if (from.ms() > into.ms() || (from.ms() == into.ms() && from.rank() < into.rank())) into = from;
}

}  // namespace merge::v1
#endif

namespace parts::v1 {

inline weft::Status merge(Agreed& into, const Agreed& from) {
    if (from.value() == 666) throw std::runtime_error("secret");
    if (into.value() == from.value()) return {};
    return weft::fail(weft::Code::aborted, "they do not agree");
}

}  // namespace parts::v1
