// Collective stubs: over a fake of weft::Group that the test controls, and over a real group.
#include <weft/protobuf_group.h>
#include <weft/runtime.h>

#include "merge.weft.h"
#include "support/echo.h"
#include "support/fake_group.h"
#include "support/owned_coroutine.h"

using namespace weft;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using merge::v1::MergingMethods;
using test::FakeGroup;
using test::OwnedCoroutine;

namespace {

using Replies = GroupResult<EchoReply>;
using Merged = MergedResult<merge::v1::Lists>;

// The operands of co_await are not aggregates, because g++ 12 would destroy those twice.
static_assert(!std::is_aggregate_v<GroupCall<Replies>>);
static_assert(!std::is_aggregate_v<GroupCall<Status>>);

std::vector<std::byte> bytes_of(std::string_view text) {
    const ByteView view = as_bytes(text);
    return {view.begin(), view.end()};
}

GroupOutcome outcome_of(Status status, std::vector<RankOutcome> ranks = {}) {
    GroupOutcome outcome;
    outcome.status = std::move(status);
    outcome.ranks = std::move(ranks);
    outcome.epoch = 3;
    return outcome;
}

OwnedCoroutine ask(FakeGroup group, std::optional<Replies>& into, GroupCallOptions options = {}) {
    into = co_await GroupCall<Replies>(group, EchoMethods::Hasty, test::request_of("all"), options);
}

OwnedCoroutine merge_all(FakeGroup group, std::optional<Merged>& into,
                         GroupCallOptions options = {}) {
    into =
        co_await GroupCall<Merged>(group, MergingMethods::Ordered, merge::v1::Question(), options);
}

}  // namespace

TEST_CASE("a collective call has one outcome for each rank, and an overall status") {
    FakeGroup group;
    std::optional<Replies> result;
    OwnedCoroutine coroutine = ask(group, result);
    CHECK_FALSE(result.has_value());
    CHECK(group->method == "echo.v1.Echo/Hasty");
    CHECK(group.sent_message<EchoRequest>().text() == "all");
    CHECK(group->options.timeout == 20ms);
    CHECK(group->options.priority == 3);
    std::vector<RankOutcome> ranks;
    ranks.push_back({0, Status(), bytes_of("\n\2me"), 11});
    ranks.push_back({4, fail(Code::unavailable, "died"), {}, 12});
    ranks.push_back({5, Status(), bytes_of("\n\x7f"), 13});
    group.complete(outcome_of(fail(Code::unavailable, "rank 4: died"), std::move(ranks)));
    REQUIRE(result.has_value());
    CHECK(result->status().text() == "rank 4: died");
    CHECK(result->epoch() == 3);
    CHECK(result->size() == 3);
    CHECK(result->ok_count() == 1);
    CHECK_FALSE(result->all_ok());
    CHECK((*result)[0].reply.text() == "me");
    CHECK((*result)[0].incarnation == 11);
    CHECK(result->first_error().text() == "rank 4: died");
    CHECK((*result)[2].status.code() == Code::internal);
    CHECK((*result)[2].status.effect() == Effect::applied);
    CHECK((*result)[2].incarnation == 13);
}

TEST_CASE("a reply that does not parse counts as a failure in the policy") {
    const auto status_of = [](GroupCallOptions options) {
        FakeGroup group;
        std::optional<Replies> result;
        OwnedCoroutine coroutine = ask(group, result, options);
        std::vector<RankOutcome> ranks;
        ranks.push_back({0, Status(), bytes_of("\n\2me")});
        ranks.push_back({1, Status(), bytes_of("\n\x7f")});
        ranks.push_back({2, Status(), {}});
        group.complete(outcome_of(Status(), std::move(ranks)));
        REQUIRE(result.has_value());
        CHECK(result->epoch() == 3);
        CHECK(result->ok_count() == 2);
        return result->status();
    };
    CHECK(status_of({}).code() == Code::internal);
    CHECK(status_of({}).text() == "rank 1: the reply is not a valid echo.v1.EchoReply");
    CHECK(status_of({.policy = Policy::quorum}).ok());
    CHECK(status_of({.policy = Policy::quorum, .quorum = 2}).ok());
    CHECK(status_of({.policy = Policy::quorum, .quorum = 3}).code() == Code::internal);
    CHECK(status_of({.policy = Policy::best_effort}).ok());
}

