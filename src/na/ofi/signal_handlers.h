// Keeps the program's signal handlers while a library is loaded.
#pragma once

#include <signal.h>

#include <array>

namespace weft::na::ofi {

// Debian's libfabric is linked with PSM's libinfinipath, which installs handlers when it is loaded:
// SIGINT and SIGTERM then end a program with exit(1) inside a handler, and SIGSEGV and SIGBUS leave
// no core. The destructor replaces infinipath's handlers by those that the constructor found.
class SignalHandlerGuard {
  public:
    SignalHandlerGuard();
    ~SignalHandlerGuard();
    SignalHandlerGuard(const SignalHandlerGuard&) = delete;
    SignalHandlerGuard& operator=(const SignalHandlerGuard&) = delete;

  private:
    static constexpr std::array signals{SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

    std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace weft::na::ofi
