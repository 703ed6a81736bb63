// libfabric, loaded on first use. Linked, it would cost every program with weft 0.2 s before main()
// where it loads PSM (Debian's does: libinfinipath measures the clock), and a host without
// libfabric could run no such program.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include <weft/status.h>

namespace weft::na::ofi {

// The functions that libfabric exports and weft calls; all others are reached through their
// results.
struct Library {
    decltype(&fi_getinfo) getinfo = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;
    decltype(&fi_dupinfo) dupinfo = nullptr;  // Of nullptr: an empty info.
    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_strerror) strerror = nullptr;
    decltype(&fi_version) version = nullptr;
};

// The first call loads libfabric; later calls return the same status. The program's signal handlers
// stay as they were. Errors: UNAVAILABLE. Thread: any.
Status load_library();
const Library& library();  // After load_library() was OK.

// The work of load_library(). Errors: UNAVAILABLE (no such file, or it lacks a function).
Status load(const char* file, Library& library);

// A hook for tests that replace functions: called with the loaded functions, before their first
// use. Set it before main().
inline void (*when_loaded)(Library&) = nullptr;

}  // namespace weft::na::ofi
