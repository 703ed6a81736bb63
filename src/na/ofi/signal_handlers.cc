#include "na/ofi/signal_handlers.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

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

SignalHandlerGuard::SignalHandlerGuard() {
    for (std::size_t i = 0; i < signals.size(); ++i) {
        ::sigaction(signals[i], nullptr, &before_[i]);
        // In a program that is linked with libfabric itself this is not the program's choice.
        if (is_of_infinipath(before_[i])) before_[i] = {};
    }
}

SignalHandlerGuard::~SignalHandlerGuard() {
    for (std::size_t i = 0; i < signals.size(); ++i) {
        struct sigaction now {};
        if (::sigaction(signals[i], nullptr, &now) != 0 || !is_of_infinipath(now)) continue;
        ::sigaction(signals[i], &before_[i], nullptr);
    }
}

}  // namespace weft::na::ofi
