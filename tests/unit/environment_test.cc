// WEFT_ variables over a program's options: what they mean, and what is not weft's.
#include "api/environment.h"

#include <string>
#include <vector>

#include "base/text.h"
#include "support/catch.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace {

Result<api::Overlaid> overlay(std::vector<std::string> entries) {
    std::vector<char*> environment;
    for (std::string& entry : entries) environment.push_back(entry.data());
    environment.push_back(nullptr);
    return api::overlay_environment({}, environment.data());
}

std::string refusal_of(std::vector<std::string> entries) {
    const auto overlaid = overlay(std::move(entries));
    REQUIRE_FALSE(overlaid.ok());
    CHECK(overlaid.status().code() == Code::invalid_argument);
    return overlaid.status().to_string();
}

}  // namespace

TEST_CASE("each variable sets its option, and a bad value names the variable and what is good") {
    const auto all = overlay({"WEFT_WAIT=block", "WEFT_SPIN=7", "WEFT_CPU=0", "WEFT_TIMEOUT=5",
                              "WEFT_PEERS=9", "WEFT_STATE_SIGNAL=none", "WEFT_LOG=off",
                              "WEFT_CALLS=11", "WEFT_STRICT=1", "HOME=/"});
    REQUIRE(all.ok());
    CHECK(all->warning.empty());
    CHECK(all->options.wait == WaitMode::block);
    CHECK(all->options.spin == 7us);
    CHECK(all->options.cpu == 0u);
    CHECK(all->options.default_timeout == 5ms);
    CHECK(all->options.peers_max == 9);
    CHECK(all->options.log_level == LogLevel::off);
    CHECK(all->options.calls_in_flight_max == 11);
    CHECK_THAT(refusal_of({"WEFT_WAIT=sometimes"}),
               Contains("WEFT_WAIT='sometimes'") && Contains("adaptive, spin or block"));
    CHECK_THAT(refusal_of({"WEFT_SPIN=1000001"}), Contains("microseconds from 0 to 1000000"));
    CHECK_THAT(refusal_of({"WEFT_ARENA="}), Contains("bytes from 1048576 to 1099511627776"));
    CHECK_THAT(refusal_of({"WEFT_HANDLERS=1x"}), Contains("a number from 1 to 4194304"));
    CHECK_THAT(refusal_of({"WEFT_STRICT=yes"}), Contains("0 or 1"));
}

TEST_CASE("foreign names that begin with WEFT_ are one warning, with the name that may be meant") {
    const auto foreign = overlay({"WEFT_SERVICE_HOST=10.0.0.1", "WEFT_PORT=tcp://10.0.0.1:80",
                                  "WEFT_ROOT=/opt", "WEFT_DIR=/opt", "WEFT_TIMOUT=5",
                                  "WEFT_CALL_BYTE=1", "WEFT_STRICT=0", "WEFT_SPIN=3"});
    REQUIRE(foreign.ok());
    CHECK(foreign->options.spin == 3us);
    CHECK_THAT(foreign->warning,
               Contains("WEFT_SERVICE_HOST, WEFT_PORT, WEFT_ROOT, WEFT_DIR, "
                        "WEFT_TIMOUT (is WEFT_TIMEOUT meant?), "
                        "WEFT_CALL_BYTE (is WEFT_CALL_BYTES meant?) in the environment"));
    std::vector<std::string> many;
    for (int i = 0; i < 1000; ++i) many.push_back("WEFT_SERVICE_PORT_" + std::to_string(i) + "=1");
    CHECK_THAT(overlay(many).value().warning, Contains(" and 992 more"));
    many = {"WEFT_" + std::string(100'000, '\n') + "=1"};
    CHECK(overlay(many).value().warning.size() < 1000);
}

TEST_CASE("with WEFT_STRICT=1 foreign names are errors, whatever their order") {
    for (const std::vector<std::string>& entries :
         {std::vector<std::string>{"WEFT_ROOT=/opt", "WEFT_STRICT=1"},
          std::vector<std::string>{"WEFT_STRICT=1", "WEFT_ROOT=/opt"}}) {
        CHECK_THAT(refusal_of(entries), Contains("WEFT_ROOT") && Contains("WEFT_STRICT=1"));
    }
}

TEST_CASE("the edits between two words are counted") {
    CHECK(base::edits_between("", "") == 0);
    CHECK(base::edits_between("", "abc") == 3);
    CHECK(base::edits_between("kitten", "sitting") == 3);
    CHECK(base::edits_between("sitting", "kitten") == 3);
    CHECK(base::edits_between("flaw", "lawn") == 2);
}
