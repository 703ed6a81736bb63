#include "base/text.h"

#include "support/catch.h"

using namespace weft;

TEST_CASE("is_utf8() accepts valid UTF-8 only") {
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

TEST_CASE("truncate_utf8() cuts where a character begins") {
    CHECK(base::truncate_utf8("abc", 3) == "abc");
    CHECK(base::truncate_utf8("abcd", 3) == "abc");
    CHECK(base::truncate_utf8("", 0).empty());
    CHECK(base::truncate_utf8("x", 0).empty());
    for (const std::string character : {"ü", "€", "😀"}) {
        const std::string text = "ab" + character + character;
        for (std::size_t most = 0; most <= text.size(); ++most) {
            const std::string_view cut = base::truncate_utf8(text, most);
            CHECK(base::is_utf8(cut));
            CHECK(text.starts_with(cut));
            CHECK(cut.size() <= most);
            CHECK(cut.size() + character.size() > most);
        }
    }
    CHECK(base::truncate_utf8(std::string(9, '\x80'), 6).size() == 6);
}

TEST_CASE("printable text has no control and no format characters and is UTF-8") {
    const auto check = [](std::string_view text, std::string_view printed) {
        CHECK(base::printable(text) == printed);
        CHECK(base::is_utf8(printed));
        CHECK(base::printable(printed) == printed);
    };
    check("plain ü € 😀", "plain ü € 😀");
    check("\x1b[31m\n\x7f", "\\x1b[31m\\x0a\\x7f");
    check(std::string_view("a\0b", 3), "a\\x00b");
    // A C1 control as one byte, which is no UTF-8, and as two bytes.
    check(
        "x\x9b"
        "31m",
        "x\\x9b31m");
    check(
        "x\xc2\x9b"
        "31m\xc2\x85",
        "x\\x9b31m\\x85");
    check(
        "a\xff"
        "b\xc3(",
        "a\\xffb\\xc3(");
    check("cut \xe2\x82", "cut \\xe2\\x82");
    check("\xed\xa0\x80", "\\xed\\xa0\\x80");
    check("x\u202eevil\u2028line", "x\\u{202e}evil\\u{2028}line");
    for (const char* format : {"\u00ad", "\u061c", "\u200b", "\u200f", "\u202a", "\u2060", "\u2066",
                               "\u2069", "\ufeff", "\ufffb", "\U000e0041"}) {
        CHECK(base::printable(format).front() == '\\');
    }
    for (const char* other : {"\u00a0", "\u00ae", "\u200a", "\u2010", "\u2027", "\u202f", "\u2070",
                              "\ufffd", "\U0010ffff"}) {
        CHECK(base::printable(other) == other);
    }
}