TEST_CASE("a collective call is refused on a thread that can't resume its awaiter") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    FakeGroup group;
    group->here = false;
    group->executor = &runtime.executor();
    std::optional<Replies> result;
    OwnedCoroutine coroutine = ask(group, result);
    REQUIRE(result.has_value());
    CHECK(result->size() == 0);
    CHECK(result->status().code() == Code::failed_precondition);
    CHECK(result->first_error().code() == Code::failed_precondition);
    CHECK_FALSE(result->all_ok());
    CHECK_FALSE(group->done);
}

TEST_CASE("a collective call is cancelled when its coroutine is destroyed") {
    FakeGroup group;
    std::optional<Replies> result;
    OwnedCoroutine coroutine = ask(group, result);
    coroutine.destroy();
    CHECK(group->cancelled == 1);
    group.complete(outcome_of(fail(Code::cancelled, "as wished")));
    CHECK_FALSE(result.has_value());
}

TEST_CASE("a completed collective call, or one without an id, is not cancelled") {
    FakeGroup group;
    std::optional<Replies> result;
    OwnedCoroutine ended = ask(group, result);
    group.complete(outcome_of(Status()));
    ended.destroy();
    CHECK(group->cancelled == 0);
    group->gives_id = false;
    OwnedCoroutine handed = ask(group, result);
    handed.destroy();
    CHECK(group->cancelled == 0);
    group.complete(outcome_of(Status()));
}

TEST_CASE("all_ok() is false for a group without members") {
    FakeGroup group;
    std::optional<Replies> result;
    OwnedCoroutine coroutine = ask(group, result);
    group.complete(outcome_of(Status()));
    REQUIRE(result.has_value());
    CHECK_FALSE(result->all_ok());
    CHECK(result->first_error().ok());
}

TEST_CASE("a merged call has one reply, and a status for each rank") {
    FakeGroup group;
    std::optional<Merged> result;
    OwnedCoroutine coroutine = merge_all(group, result);
    GroupOutcome outcome = outcome_of(Status());
    outcome.ranks.push_back({0, Status(), {}, 11});
    outcome.ranks.push_back({1, fail(Code::unavailable, "died"), {}, 12});
    outcome.ranks.push_back({2, Status(), {}, 13});
    outcome.merged = bytes_of("\n\2ac");
    group.complete(std::move(outcome));
    REQUIRE(result.has_value());
    CHECK(result->status().ok());
    CHECK(result->reply().text() == "ac");
    CHECK(result->ok_count() == 2);
    CHECK(result->epoch() == 3);
    REQUIRE(result->ranks().size() == 3);
    CHECK((*result)[1].status.code() == Code::unavailable);
    CHECK((*result)[2].incarnation == 13);
    CHECK(result->first_error().text() == "rank 1: died");
}

TEST_CASE("merged bytes that do not parse fail the call, unless it has already failed") {
    for (const bool failed : {false, true}) {
        FakeGroup group;
        std::optional<Merged> result;
        OwnedCoroutine coroutine = merge_all(group, result);
        GroupOutcome outcome = outcome_of(failed ? fail(Code::unavailable, "died") : Status());
        outcome.ranks.push_back({0, Status(), {}});
        outcome.merged = bytes_of("\n\2ac\n\x7f");
        group.complete(std::move(outcome));
        REQUIRE(result.has_value());
        CHECK(result->status().code() == (failed ? Code::unavailable : Code::internal));
        CHECK(result->reply().text().empty());
    }
}

