// What a server process says first, and what is made of it.
#include "perf/first_line.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

TEST_CASE("first line: where a server listens, or why it does not") {
    CHECK(read_first_line("listening tcp://127.0.0.1:7").value() == "tcp://127.0.0.1:7");
    const auto refused = read_first_line("failed 14 nobody is there");
    REQUIRE_FALSE(refused);
    CHECK(refused.status().code() == Code::unavailable);
    CHECK(refused.status().text() == "nobody is there");
}

TEST_CASE("first line: anything else is a server that did not start") {
    for (const char* line : {"", "failed", "failed ", "failed x", "failed 0 fine", "failed 99 no",
                             "failed -1 no", "listening", "segmentation fault"}) {
        INFO(line);
        const auto heard = read_first_line(line);
        REQUIRE_FALSE(heard);
        CHECK(heard.status().code() == Code::internal);
    }
}
