// The windows of a verbs connection.
#include "na/verbs/credits.h"
#include "support/catch.h"

using namespace weft::na::verbs;

TEST_CASE("verbs credits: a peer can't return more than were used, or send more than granted") {
    Credits credits;
    credits.grant(4);
    credits.open_window(2);
    credits.on_sent();
    credits.on_sent();
    CHECK_FALSE(credits.may_send());
    CHECK_FALSE(credits.on_returned(3));
    CHECK(credits.on_returned(2));
    CHECK_FALSE(credits.on_returned(1));
    CHECK(credits.may_send());
    CHECK(credits.on_received());
    CHECK_FALSE(credits.must_return());
    CHECK(credits.on_received());
    CHECK(credits.must_return());  // Half of the window.
    CHECK(credits.take_unreturned() == 2);
    for (int i = 0; i < 4; ++i) CHECK(credits.on_received());
    CHECK_FALSE(credits.on_received());
}
