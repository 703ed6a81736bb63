// The project's own lock-free code under Relacy (relacy-dev), which runs the executions that the
// C++ memory model allows, not only those of the processor at hand. Include this first, and then
// the code: from here on its std::memory_order_* are Relacy's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <limits>

#include <relacy/relacy.hpp>

// The last argument of Relacy's operations is the place in the source.
namespace std {
constexpr rl::memory_order model_relaxed = rl::mo_relaxed;
constexpr rl::memory_order model_acquire = rl::mo_acquire;
constexpr rl::memory_order model_release = rl::mo_release;
constexpr rl::memory_order model_seq_cst = rl::mo_seq_cst;
inline void atomic_thread_fence(rl::memory_order order, rl::debug_info_param info) {
    rl::atomic_thread_fence(order, info);
}
}  // namespace std
#define memory_order_relaxed model_relaxed, $
#define memory_order_acquire model_acquire, $
#define memory_order_release model_release, $
#define memory_order_seq_cst model_seq_cst, $

namespace weft::models {

// Tries every execution. False: in one of them an assertion failed, two threads raced for memory or
// all of them waited; `said` has the report. (Relacy counts allocations, and a stream in memory
// makes some.)
template <class Model>
bool try_all(std::ostream& said) {
    rl::test_params all;
    all.search_type = rl::sched_full;
    all.iteration_count = std::numeric_limits<rl::iteration_t>::max();
    all.output_stream = &said;
    all.progress_stream = &said;
    return rl::simulate<Model>(all);
}

template <class Model>
bool holds(const char* title) {
    const bool good = try_all<Model>(std::cout);
    std::printf("%s: %s\n", title, good ? "holds in every execution" : "FAILED");
    return good;
}

// A faulty model: the search finds the fault.
template <class Model>
bool breaks(const char* title) {
    std::ostream silent(nullptr);
    const bool found = !try_all<Model>(silent);
    std::printf("%s: %s\n", title, found ? "is found faulty" : "FAILED: the fault is not found");
    return found;
}

}  // namespace weft::models
