// The leases of the regions of a runtime with several contexts. A handler may block the context
// that exposed a region, and with it the timer of the lease: so every context has a timer for the
// lease that ends next, and the first one to turn then revokes the region.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include <weft/time.h>

#include "base/thread_annotations.h"
#include "na/exposures.h"

namespace weft::bulk {

struct Lease {
    TimePoint ends{};
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr): a false alarm about comparisons made here.
    auto operator<=>(const Lease&) const = default;
};

// Thread: any.
class Leases {
  public:
    explicit Leases(std::uint16_t contexts) : watches_(contexts) {}

    // Until remove(). Returns the other contexts, as bits, that have no timer in time: each is to
    // call revoke_ended() in a turn, and gets one notification at a time.
    std::uint64_t add(const Lease& lease, std::uint32_t home) WEFT_EXCLUDES(mutex_);
    // No effect if the lease has ended.
    void remove(const Lease& lease) WEFT_EXCLUDES(mutex_);
    // Notifications that can't be sent, as bits: the next lease causes others.
    void forget_notifications(std::uint64_t contexts) WEFT_EXCLUDES(mutex_);
    // Revokes each region with a lease that has ended. Returns when `context` is to call it again.
    TimePoint revoke_ended(std::uint32_t context, TimePoint now, na::Exposures& exposures)
        WEFT_EXCLUDES(mutex_);

  private:
    struct Watch {
        TimePoint until = never;  // The timer of the context, or the one that it is to arm.
        bool is_notified = false;
    };

    base::Mutex mutex_;
    std::set<Lease> leases_ WEFT_GUARDED_BY(mutex_);
    std::vector<Watch> watches_ WEFT_GUARDED_BY(mutex_);  // By contexts.
};

}  // namespace weft::bulk
