// The signal handlers of the program, kept from a library that is loaded.
#pragma once

#include <signal.h>

#include <array>

namespace weft::na::ofi {

// Debian's libfabric is linked with PSM's libinfinipath, which installs handlers when it is loaded:
// SIGINT and SIGTERM then end a program with exit(1) out of a handler, and SIGSEGV and SIGBUS leave
// no core. The handlers of a program are its own business: at this object's end those that are of
// infinipath are again what they were at its beginning.
class KeptSignals {
  public:
    KeptSignals();
    ~KeptSignals();
    KeptSignals(const KeptSignals&) = delete;
    KeptSignals& operator=(const KeptSignals&) = delete;

  private:
    static constexpr std::array signals{SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

    std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace weft::na::ofi
