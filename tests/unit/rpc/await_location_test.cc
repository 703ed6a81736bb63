// The places where an awaited operation may live, and the arguments that are safe there.
#include <array>
#include <memory>
#include <span>
#include <vector>

#include <weft/protobuf_group.h>
#include <weft/sleep.h>

#include "merge.weft.h"
#include "support/echo.h"

using namespace weft;
using echo::v1::EchoClient;
using echo::v1::EchoGroupClient;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using echo::v1::EchoRequestText;
using test::EchoPair;
using test::request_of;

namespace await_location_test {

// ---- every argument of every awaitable ----------------------------------------------------------

template <class... Arguments>
constexpr bool are_safe = (AwaitSafeArgument<std::remove_cvref_t<Arguments>> && ...);

template <class Result, class... Arguments>
constexpr bool takes_safe(Result (*)(Arguments...)) {
    return are_safe<Arguments...>;
}
template <class Result, class Stub, class... Arguments>
constexpr bool takes_safe(Result (Stub::*)(Arguments...) const) {
    return are_safe<Arguments...>;
}

using Transfer = TransferOperation(const Channel&, const RegionRef&, std::uint64_t, Buffer,
                                   CallOptions);
using TransferOfCall = TransferOperation(const Call&, const RegionRef&, std::uint64_t, Buffer);
static_assert(takes_safe(static_cast<Transfer*>(&get)));
static_assert(takes_safe(static_cast<Transfer*>(&put)));
static_assert(takes_safe(static_cast<TransferOfCall*>(&get)));
static_assert(takes_safe(static_cast<TransferOfCall*>(&put)));
static_assert(takes_safe(
    static_cast<CallOperation (*)(const Channel&, const MethodId&, ByteView, CallOptions)>(&call)));
static_assert(takes_safe(&sleep_for));
static_assert(takes_safe(&barrier<Group>));
static_assert(takes_safe(&all_gather<EchoRequest, Group>));
static_assert(takes_safe(
    static_cast<ProtoCall<EchoReply> (EchoClient::*)(const EchoRequest&, CallOptions) const>(
        &EchoClient::Now)));
static_assert(
    takes_safe(static_cast<GroupCall<GroupResult<EchoReply>> (EchoGroupClient::*)(
                   const EchoRequestText&, GroupCallOptions) const>(&EchoGroupClient::Everywhere)));
static_assert(are_safe<Task<int>, std::vector<Task<int>>>);  // From weft/combine.h.

// Lists of requests may have any type; temporaries of aggregate types are refused.
using Each = std::array<RankRequest<EchoRequest>, 2>;
struct OwnList : std::vector<RankRequest<EchoRequest>> {};
static_assert(!RequestsOf<Each, EchoRequest> && !RequestsOf<const Each, EchoRequest>);
static_assert(!RequestsOf<OwnList, EchoRequest>);
static_assert(RequestsOf<Each&, EchoRequest> && RequestsOf<const Each&, EchoRequest>);
static_assert(RequestsOf<OwnList&, EchoRequest>);
static_assert(RequestsOf<std::vector<RankRequest<EchoRequest>>, EchoRequest>);
static_assert(RequestsOf<std::span<const RankRequest<EchoRequest>>, EchoRequest>);

// ---- where an operation may live ----------------------------------------------------------------

template <class Operation>
constexpr bool stays =
    !std::is_copy_constructible_v<Operation> && !std::is_move_constructible_v<Operation> &&
    !std::is_copy_assignable_v<Operation> && !std::is_move_assignable_v<Operation>;
struct Nothing {
    void operator()() const {}
};
static_assert(stays<CallOperation> && stays<TransferOperation> && stays<ProtoCall<EchoReply>> &&
              stays<GroupCall<Status>> && stays<Sleep> && stays<decltype(offload(Nothing()))>);

struct Kept {
    explicit Kept(const EchoClient& stub) : call(stub.Later(request_of("kept"))) {}
    ProtoCall<EchoReply> call;
};
ProtoCall<EchoReply>& call_of(Kept& kept) { return kept.call; }

template <class Operation, class Make>
std::unique_ptr<Operation> make(Make&& make) {
    return std::unique_ptr<Operation>(new Operation(make()));
}

Task<int> await_everywhere(Channel channel) {
    const EchoClient stub(channel);
    int right = 0;
    const auto later = [&] { return stub.Later(request_of("x")); };
    const auto by_pointer = make<ProtoCall<EchoReply>>(later);
    if ((co_await *by_pointer).ok()) ++right;
    Kept kept(stub), given(stub);
    if ((co_await kept.call).ok()) ++right;
    if ((co_await call_of(given))->text() == "kept") ++right;
    std::array<ProtoCall<EchoReply>, 2> both{later(), later()};
    if ((co_await both[1]).ok() && (co_await both[0]).ok()) right += 2;
    auto named = later();
    if ((co_await std::move(named)).ok()) ++right;
    std::vector<std::unique_ptr<ProtoCall<EchoReply>>> many;
    for (int i = 0; i < 3; ++i) many.push_back(make<ProtoCall<EchoReply>>(later));
    for (const auto& one : many) right += (co_await *one).ok();
    const auto sleep = make<Sleep>([] { return sleep_for(1ms); });
    if ((co_await *sleep).ok()) ++right;
    const auto raw = make<CallOperation>(
        [&] { return call(channel, MethodId("echo.v1.Echo/Now"), ByteView()); });
    if ((co_await *raw).ok()) ++right;
    const auto transfer = make<TransferOperation>([&] { return get(channel, {}, 0, {}); });
    if ((co_await *transfer).code() == Code::permission_denied) ++right;
    const auto three = [] { return 3; };
    auto work = offload(three);
    auto* const there = &work;
    right += co_await *there;
    co_return right;
}

// g++ 12 destroys the elements of such a list twice where they are aggregates.
Task<Code> await_requests_in_place(Group group) {
    EchoRequestText in;
    in.set_text(std::string(100, 'x'));
    const EchoGroupClient client(group);
    const auto result =
        co_await client.Everywhere(std::vector<RankRequest<EchoRequestText>>(2, {7u, in}));
    co_return result.status().code();
}

}  // namespace await_location_test

TEST_CASE("requests that are made inside a co_await expression are destroyed once") {
    EchoPair pair;
    CHECK(pair.run(await_location_test::await_requests_in_place(Group())) ==
          Code::failed_precondition);
}

TEST_CASE("an operation may be awaited by pointer, as a member and in a container") {
    EchoPair pair;
    CHECK(pair.run(await_location_test::await_everywhere(pair.channel)) == 15);
}

TEST_CASE("value() of a constant result returns a reference") {
    const Result<std::string> good = std::string("text");
    CHECK(good.value() == "text");
    static_assert(std::is_same_v<decltype(good.value()), const std::string&>);
    const Result<std::string> bad = fail(Code::not_found, "none");
    CHECK_THROWS_AS(bad.value(), BadResult);
}
