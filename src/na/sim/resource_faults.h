// Resources that a host lacks for a while: allocations that may fail, room in transports.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace weft::na::sim {

// Of one host. Thread: one.
class ResourceFaults {
  public:
    explicit ResourceFaults(std::uint64_t seed) : chance_(seed) {}
    ResourceFaults(const ResourceFaults&) = delete;
    ResourceFaults& operator=(const ResourceFaults&) = delete;

    // From here on this share of requests fails.
    void set_failure_rate(double rate) { failure_rate_ = rate; }
    // Whether this request fails. Draws random numbers only while the rate is not 0.
    bool must_fail() noexcept {
        if (failure_rate_ <= 0 || !base::bernoulli(chance_, failure_rate_)) [[likely]]
            return false;
        ++failures_;
        return true;
    }
    std::uint64_t failures() const { return failures_; }

    // While it lives the calling thread runs code of this host.
    class HostScope {
      public:
        explicit HostScope(ResourceFaults& of) : outer_(current_) { current_ = &of; }
        ~HostScope() { current_ = outer_; }
        HostScope(const HostScope&) = delete;
        HostScope& operator=(const HostScope&) = delete;

      private:
        ResourceFaults* const outer_;
    };
    // The same for the host that runs on this thread; false without one.
    static bool must_fail_here() noexcept { return current_ && current_->must_fail(); }

  private:
    static constinit thread_local ResourceFaults* current_;

    base::SeededRandom chance_;
    double failure_rate_ = 0;
    std::uint64_t failures_ = 0;
};

}  // namespace weft::na::sim
