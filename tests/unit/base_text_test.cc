#include "base/text.h"

#include "support/catch.h"

using namespace weft;

TEST_CASE("text is UTF-8 or it is not") {
    for (const char* good : {"", "a", "ü", "€", "😀", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf",
                             "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80"}) {
        CHECK(base::is_utf8(good));
        CHECK(base::is_utf8("x" + std::string(good) + "y"));
    }
    for (const char* bad :
         {"\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xc3\x28"}) {
        CHECK_FALSE(base::is_utf8(bad));
        CHECK_FALSE(base::is_utf8("x" + std::string(bad) + "y"));
    }
    CHECK(base::is_utf8(std::string_view("\0", 1)));
}
