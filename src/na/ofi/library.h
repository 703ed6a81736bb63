// libfabric, loaded when something of it is first asked for. Linked, it would cost every program of
// weft's 0.2 s before main() where it brings PSM along (Debian's does: libinfinipath measures the
// clock), and a host without it could run none.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include <weft/status.h>

namespace weft::na::ofi {

// What libfabric exports of what we call; everything else hangs on the objects these give.
struct Library {
    decltype(&fi_getinfo) getinfo = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;
    decltype(&fi_dupinfo) dupinfo = nullptr;  // Of nullptr: an empty one.
    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_strerror) strerror = nullptr;
    decltype(&fi_version) version = nullptr;
};

// The first call loads it, and what it said stays so; the program's signal handlers are afterwards
// as they were before. Errors: UNAVAILABLE. Thread: any.
Status load_library();
const Library& library();  // After load_library() was OK.

// What load_library() does once. Errors: UNAVAILABLE (no such file, or not what we call in it).
Status load(const char* file, Library& library);

// Tests put functions of their own between: called with what was loaded, before anybody uses it. To
// be set before main().
inline void (*when_loaded)(Library&) = nullptr;

}  // namespace weft::na::ofi
