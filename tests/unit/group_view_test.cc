#include <weft/group.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/catch.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace {

struct File {
    explicit File(std::string_view text)
        : path("/tmp/weft-group-" + std::to_string(getpid()) + ".json") {
        std::ofstream(path) << text;
    }
    ~File() { unlink(path.c_str()); }
    const std::string path;
};

std::string refusal(std::string_view json) {
    const Result<GroupView> view = GroupView::parse(json);
    REQUIRE(!view.ok());
    CHECK(view.status().code() == Code::invalid_argument);
    CHECK(view.status().text().find('\n') == std::string_view::npos);
    return std::string(view.status().text());
}

}  // namespace

TEST_CASE("a group file makes the view that its parts make") {
    const std::string json = R"({"name": "store", "epoch": 7, "members": [
        {"rank": 1, "uris": ["sm://b", "ofi+tcp://127.0.0.1:7401"]},
        {"rank": 0, "uris": ["sm://a"]}]})";
    const GroupView view = GroupView::parse(json).value();
    CHECK(view.name() == "store");
    CHECK(view.epoch() == 7);
    REQUIRE(view.size() == 2);
    CHECK(view.member(0).uris == std::vector<std::string>{"sm://a"});
    CHECK(view.member(1).uris.size() == 2);
    const GroupView made =
        GroupView::make("store", 7, {{0, {"sm://a"}}, {1, {"sm://b", "ofi+tcp://127.0.0.1:7401"}}})
            .value();
    CHECK(view.digest() == made.digest());
    const File file(json);
    CHECK(GroupView::load(file.path).value().digest() == view.digest());
}

TEST_CASE("a malformed group file is refused in one sentence that says where") {
    CHECK_THAT(refusal(""), Contains("group file"));
    CHECK_THAT(refusal("[]"), Contains("group file"));
    CHECK_THAT(refusal("{\"name\": "), Contains("group file"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"colour":"red","members":[]})"),
               Contains("colour"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":0,"uri":["sm://a"]}]})"),
               Contains("uri"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":-1,"members":[]})"), Contains("epoch"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":"x","uris":["sm://a"]}]})"),
               Contains("rank"));
    CHECK_THAT(refusal(R"({"name":"s","members":[{"rank":0,"uris":["sm://a"]}]})"),
               Contains("epoch"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"uris":["sm://a"]}]})"),
               Contains("rank"));
    CHECK_THAT(refusal(R"({"epoch":1,"members":[{"rank":0,"uris":["sm://a"]}]})"),
               Contains("name"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1})"), Contains("members"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":0}]})"), Contains("rank 0"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":1,"uris":["sm://a"]}]})"),
               Contains("rank 0 is missing"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":0,"uris":["nonsense"]}]})"),
               Contains("rank 0"));
    CHECK_THAT(refusal(std::string(100'000, '[')), Contains("group file"));
}

TEST_CASE("a group file that is not there or not readable is named") {
    const Status missing = GroupView::load("/nonexistent/group.json").status();
    CHECK(missing.code() == Code::not_found);
    CHECK_THAT(std::string(missing.text()), Contains("/nonexistent/group.json"));
    const Status directory = GroupView::load("/tmp").status();
    CHECK(directory.code() == Code::failed_precondition);
    const File file("{");
    const Status malformed = GroupView::load(file.path).status();
    CHECK(malformed.code() == Code::invalid_argument);
    CHECK_THAT(std::string(malformed.text()), Contains(file.path));
}
