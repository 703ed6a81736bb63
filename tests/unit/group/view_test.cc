#include <weft/group_view.h>

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

TEST_CASE("parse() and load() make the same view of a group file as make() of its parts") {
    const std::string json = R"({"name": "store", "epoch": 7, "members": [
        {"rank": 1, "uris": ["sm://b", "ofi+tcp://127.0.0.1:7401"]},
        {"rank": 0, "uris": ["sm://a"]}]})";
    const GroupView view = GroupView::parse(json).value();
    CHECK(view.name() == "store");
    CHECK(view.epoch() == 7);
    REQUIRE(view.size() == 2);
    CHECK(view.at(0).uris == std::vector<std::string>{"sm://a"});
    CHECK(view.at(1).uris.size() == 2);
    const GroupView made =
        GroupView::make("store", 7, {{0, {"sm://a"}}, {1, {"sm://b", "ofi+tcp://127.0.0.1:7401"}}})
            .value();
    CHECK(view.digest() == made.digest());
    const File file(json);
    CHECK(GroupView::load(file.path).value().digest() == view.digest());
}

TEST_CASE("a malformed group file is refused in one line that names the place") {
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
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":1,"uris":["sm://a"]},
                                                       {"rank":1,"uris":["sm://b"]}]})"),
               Contains("rank 1 is there twice"));
    CHECK_THAT(
        refusal(R"({"name":"s","epoch":1,"members":[{"rank":4294967295,"uris":["sm://a"]}]})"),
        Contains("rank 4294967295 is more than 4294967294"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[
                   {"rank":1,"uris":["sm://a"],"incarnation":-1}]})"),
               Contains("incarnation"));
    CHECK_THAT(refusal(R"({"name":"s","epoch":1,"members":[{"rank":0,"uris":["nonsense"]}]})"),
               Contains("rank 0"));
    CHECK_THAT(refusal(std::string(100'000, '[')), Contains("group file"));
}

TEST_CASE("one address of two ranks is refused, however it is written") {
    const auto view_of = [](std::vector<Member> members) {
        return GroupView::make("s", 1, std::move(members));
    };
    CHECK_THAT(std::string(view_of({{0, {"sm://a", "tcp://[::1]:70"}},
                                    {1, {"sm://b"}},
                                    {4, {"sm://c", "tcp://[::1]:0070"}}})
                               .status()
                               .text()),
               Contains("ranks 0 and 4 have one address, tcp://[::1]:70"));
    CHECK(view_of({{0, {"sm://a", "sm://a"}}, {1, {"sm://b"}}}).ok());
    CHECK(view_of({{0, {"tcp://h:70"}}, {1, {"tcp://h:71", "unix:///h"}}}).ok());
    // Among many members with several addresses each.
    std::vector<Member> many;
    for (std::uint32_t rank = 0; rank < 4096; ++rank) {
        const std::string name = std::to_string(rank);
        many.push_back({rank, {"sm://" + name, "unix:///" + name, "sm://" + name}});
    }
    CHECK(view_of(many).ok());
    many[17].uris.push_back("unix:///4011");
    CHECK_THAT(std::string(view_of(many).status().text()),
               Contains("ranks 17 and 4011 have one address, unix:///4011"));
}

TEST_CASE("the error of a missing or unreadable group file names the file") {
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

TEST_CASE("ranks may have gaps, and each is found") {
    const GroupView view = GroupView::parse(R"({"name":"s","epoch":1,"members":[
        {"rank":4294967294,"uris":["sm://c"],"incarnation":18446744073709551615},
        {"rank":1,"uris":["sm://a"]},{"rank":4,"uris":["sm://b"],"draining":true}]})")
                               .value();
    REQUIRE(view.size() == 3);
    CHECK(view.at(0).rank == 1);
    CHECK(view.find(1) == &view.at(0));
    CHECK(view.find(4) == &view.at(1));
    CHECK(view.find(4)->draining);
    CHECK(view.find(GroupView::rank_max)->incarnation == UINT64_MAX);
    for (const std::uint32_t rank : {0u, 2u, 3u, 5u, GroupView::rank_max - 1}) {
        CHECK(view.find(rank) == nullptr);
    }
}

TEST_CASE("a copy of a view shares its members") {
    const GroupView view = GroupView::make("s", 1, {{0, {"sm://a"}}}).value();
    const GroupView copy = view;  // NOLINT(performance-unnecessary-copy-initialization)
    CHECK(&copy.members() == &view.members());
}

TEST_CASE("a view beyond a limit is refused with a message that names the limit") {
    const auto why = [](std::string name, std::vector<Member> members) {
        const Status status = GroupView::make(std::move(name), 1, std::move(members)).status();
        CHECK(status.code() == Code::invalid_argument);
        return status.to_string();
    };
    CHECK_THAT(why(std::string(257, 'x'), {{0, {"sm://a"}}}), Contains("more than 256 bytes"));
    CHECK_THAT(why("\xff", {{0, {"sm://a"}}}), Contains("not UTF-8"));
    CHECK_THAT(why("s", {{0, {"unix:///\xff"}}}), Contains("rank 0: address 'unix:///"));
    CHECK_THAT(why("s", {{5, std::vector<std::string>(17, "sm://a")}}),
               Contains("rank 5 has more than 16 addresses"));
    CHECK_THAT(why("s", std::vector<Member>(GroupView::members_max + 1)),
               Contains("more than 1048576 members"));
    std::vector<Member> large(GroupView::uri_bytes_max / (15 * 250) + 1);
    for (std::uint32_t rank = 0; rank < large.size(); ++rank) {
        const std::string number = std::to_string(100000 + rank);
        const std::string uri = "tcp://" + number + std::string(234, 'x') + ":740";
        REQUIRE(uri.size() == 250);
        large[rank].rank = rank;
        large[rank].uris.assign(15, uri);
    }
    CHECK_THAT(why("s", large), Contains("addresses of more than 83886080 bytes"));
    large.pop_back();
    CHECK(GroupView::make("s", 1, std::move(large)).ok());
}

TEST_CASE("a group file beyond the limits is refused before it is parsed") {
    std::string many = R"({"name":"s","epoch":1,"members":[)";
    for (std::size_t i = 0; i < GroupView::members_max + 1000; ++i) many += "{},";
    CHECK_THAT(refusal(many), Contains("too many members"));
    CHECK_THAT(refusal(std::string(GroupView::members_max * 40 + 1000, '"')),
               Contains("too many members or addresses"));
    CHECK_THAT(refusal(std::string((std::size_t{320} << 20) + 1, ' ')), Contains("too large"));
}
