// Debian's libfabric is linked with PSM's libinfinipath, which installs handlers when it is loaded,
// before main(): SIGINT and SIGTERM then end a program with exit(1) out of a handler, and SIGSEGV
// and SIGBUS leave no core. The handlers of a program are its own business, so they are taken back.
#include <dlfcn.h>
#include <signal.h>

#include <cstring>

#include "na/ofi/fabric.h"

namespace weft::na::ofi {

static bool is_of_infinipath(const struct sigaction& action) {
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return false;
    const void* handler = action.sa_flags & SA_SIGINFO
                              ? reinterpret_cast<const void*>(action.sa_sigaction)
                              : reinterpret_cast<const void*>(action.sa_handler);
    Dl_info library{};
    return ::dladdr(handler, &library) && library.dli_fname &&
           std::strstr(library.dli_fname, "libinfinipath");
}

void take_back_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
        struct sigaction action {};
        if (::sigaction(signal, nullptr, &action) != 0 || !is_of_infinipath(action)) continue;
        struct sigaction standard {};
        standard.sa_handler = SIG_DFL;
        ::sigaction(signal, &standard, nullptr);
    }
}

}  // namespace weft::na::ofi
