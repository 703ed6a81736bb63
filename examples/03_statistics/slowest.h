// Merges two demo.Slowest into one.
#pragma once

#include "statistics.pb.h"

namespace demo {

inline void merge(Slowest& into, const Slowest& from) {
    if (from.ms() > into.ms()) into = from;
}

}  // namespace demo
