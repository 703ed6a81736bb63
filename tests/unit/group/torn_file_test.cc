// Group files that are written in place while they are read.
#include <deque>

#include "group/read_whole.h"
#include "support/catch.h"

namespace weft::group_torn_file_test {
namespace {

using Catch::Matchers::Contains;
using group::Reading;

const std::string whole = R"({"name":"g","epoch":2,"members":[{"rank":0,"uris":["sm://a"]}]})";

struct Readings {
    Result<GroupView> load() {
        return group::read_whole(
            "'g.json'",
            [&]() -> Result<Reading> {
                ++reads;
                Reading reading = next.front();
                if (next.size() > 1) next.pop_front();
                return reading;
            },
            &GroupView::parse, [&] { ++pauses; });
    }
    std::deque<Reading> next;
    int reads = 0;
    int pauses = 0;
};

TEST_CASE("a group file that is torn or half-written is read again until it is whole") {
    Readings file{{{whole.substr(0, 20), false, true}, {whole, true, true}, {whole, false, true}}};
    CHECK(file.load().value().epoch() == 2);
    CHECK(file.reads == 3);
    CHECK(file.pauses == 2);
}

TEST_CASE("a group file that changes during each of three readings is ABORTED and named") {
    Readings file{{{whole, true, true}}};
    const Status status = file.load().status();
    CHECK(status.code() == Code::aborted);
    CHECK_THAT(status.to_string(), Contains("'g.json' changed each of the 3 times"));
    CHECK(file.reads == 3);
}

TEST_CASE("a malformed group file is read three times when it is fresh, else once") {
    Readings fresh{{{"{", false, true}}};
    CHECK(fresh.load().status().code() == Code::invalid_argument);
    CHECK(fresh.reads == 3);
    Readings old{{{"{", false, false}}};
    CHECK(old.load().status().code() == Code::invalid_argument);
    CHECK(old.reads == 1);
}

// A value that JSON allows and the field does not: the error names the field, the value and the
// valid range.
TEST_CASE("an invalid number in a group file is reported with its valid range") {
    const auto refusal = [](const std::string& json) {
        return GroupView::parse(json).status().to_string();
    };
    const std::string one = R"("members":[{"rank":0,"uris":["sm://a"]}]})";
    for (const char* bad : {"-1", "1.5", "1e30", "18446744073709551616", "\"-1\"", "true"}) {
        INFO(bad);
        CHECK_THAT(refusal(R"({"name":"g","epoch":)" + std::string(bad) + "," + one),
                   Contains("(epoch): invalid value ") &&
                       Contains(": expected a whole number from 0 to 18446744073709551615"));
    }
    for (const char* bad : {"-1", "0.5", "4294967296", "\"x\""}) {
        INFO(bad);
        CHECK_THAT(refusal(R"({"name":"g","epoch":1,"members":[{"rank":)" + std::string(bad) +
                           R"(,"uris":["sm://a"]}]})"),
                   Contains("(members[0].rank): invalid value ") &&
                       Contains(": expected a whole number from 0 to 4294967294"));
    }
    CHECK_THAT(refusal(R"({"name":"g","epoch":1,"members":[
                   {"rank":0,"uris":["sm://a"],"draining":"soon"}]})"),
               Contains("expected true or false"));
}

}  // namespace
}  // namespace weft::group_torn_file_test
