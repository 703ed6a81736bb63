// Collectives with completion tokens: over a stand-in of weft::Group, and over a real one.
#include <thread>
#include <vector>

#include "merge.weft.h"
#include "support/asio_pair.h"
#include "support/fake_group.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using merge::v1::MergingMethods;

namespace {

using Replies = GroupResult<EchoReply>;

// Operands of co_await are no aggregates, because g++ 12 destroys aggregates there twice.
template <class Token>
using ReturnedOfGroup = decltype(std::declval<const merge::v1::MergingGroupClient&>().Ordered(
    {}, {}, std::declval<Token>()));
static_assert(!std::is_aggregate_v<ReturnedOfGroup<asio::use_awaitable_t<>>>);
static_assert(!std::is_aggregate_v<ReturnedOfGroup<asio::deferred_t>>);

// The completions: their number and the last status.
struct Came {
    int times = 0;
    Status status;
    auto handler() {
        return [this](const Replies& result) {
            ++times;
            status = result.status();
        };
    }
    auto handler(asio::cancellation_signal& signal) {
        return asio::bind_cancellation_slot(signal.slot(), handler());
    }
};

GroupOutcome outcome_of(Status status) {
    GroupOutcome outcome;
    outcome.status = std::move(status);
    return outcome;
}

template <class Token>
decltype(auto) ask(const FakeGroup& group, Token&& token, const GroupCallOptions& options = {}) {
    return collective<Replies>(group, EchoMethods::Hasty, request_of("all"), options,
                               std::forward<Token>(token));
}

}  // namespace

TEST_CASE("asio: a signal cancels a collective") {
    FakeGroup group;
    asio::io_context io;
    asio::cancellation_signal signal;
    Came came;
    ask(group, asio::bind_executor(io, came.handler(signal)));
    signal.emit(asio::cancellation_type::none);
    CHECK(group->cancelled == 0);
    signal.emit(asio::cancellation_type::partial);
    CHECK(group->cancelled == 1);
    CHECK(came.times == 0);
    group.complete(outcome_of(fail(Code::cancelled, "as wished")));
    io.run();
    CHECK(came.times == 1);
    CHECK(came.status.code() == Code::cancelled);
    signal.emit(asio::cancellation_type::total);  // Nothing is left to cancel.
    CHECK(group->cancelled == 1);
}

TEST_CASE("asio: a collective that completes inside its start leaves its slot empty") {
    FakeGroup group;
    group->during_start = [&group] {
        std::thread([&group] { group.complete(GroupOutcome()); }).join();
    };
    asio::cancellation_signal signal;
    Came came;
    ask(group, came.handler(signal));
    CHECK(came.times == 1);
    CHECK_FALSE(signal.slot().has_handler());
}

TEST_CASE("asio: a signal from a collective's own method cancels it once it has begun") {
    FakeGroup group;
    asio::io_context io;
    asio::cancellation_signal signal;
    group->during_start = [&] {
        signal.emit(asio::cancellation_type::total);
        CHECK(group->cancelled == 0);
    };
    Came came;
    ask(group, asio::bind_executor(io, came.handler(signal)));
    CHECK(group->cancelled == 1);
    group.complete(outcome_of(Status()));
    io.run();
    CHECK(came.times == 1);
}

TEST_CASE("asio: a signal does nothing when its collective has no id") {
    FakeGroup group;
    group->gives_id = false;
    asio::io_context io;
    asio::cancellation_signal signal;
    Came came;
    ask(group, asio::bind_executor(io, came.handler(signal)));
    signal.emit(asio::cancellation_type::terminal);
    CHECK(group->cancelled == 0);
    group.complete(outcome_of(Status()));
    io.run();
    CHECK(came.times == 1);
    CHECK(came.status.ok());
}

TEST_CASE("asio: a deferred collective keeps copies of its arguments") {
    FakeGroup group;
    asio::io_context io;
    Came came;
    const auto later = [&] {
        const RankSet some{1, 2};
        return ask(group, asio::deferred, {.timeout = 1s, .include = &some});
    };
    auto deferred = later();
    CHECK_FALSE(group->done);
    std::move(deferred)(asio::bind_executor(io, came.handler()));
    CHECK(group.sent_message<EchoRequest>().text() == "all");
    CHECK(group->options.timeout == 1s);
    REQUIRE(group->include.has_value());
    CHECK(group->include->contains(2));
    group.complete(outcome_of(Status()));
    io.run();
    CHECK(came.times == 1);
}

TEST_CASE("asio: a deferred scatter keeps its requests") {
    FakeGroup group;
    asio::io_context io;
    Came came;
    const auto later = [&] {
        const std::vector<RankRequest<EchoRequest>> each = {{0, request_of("one")},
                                                            {1, request_of("two")}};
        const RankSet out{7};
        return scatter<Replies>(group, EchoMethods::Hasty,
                                std::span<const RankRequest<EchoRequest>>(each), {.exclude = &out},
                                asio::deferred);
    };
    auto deferred = later();
    std::move(deferred)(asio::bind_executor(io, came.handler()));
    REQUIRE(group->bodies.size() == 2);
    CHECK(group.sent_message<EchoRequest>(1).text() == "two");
    CHECK(group->options.exclude != nullptr);
    group.complete(outcome_of(Status()));
    io.run();
    CHECK(came.times == 1);
}

TEST_CASE("asio: a merged collective completes with its one reply") {
    FakeGroup group;
    asio::io_context io;
    using Merged = MergedResult<merge::v1::Lists>;
    auto later = collective<Merged>(group, MergingMethods::Ordered, merge::v1::Question(), {},
                                    asio::use_future);
    CHECK(group->options.merge == MergingMethods::Ordered.merge);
    GroupOutcome outcome;
    outcome.epoch = 4;
    const ByteView merged = as_bytes("\n\2ab");
    outcome.merged.assign(merged.begin(), merged.end());
    group.complete(std::move(outcome));
    const Merged result = later.get();
    CHECK(result.status().ok());
    CHECK(result.epoch() == 4);
    CHECK(result.reply().text() == "ab");
}

TEST_CASE("asio: a signal cancels a collective of a real group and its handlers") {
    static constexpr ProtoMethod<EchoRequest, EchoReply> hold{.id = MethodId("raw.Raw/HoldAll"),
                                                              .collective = true};
    struct Holder final : Service {
        std::vector<Call> held;
        int told = 0;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(hold.id,
                          [this](Call call) {
                              call.on_cancel([this] { ++told; });
                              held.push_back(std::move(call));
                          },
                          {.collective = true});
        }
    } holder;
    const bool starts_elsewhere = GENERATE(false, true);
    AsioPair pair;
    REQUIRE(pair.server.add(holder).ok());
    const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
    REQUIRE(pair.server.join(view, 0).ok());
    const Group group = pair.client.group(view).value();
    asio::cancellation_signal signal;
    Came came;
    const auto start = [&] {
        collective<Replies>(group, hold, request_of("x"), {.timeout = 20s}, came.handler(signal));
    };
    if (starts_elsewhere) {
        std::thread(start).join();
    } else {
        start();
    }
    REQUIRE(pair.run_until([&] { return holder.held.size() == 1; }));
    signal.emit(asio::cancellation_type::total);
    REQUIRE(pair.run_until([&] { return came.times > 0; }));
    CHECK(came.status.code() == Code::cancelled);
    pair.run_until_idle();
    CHECK(came.times == 1);
    CHECK(holder.told == 1);
    holder.held.clear();
    pair.rig.runtimes.clear();
}