TEST_CASE("options that the caller omits take the values of the method") {
    FakeGroup group;
    std::optional<Merged> result;
    OwnedCoroutine own = merge_all(group, result);
    GroupCallOptions had = group->options;
    CHECK(had.timeout == 50ms);
    CHECK(had.priority == 2);
    CHECK(had.policy == Policy::quorum);
    CHECK(had.quorum == 3);
    CHECK(had.topology.shape == Topology::Shape::k_ary);
    CHECK(had.topology.fanout == 4);
    CHECK(had.reduction.operation == Reduction::Operation::method);
    CHECK(had.reduction.ordered);
    CHECK(had.merge == MergingMethods::Ordered.merge);

    OwnedCoroutine other = merge_all(group, result,
                                     {.timeout = 1s,
                                      .priority = 5,
                                      .policy = Policy::all,
                                      .topology = {.shape = Topology::Shape::flat},
                                      .reduction = {Reduction::Operation::sum}});
    had = group->options;
    CHECK(had.timeout == 1s);
    CHECK(had.priority == 5);
    CHECK(had.policy == Policy::all);
    CHECK(had.quorum == 0);
    CHECK(had.topology.shape == Topology::Shape::flat);
    // The caller's operation is ignored.
    CHECK(had.reduction.operation == Reduction::Operation::method);

    OwnedCoroutine fewer = merge_all(group, result, {.quorum = 2, .topology = {.by_host = true}});
    had = group->options;
    CHECK(had.policy == Policy::quorum);
    CHECK(had.quorum == 2);
    CHECK(had.topology.by_host);
    CHECK(had.topology.shape == Topology::Shape::automatic);

    GroupCallOptions ordered;
    ordered.reduction.ordered = true;
    std::optional<Replies> replies;
    OwnedCoroutine list = ask(group, replies, ordered);
    CHECK(group->options.reduction.operation == Reduction::Operation::none);
    CHECK_FALSE(group->options.reduction.ordered);  // A list is ordered anyway.
    CHECK(group->options.merge == nullptr);

    CHECK(MergingMethods::List.group.policy == Policy::best_effort);
    CHECK(MergingMethods::List.group.topology.shape == Topology::Shape::flat);
    CHECK(MergingMethods::List.group.topology.by_host);
    CHECK_FALSE(MergingMethods::Everything.group.policy.has_value());
}

TEST_CASE("a scatter sends each rank its own request") {
    FakeGroup group;
    std::optional<Replies> result;
    const std::vector<RankRequest<EchoRequest>> each = {{4, test::request_of("one")},
                                                        {2, test::request_of("two")}};
    const auto scatter = [](FakeGroup to, std::span<const RankRequest<EchoRequest>> all,
                            std::optional<Replies>& into) -> OwnedCoroutine {
        into = co_await GroupCall<Replies>(to, EchoMethods::Hasty, all, {.timeout = 1s});
    };
    OwnedCoroutine coroutine = scatter(group, each, result);
    REQUIRE(group->bodies.size() == 2);
    CHECK(group.sent_message<EchoRequest>(0).text() == "one");
    CHECK(group.sent_message<EchoRequest>(1).text() == "two");
    CHECK(group->ranks == std::vector<std::uint32_t>{4, 2});
    CHECK(group->options.timeout == 1s);
    group.complete(outcome_of(Status()));
    CHECK(result.has_value());
    static_assert(RequestsOf<std::vector<RankRequest<EchoRequest>>, EchoRequest>);
    static_assert(!RequestsOf<std::vector<EchoRequest>, EchoRequest>);
    static_assert(!RequestsOf<EchoRequest, EchoRequest>);
}

TEST_CASE("members contribute messages to all_gather, and no message to a barrier") {
    FakeGroup group;
    std::optional<GroupResult<EchoRequest>> brought;
    std::optional<Status> here;
    const auto bring = [](FakeGroup to, auto& into) -> OwnedCoroutine {
        GroupCallOptions options{.timeout = 1s};
        options.reduction.operation = Reduction::Operation::sum;
        into = co_await all_gather(to, "halo", test::request_of("mine"), options);
    };
    OwnedCoroutine meeting = bring(group, brought);
    CHECK(group->method == "halo");
    CHECK(group.sent_message<EchoRequest>().text() == "mine");
    CHECK(group->options.timeout == 1s);
    CHECK(group->options.reduction.operation == Reduction::Operation::none);
    std::vector<RankOutcome> ranks;
    ranks.push_back({0, Status(), bytes_of("\n\6theirs")});
    group.complete(outcome_of(Status(), std::move(ranks)));
    REQUIRE(brought.has_value());
    CHECK((*brought)[0].reply.text() == "theirs");

    const auto arrive = [](FakeGroup to, auto& into) -> OwnedCoroutine {
        into = co_await barrier(to, "dawn");
    };
    OwnedCoroutine waiting = arrive(group, here);
    CHECK(group->method == "dawn");
    CHECK(group->bodies.at(0).empty());
    group.complete(outcome_of(fail(Code::unavailable, "the leader died")));
    REQUIRE(here.has_value());
    CHECK(here->code() == Code::unavailable);
}

