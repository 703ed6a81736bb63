#include "bulk/leases.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace weft::bulk {

std::uint64_t Leases::add(const Lease& lease, std::uint32_t home) {
    const base::MutexLock lock(mutex_);
    leases_.insert(lease);
    std::uint64_t notified = 0;
    for (std::uint32_t k = 0; k < watches_.size(); ++k) {
        Watch& watch = watches_[k];
        if (k == home || watch.until <= lease.ends) continue;
        watch.until = lease.ends;
        if (!std::exchange(watch.is_notified, true)) notified |= std::uint64_t{1} << k;
    }
    return notified;
}

void Leases::remove(const Lease& lease) {
    const base::MutexLock lock(mutex_);
    leases_.erase(lease);
}

void Leases::forget_notifications(std::uint64_t contexts) {
    const base::MutexLock lock(mutex_);
    for (std::uint32_t k = 0; k < watches_.size(); ++k)
        if ((contexts >> k & 1) != 0) watches_[k] = {};
}

TimePoint Leases::revoke_ended(std::uint32_t context, TimePoint now, na::Exposures& exposures) {
    const base::MutexLock lock(mutex_);
    WEFT_ASSERT(context < watches_.size());
    while (!leases_.empty() && leases_.begin()->ends <= now) {
        exposures.revoke(leases_.begin()->region, leases_.begin()->generation);
        leases_.erase(leases_.begin());
    }
    const TimePoint next = leases_.empty() ? never : leases_.begin()->ends;
    watches_[context] = {next, false};
    return next;
}

}  // namespace weft::bulk
