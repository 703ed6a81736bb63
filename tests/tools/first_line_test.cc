// The first line that a server process prints, and its interpretation.
#include "perf/first_line.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

TEST_CASE("first line: a server's address or its failure is parsed") {
    CHECK(read_first_line("listening tcp://127.0.0.1:7").value() == "tcp://127.0.0.1:7");
    const auto refused = read_first_line("failed 14 no server listens");
    REQUIRE_FALSE(refused);
    CHECK(refused.status().code() == Code::unavailable);
    CHECK(refused.status().text() == "no server listens");
}

TEST_CASE("first line: any other text means that the server did not start") {
    for (const char* line : {"", "failed", "failed ", "failed x", "failed 0 fine", "failed 99 no",
                             "failed -1 no", "listening", "segmentation fault"}) {
        INFO(line);
        const auto heard = read_first_line(line);
        REQUIRE_FALSE(heard);
        CHECK(heard.status().code() == Code::internal);
    }
}
