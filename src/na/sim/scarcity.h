// What a host can't have for a while: allocations that may fail, room in transports.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace weft::na::sim {

// Of one host. Thread: one.
class Scarcity {
  public:
    explicit Scarcity(std::uint64_t seed) : chance_(seed) {}
    Scarcity(const Scarcity&) = delete;
    Scarcity& operator=(const Scarcity&) = delete;

    // From here on this share of what is asked for is refused.
    void set_share(double share) { share_ = share; }
    // Whether this is. Draws from chance only where something is scarce.
    bool strikes() noexcept {
        if (share_ <= 0 || !base::happens(chance_, share_)) [[likely]]
            return false;
        ++strikes_;
        return true;
    }
    std::uint64_t struck() const { return strikes_; }

    // While it lives the calling thread runs code of this host.
    class Scope {
      public:
        explicit Scope(Scarcity& of) : outer_(current_) { current_ = &of; }
        ~Scope() { current_ = outer_; }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Scarcity* const outer_;
    };
    // Of the host whose code runs on this thread; false: none does.
    static bool strikes_here() noexcept { return current_ && current_->strikes(); }

  private:
    static constinit thread_local Scarcity* current_;

    base::SeededRandom chance_;
    double share_ = 0;
    std::uint64_t strikes_ = 0;
};

}  // namespace weft::na::sim
