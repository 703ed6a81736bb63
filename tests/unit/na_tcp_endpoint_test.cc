// What is tcp's own about an endpoint; the rest is in tests/conformance.
#include "support/na_rig.h"

using namespace weft;
using namespace weft::test;

// The same queue holds what a full socket did not take and is tried again in the next turn.
TEST_CASE("tcp: nobody sleeps on what has been committed and has not left") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaPair pair(rig);
    REQUIRE(rig.pump_until([&] { return pair.a->arm(); }));
    REQUIRE(pair.a.send(pair.ab, 100));  // Leaves at once, as the first of a turn.
    REQUIRE(pair.a.send(pair.ab, 100));
    CHECK_FALSE(pair.a->arm());
    pair.a->flush();
    CHECK(pair.a->arm());
    REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == 2; }));
}
