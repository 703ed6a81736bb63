// The leases of a runtime with several contexts.
#include "bulk/leases.h"

#include "support/catch.h"

using namespace weft;
using namespace weft::bulk;

namespace {

constexpr TimePoint leases_begin{1s};

na::Exposure leased(const na::Exposures& exposures, std::uint32_t home) {
    static std::byte memory[64];
    return {exposures.numbers().first_of(home), 1, 77, Bytes(memory), Access::read};
}

}  // namespace

TEST_CASE("leases: the other contexts are notified of a lease that ends before their timers") {
    na::Exposures exposures(3);
    Leases leases(3);
    const Lease first{leases_begin + 10ms, 5000, 1};
    CHECK(leases.add(first, 1) == 0b101);
    CHECK(leases.add({leases_begin + 10ms, 5001, 1}, 1) == 0);
    CHECK(leases.add({leases_begin + 20ms, 5002, 1}, 1) == 0);
    CHECK(leases.add({leases_begin + 20ms, 5003, 1}, 0) == 0b010);
    // A context that does not turn has one notification, whatever ends when.
    CHECK(leases.add({leases_begin + 5ms, 5004, 1}, 1) == 0);
    CHECK(leases.revoke_ended(0, leases_begin, exposures) == leases_begin + 5ms);
    CHECK(leases.add({leases_begin + 4ms, 5005, 1}, 1) == 0b001);
    leases.forget_notifications(0b001);
    CHECK(leases.add({leases_begin + 30ms, 5006, 1}, 1) == 0b001);
    // Several that can't be sent.
    CHECK(leases.revoke_ended(2, leases_begin, exposures) == leases_begin + 4ms);
    CHECK(leases.add({leases_begin + 1ms, 5007, 1}, 0) == 0b100);
    leases.forget_notifications(0b101);
    CHECK(leases.add({leases_begin + 40ms, 5008, 1}, 1) == 0b101);
}

TEST_CASE("leases: the first context that turns after the end of a lease revokes its region") {
    na::Exposures exposures(3);
    Leases leases(3);
    const na::Exposure region = leased(exposures, 0);
    exposures.publish(region, leases_begin + 10ms);
    const Lease lease{leases_begin + 10ms, region.region, 1};
    leases.add(lease, 0);
    CHECK(leases.revoke_ended(1, leases_begin + 9ms, exposures) == lease.ends);
    CHECK(exposures.adopt(region.region, 1, 77, 2, leases_begin));
    CHECK(leases.revoke_ended(1, leases_begin + 10ms, exposures) == never);
    CHECK_FALSE(exposures.adopt(region.region, 1, 77, 2, leases_begin));
    CHECK(leases.revoke_ended(2, leases_begin + 10ms, exposures) == never);
    leases.remove(lease);  // By its context, later.
    CHECK(exposures.revoke(region.region, 1) == 1u << 2);
}

TEST_CASE("leases: a region that is closed earlier leaves none behind") {
    na::Exposures exposures(2);
    Leases leases(2);
    const na::Exposure region = leased(exposures, 0);
    exposures.publish(region, leases_begin + 10ms);
    leases.add({leases_begin + 10ms, region.region, 1}, 0);
    leases.add({leases_begin + 20ms, region.region + 1, 1}, 0);
    leases.remove({leases_begin + 10ms, region.region, 1});
    CHECK(leases.revoke_ended(1, leases_begin + 15ms, exposures) == leases_begin + 20ms);
    CHECK(exposures.adopt(region.region, 1, 77, 1, leases_begin));
}
