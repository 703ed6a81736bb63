// Collective stubs: over a stand-in of weft::Group that says what we like, and over a real group.
#include <weft/protobuf_group.h>

#include "support/echo.h"
#include "support/owned_coroutine.h"

using namespace weft;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::OwnedCoroutine;

namespace {

struct GroupOutcome {
    std::uint32_t rank;
    Status status;
    std::vector<std::byte> reply;
};
using Done = Function<void(std::vector<GroupOutcome>), 64>;

// Answers when told to.
struct FakeGroup {
    mutable EchoRequest asked;
    mutable Duration timeout{};
    mutable Done done;
    bool here = true;
    struct View {
        std::uint32_t size() const { return 3; }
    };
    View view() const { return {}; }
    bool on_thread() const { return here; }
    void collective(const MethodId& method, const BodyWriter& body, const CallOptions& options,
                    Done completion) const {
        CHECK(method.name == "echo.v1.Echo/Hasty");
        std::vector<std::byte> bytes(body.bytes);
        body(bytes.data());
        CHECK(asked.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
        timeout = options.timeout;
        done = std::move(completion);
    }
};

std::vector<std::byte> bytes_of(std::string_view text) {
    const ByteView view = as_bytes(text);
    return {view.begin(), view.end()};
}

OwnedCoroutine ask(FakeGroup& group, std::optional<GroupResult<EchoReply>>& into) {
    into = co_await GroupCall<EchoReply>(group, EchoMethods::Hasty, test::request_of("all"), {});
}

}  // namespace

TEST_CASE("a collective call has one outcome per rank") {
    FakeGroup group;
    std::optional<GroupResult<EchoReply>> result;
    OwnedCoroutine coroutine = ask(group, result);
    CHECK_FALSE(result.has_value());
    CHECK(group.asked.text() == "all");
    CHECK(group.timeout == 20ms);
    std::vector<GroupOutcome> outcomes;
    outcomes.push_back({0, Status(), bytes_of("\n\2me")});
    outcomes.push_back({4, fail(Code::unavailable, "died"), {}});
    outcomes.push_back({5, Status(), bytes_of("\n\x7f")});
    group.done(std::move(outcomes));
    REQUIRE(result.has_value());
    CHECK(result->size() == 3);
    CHECK(result->ok_count() == 1);
    CHECK_FALSE(result->all_ok());
    CHECK((*result)[0].reply.text() == "me");
    CHECK(result->first_error().text() == "rank 4: died");
    CHECK((*result)[2].status.code() == Code::internal);
    CHECK((*result)[2].status.effect() == Effect::applied);
}

TEST_CASE("a collective call is refused where nothing could resume its awaiter") {
    FakeGroup group;
    group.here = false;
    std::optional<GroupResult<EchoReply>> result;
    OwnedCoroutine coroutine = ask(group, result);
    REQUIRE(result.has_value());
    CHECK(result->size() == 3);
    CHECK((*result)[2].rank == 2);
    CHECK((*result)[2].status.code() == Code::failed_precondition);
    CHECK_FALSE(group.done);
}

TEST_CASE("a collective call's outcome may come after its coroutine has gone") {
    FakeGroup group;
    std::optional<GroupResult<EchoReply>> result;
    OwnedCoroutine coroutine = ask(group, result);
    coroutine.destroy();
    group.done({});
    CHECK_FALSE(result.has_value());
}

TEST_CASE("a group without members has not done it") {
    FakeGroup group;
    std::optional<GroupResult<EchoReply>> result;
    OwnedCoroutine coroutine = ask(group, result);
    group.done({});
    REQUIRE(result.has_value());
    CHECK_FALSE(result->all_ok());
    CHECK(result->first_error().ok());
}

namespace {

Task<void> ask_everywhere(Group group, std::string text,
                          std::optional<GroupResult<EchoReply>>& into) {
    echo::v1::EchoRequestText request;
    request.set_text(text);
    into = co_await echo::v1::EchoGroupClient(group).Everywhere(request, {.timeout = 1s});
}

}  // namespace

TEST_CASE("a generated group client reaches every member of a real group") {
    const std::uint32_t n = 5;
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back({rank, {"sim://s" + std::to_string(rank)}});
    }
    const GroupView view = GroupView::make("echo", 1, std::move(members)).value();
    std::vector<test::EchoServer> servers(n);
    test::SimRig rig;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        Runtime& runtime = rig.add("s" + std::to_string(rank));
        REQUIRE(runtime.add(servers[rank]).ok());
        REQUIRE(runtime.join(view, rank).ok());
    }
    Runtime& client = rig.add("");
    const Group group = client.group(view).value();
    for (const char* text : {"hello", "fail"}) {
        std::optional<GroupResult<EchoReply>> result;
        client.spawn(ask_everywhere(group, text, result));
        REQUIRE(rig.run_until([&] { return result.has_value(); }));
        REQUIRE(result->size() == n);
        const bool fails = text == std::string("fail");
        CHECK(result->all_ok() == !fails);
        CHECK(result->first_error().code() == (fails ? Code::not_found : Code::ok));
        for (const auto& answer : *result) CHECK(answer.reply.text() == (fails ? "" : text));
    }
    for (const test::EchoServer& server : servers) CHECK(server.handled == 2);
}
