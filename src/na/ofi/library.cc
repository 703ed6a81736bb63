#include "na/ofi/library.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/fork.h"
#include "base/internal_thread.h"
#include "na/ofi/settings.h"
#include "na/ofi/signal_handlers.h"

namespace weft::na::ofi {

namespace {

// Symbol versions that match the structures in the included headers. A later libfabric exports both
// these and newer ones; lookup by name alone returns the newer.
#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION <= 17
constexpr const char* info_version = "FABRIC_1.3";
constexpr const char* fabric_version = "FABRIC_1.1";
#else
constexpr const char* info_version = nullptr;
constexpr const char* fabric_version = nullptr;
#endif

template <class Function>
bool find(void* file, const char* name, const char* version, Function& function) {
    void* found = version ? ::dlvsym(file, name, version) : ::dlsym(file, name);
    function = reinterpret_cast<Function>(found);
    return found != nullptr;
}

Status failed(const char* file) {
    const char* why = ::dlerror();
    return fail(Code::unavailable, "libfabric can't be loaded: " + std::string(why ? why : file) +
                                       "; install libfabric1 1.17 or later, or set LD_LIBRARY_PATH "
                                       "to its directory");
}

struct Loaded {
    Library library;
    Status status = fail(Code::unavailable, "");

    Loaded() {
        prepare_environment();
#ifdef WEFT_LIBFABRIC
        // A build against a private libfabric loads that copy first.
        status = load(WEFT_LIBFABRIC, library);
#endif
        if (!status.ok()) status = load("libfabric.so.1", library);
        if (status.ok() && when_loaded) when_loaded(library);
    }
};

const Loaded& loaded() {
    struct Place {
        std::once_flag once;
        std::optional<Loaded> loaded;
    };
    Place& place = base::per_process<Place>();
    std::call_once(place.once, [&] { place.loaded.emplace(); });
    return *place.loaded;
}

}  // namespace

Status load(const char* file, Library& library) {
    void* opened = nullptr;
    {
        const base::InternalThreadStart start;  // Threads that libraries start take no signals.
        const SignalHandlerGuard kept;
        // Never closed: libraries that it loads leave threads and handlers in their code.
        opened = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    const bool whole = opened && find(opened, "fi_getinfo", info_version, library.getinfo) &&
                       find(opened, "fi_freeinfo", info_version, library.freeinfo) &&
                       find(opened, "fi_dupinfo", info_version, library.dupinfo) &&
                       find(opened, "fi_fabric", fabric_version, library.fabric) &&
                       find(opened, "fi_strerror", nullptr, library.strerror) &&
                       find(opened, "fi_version", nullptr, library.version);
    return whole ? Status() : failed(file);
}

Status load_library() { return loaded().status; }

const Library& library() { return loaded().library; }

}  // namespace weft::na::ofi