// ---- a real group ------------------------------------------------------------------------------

namespace {

struct MergingServer final : merge::v1::MergingService {
    std::uint32_t rank = 0;
    Status Everything(Call&, const merge::v1::Question& in, merge::v1::All& out) override {
        if (in.text() == "disagree") out.mutable_agreed()->set_value(rank);
        out.mutable_sums()->set_u64(rank);
        out.mutable_slowest()->set_rank(rank);
        out.mutable_slowest()->set_ms(rank == 2 ? 90 : 10);
        return {};
    }
    Status Ordered(Call&, const merge::v1::Question& in, merge::v1::Lists& out) override {
        if (in.text() == "odd" && rank % 2 == 1) return fail(Code::not_found, "odd");
        out.set_text(std::to_string(rank) + in.text());
        return {};
    }
    Status List(Call&, const merge::v1::Question& in, merge::v1::Slowest& out) override {
        if (in.text() == "odd" && rank % 2 == 1) return fail(Code::not_found, "odd");
        out.set_ms(in.text().size());
        return {};
    }
};

struct RealGroup {
    static constexpr std::uint32_t n = 5;
    std::vector<test::EchoServer> echoes{n};
    std::vector<MergingServer> merging{n};
    test::SimRig rig;
    std::vector<Runtime*> runtimes;
    Runtime* client = nullptr;
    Group group;

    RealGroup() {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            members.push_back({rank, {"sim://s" + std::to_string(rank)}});
        }
        const GroupView view = GroupView::make("echo", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            Runtime& runtime = rig.add("s" + std::to_string(rank));
            merging[rank].rank = rank;
            REQUIRE(runtime.add(echoes[rank]).ok());
            REQUIRE(runtime.add(merging[rank]).ok());
            REQUIRE(runtime.join(view, rank).ok());
            runtimes.push_back(&runtime);
        }
        client = &rig.add("");
        group = client->group(view).value();
    }

    // Runs `ask` on the client's context until it completes.
    template <class Result>
    Result run(Task<Result> ask) {
        std::optional<Result> result;
        client->spawn(keep(std::move(ask), result));
        REQUIRE(rig.run_until([&] { return result.has_value(); }));
        return *std::move(result);
    }

    template <class Result>
    static Task<void> keep(Task<Result> task, std::optional<Result>& into) {
        into.emplace(co_await task);
    }
};

merge::v1::Question question(std::string text) {
    merge::v1::Question question;
    question.set_text(std::move(text));
    return question;
}

Task<Replies> ask_everywhere(Group group, std::string text) {
    echo::v1::EchoRequestText request;
    request.set_text(text);
    co_return co_await echo::v1::EchoGroupClient(group).Everywhere(request, {.timeout = 1s});
}

Task<MergedResult<merge::v1::All>> ask_all(Group group, std::string text) {
    co_return co_await merge::v1::MergingGroupClient(group).Everything(question(text),
                                                                       {.timeout = 1s});
}

Task<Merged> ask_ordered(Group group, std::string text, GroupCallOptions options) {
    co_return co_await merge::v1::MergingGroupClient(group).Ordered(question(text), options);
}

Task<GroupResult<merge::v1::Slowest>> ask_list(Group group, std::string text) {
    co_return co_await merge::v1::MergingGroupClient(group).List(question(text));
}

Task<Merged> ask_each(Group group) {
    std::vector<RankRequest<merge::v1::Question>> each;
    for (const char* text : {"a", "b", "c", "d", "e"}) {
        each.push_back({static_cast<std::uint32_t>(each.size()), question(text)});
    }
    co_return co_await merge::v1::MergingGroupClient(group).Ordered(each, {.policy = Policy::all});
}

