#include "base/log.h"

#include <string>
#include <vector>

#include "support/catch.h"

using namespace weft;

TEST_CASE("log: lines about peers are ten a second, and those left out are counted") {
    std::vector<std::string> lines;
    base::Log log(LogLevel::warning,
                  [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    const TimePoint start(1h);
    for (int i = 0; i < 100'000; ++i) log.write_of_peer(LogLevel::warning, start + i * 1us, "x");
    CHECK(lines.size() == base::Log::peer_lines_per_s);
    log.write_of_peer(LogLevel::info, start + 2s, "below the level");
    log.write_of_peer(LogLevel::warning, start + 2s, "y");
    CHECK(lines.back() == "y (99990 lines about peers were left out before)");
    log.write_of_peer(LogLevel::error, start + 2s, "z");
    CHECK(lines.back() == "z");
    // Lines of the program's own are not counted.
    for (int i = 0; i < 100; ++i) log.warning("own line");
    CHECK(lines.size() == base::Log::peer_lines_per_s + 102);
}