Task<void> meet_all(Group group, std::uint32_t rank, GroupResult<merge::v1::Slowest>& into,
                    int& through) {
    merge::v1::Slowest mine;
    mine.set_rank(rank);
    into = co_await all_gather(group, "slowest", mine, {.timeout = 1s});
    const Status status = co_await barrier(group, "done", {.timeout = 1s});
    through += status.ok();
}

}  // namespace

TEST_CASE("a generated group client reaches every member of a real group") {
    RealGroup real;
    for (const char* text : {"hello", "fail"}) {
        const Replies result = real.run(ask_everywhere(real.group, text));
        REQUIRE(result.size() == RealGroup::n);
        const bool fails = text == std::string("fail");
        CHECK(result.all_ok() == !fails);
        CHECK(result.epoch() == 1);
        CHECK(result.status().code() == (fails ? Code::not_found : Code::ok));
        CHECK(result.first_error().code() == (fails ? Code::not_found : Code::ok));
        for (const auto& answer : result) CHECK(answer.reply.text() == (fails ? "" : text));
    }
    for (const test::EchoServer& server : real.echoes) CHECK(server.handled == 2);
}

TEST_CASE("replies of a real group's members are merged") {
    RealGroup real;
    const auto all = real.run(ask_all(real.group, ""));
    CHECK(all.status().ok());
    CHECK(all.ok_count() == RealGroup::n);
    CHECK(all.reply().sums().u64() == 0 + 1 + 2 + 3 + 4);
    CHECK(all.reply().slowest().rank() == 2);

    // A rank with a reply that can't be merged does not count as a success.
    const auto disagree = real.run(ask_all(real.group, "disagree"));
    CHECK(disagree.status().code() == Code::aborted);
    CHECK(disagree.ok_count() < RealGroup::n);
}

TEST_CASE("a real group's merged replies are in rank order when the .proto requires it") {
    RealGroup real;
    const Merged all = real.run(ask_ordered(real.group, ",", {.policy = Policy::all}));
    CHECK(all.status().ok());
    CHECK(all.reply().text() == "0,1,2,3,4,");
    // The quorum of three is the .proto's; two ranks have failed.
    const Merged odd = real.run(ask_ordered(real.group, "odd", {}));
    CHECK(odd.status().ok());
    CHECK(odd.ok_count() == 3);
    CHECK(odd.reply().text() == "0odd2odd4odd");
    CHECK(real.run(ask_ordered(real.group, "odd", {.policy = Policy::all})).status().code() ==
          Code::not_found);
}

TEST_CASE("a real group's best effort call succeeds with failures of ranks in its outcome") {
    RealGroup real;
    const auto list = real.run(ask_list(real.group, "odd"));
    CHECK(list.status().ok());
    CHECK(list.ok_count() == 3);
    CHECK(list.first_error().code() == Code::not_found);
}

TEST_CASE("each rank of a real group gets its own request") {
    RealGroup real;
    const Merged each = real.run(ask_each(real.group));
    CHECK(each.status().ok());
    CHECK(each.reply().text() == "0a1b2c3d4e");
}

TEST_CASE("every member of a real group gets the contributions of all members") {
    RealGroup real;
    std::vector<GroupResult<merge::v1::Slowest>> brought(RealGroup::n);
    int through = 0;
    for (std::uint32_t rank = 0; rank < RealGroup::n; ++rank) {
        const Group own = real.runtimes[rank]->group(real.group.view()).value();
        real.runtimes[rank]->spawn(meet_all(own, rank, brought[rank], through));
    }
    REQUIRE(real.rig.run_until([&] { return through == static_cast<int>(RealGroup::n); }));
    for (const auto& result : brought) {
        CHECK(result.status().ok());
        REQUIRE(result.size() == RealGroup::n);
        for (std::uint32_t rank = 0; rank < RealGroup::n; ++rank) {
            CHECK(result[rank].reply.rank() == rank);
        }
    }
}

TEST_CASE("a barrier is refused on a runtime that is not a member") {
    RealGroup real;
    const auto arrive = [](Group group) -> Task<Status> {
        co_return co_await barrier(group, "dawn", {.timeout = 1s});
    };
    CHECK(real.run(arrive(real.group)).code() == Code::failed_precondition);
}
