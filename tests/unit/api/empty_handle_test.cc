// Public types when they are empty: default-constructed or moved from.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>

#include <weft/combine.h>
#include <weft/posting.h>
#include <weft/protobuf_group.h>
#include <weft/subgroup.h>

#include "support/child.h"
#include "support/echo.h"

using namespace weft;
using echo::v1::EchoClient;
using echo::v1::EchoGroupClient;
using echo::v1::EchoReply;
using test::EchoPair;
using test::request_of;
using test::SimRig;

namespace empty_handle_test {

constexpr MethodId method("empty.Service/Method");

bool is_refused(const Status& status, std::string_view name) {
    return status.code() == Code::failed_precondition && status.effect() == Effect::none &&
           status.text().find(name) != std::string_view::npos;
}

// Returns what a child wrote to standard error before it aborted; nothing when it did not abort.
std::string last_words(const std::function<void()>& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const int code = test::end_of_child([&] {
        ::dup2(ends[1], STDERR_FILENO);
        body();
        return 0;
    });
    ::close(ends[1]);
    std::string text;
    std::array<char, 512> some;
    for (ssize_t n = 0; (n = ::read(ends[0], some.data(), some.size())) > 0;) {
        text.append(some.data(), static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    return code == -SIGABRT ? text : "";
}

Channel moved_from(Channel channel) {
    Channel kept = std::move(channel);
    return channel;
}

void check_channel(const Channel& channel) {
    const auto name = "weft::Channel";
    int refused = 0;
    const auto call_done = [&](const Status& status, ByteView reply) {
        refused += is_refused(status, name) && reply.empty();
    };
    const auto done = [&](const Status& status) { refused += is_refused(status, name); };
    CHECK(channel.call(method, {}, {}, call_done).generation == 0);
    CHECK(channel.call_with(method, {}, {}, call_done).generation == 0);
    CHECK(channel.get({}, 0, {}, {}, done).generation == 0);
    CHECK(channel.put({}, 0, {}, {}, done).generation == 0);
    EchoClient(channel).Now(request_of("x"), {}, [&](const Status& status, const EchoReply&) {
        refused += is_refused(status, name);
    });
    CHECK(refused == 5);
    CHECK(is_refused(detail::Posting::admit(channel, 1), name));
    detail::Posting::release(channel, 1);
    channel.cancel_call({1, 1});
    channel.cancel_transfer({1, 1});
    channel.abandon_call({1, 1});
    channel.abandon_transfer({1, 1});
    CHECK(detail::Posting::deadline(channel, {}) == never);
    CHECK(detail::Posting::until(channel, never, {.timeout = 3s}).timeout == 3s);
    CHECK_FALSE(channel);
    CHECK_FALSE(channel.on_thread());
    CHECK(channel.uri().empty());
}

Task<int> await_all(Channel channel, Group group) {
    int refused = 0;
    const auto count = [&](const Status& status, std::string_view name) {
        refused += is_refused(status, name);
    };
    count((co_await call(channel, method, {})).status(), "weft::Channel");
    count(co_await get(channel, {}, 0, {}), "weft::Channel");
    count(co_await put(channel, {}, 0, {}), "weft::Channel");
    count((co_await EchoClient(channel).Now(request_of("x"))).status(), "weft::Channel");
    echo::v1::EchoRequestText all;
    count((co_await EchoGroupClient(group).Everywhere(all)).status(), "weft::Group");
    const std::vector<RankRequest<echo::v1::EchoRequestText>> each(2);
    count((co_await EchoGroupClient(group).Everywhere(each)).status(), "weft::Group");
    count((co_await all_gather(group, "all", all)).status(), "weft::Group");
    count(co_await barrier(group, "all"), "weft::Group");
    const Call none;
    count(co_await get(none, {}, 0, {}), "weft::Call");
    count(co_await put(none, {}, 0, {}), "weft::Call");
    co_return refused;
}

Task<int> seven() { co_return 7; }
Task<int> await(Task<int> task) { co_return co_await task; }

}  // namespace empty_handle_test

using namespace empty_handle_test;

TEST_CASE("an empty channel fails each operation at once with a message") {
    check_channel(Channel());
    EchoPair pair;
    check_channel(moved_from(pair.channel));
    CHECK(pair.channel);
}

TEST_CASE("awaited operations on empty handles fail with a message") {
    EchoPair pair;
    CHECK(pair.run(await_all({}, {})) == 10);
    // Also without a context that could resume a coroutine.
    ProtoCall<EchoReply> nowhere = EchoClient(Channel()).Now({});
    CHECK(nowhere.await_ready());
    CHECK(is_refused(nowhere.await_resume().status(), "weft::Channel"));
    GroupCall<Status> neither = barrier(Group(), "all");
    CHECK(neither.await_ready());
    CHECK(is_refused(neither.await_resume(), "weft::Group"));
}

TEST_CASE("an empty group fails each collective at once with a message and no ranks") {
    const Group group;
    int refused = 0;
    const auto done = [&](const GroupOutcome& outcome) {
        refused += is_refused(outcome.status, "weft::Group") && outcome.ranks.empty();
    };
    CHECK(group.collective(method, {}, {}, done) == 0);
    CHECK(group.scatter(method, {}, {}, done) == 0);
    CHECK(group.all_gather("all", {}, {}, done) == 0);
    CHECK(refused == 3);
    group.cancel(1);
    CHECK(is_refused(group.install(group.view()), "weft::Group"));
    CHECK(is_refused(group.channel(0).status(), "weft::Group"));
    CHECK(is_refused(Subgroup::make(group, RankSet{0}).status(), "weft::Group"));
    CHECK(group.view().size() == 0);
    CHECK_FALSE(group);
    CHECK_FALSE(group.on_thread());
}

TEST_CASE("an empty view has no members and is refused for every group") {
    const auto check = [](const GroupView& view) {
        CHECK(view.name().empty());
        CHECK(view.epoch() == 0);
        CHECK(view.members().empty());
        CHECK(view.find(0) == nullptr);
        CHECK_FALSE(GroupView::decode(view.encode()).ok());
        CHECK_FALSE(GroupView::parse(view.to_json()).ok());
        CHECK(evict(view, 0).status().code() == Code::not_found);
        CHECK(drain(view, 0).status().code() == Code::not_found);
        CHECK(admit(view, {.rank = 0, .uris = {"sim://a"}}).status().code() ==
              Code::invalid_argument);
    };
    check({});
    GroupView view = GroupView::make("g", 1, {{.rank = 0, .uris = {"sim://server"}}}).value();
    const GroupView kept = std::move(view);
    check(view);
    SimRig rig;
    Runtime& runtime = rig.add("server");
    CHECK(runtime.group({}).status().code() == Code::invalid_argument);
    CHECK(runtime.join({}, 0).code() == Code::invalid_argument);
    CHECK(runtime.group(kept)->install({}).code() == Code::invalid_argument);
}

TEST_CASE("a moved-from subgroup is unchanged") {
    SimRig rig;
    Runtime& runtime = rig.add("server");
    const GroupView view = GroupView::make("g", 1, {{.rank = 3, .uris = {"sim://server"}}}).value();
    Subgroup some = Subgroup::make(runtime.group(view).value(), RankSet{3}).value();
    const Subgroup moved = std::move(some);
    CHECK(some.size() == 1);
    CHECK(some.rank_in_group(0) == 3);
    CHECK(moved.own_rank(3) == 0);
}

TEST_CASE("an empty region, reference or buffer names no memory") {
    EchoPair pair;
    Region region = pair.client.expose(pair.client.allocate(64).value(), {}).value();
    Region kept = std::move(region);
    CHECK_FALSE(region);
    CHECK(region.ref().key == 0);
    CHECK(kept.ref().key != 0);
    bool fenced = false;
    region.close([&] { fenced = true; });
    CHECK(fenced);
    region = std::move(kept);
    CHECK(kept.ref().key == 0);
    CHECK(region.ref().length == 64);

    CHECK(Region().ref().length == 0);
    std::array<std::byte, RegionRef::wire_bytes> zeros{};
    CHECK(RegionRef::decode(zeros).status().code() == Code::permission_denied);
    const auto transfer = [](Channel channel, RegionRef ref, Buffer local) -> Task<Status> {
        co_return co_await get(channel, ref, 0, local);
    };
    const Buffer local = pair.client.allocate(8).value();
    CHECK(pair.run(transfer(pair.channel, {}, local)).code() == Code::permission_denied);

    CHECK(Buffer().slice(0, 0).size() == 0);
    Buffer buffer = pair.client.allocate(8).value();
    Buffer of_it = std::move(buffer);
    CHECK((buffer.size() == 0 && buffer.data() == nullptr));
    CHECK(of_it.size() == 8);
    buffer = std::move(of_it);
    CHECK((of_it.size() == 0 && !of_it));
    CHECK(buffer.size() == 8);
    CHECK(pair.client.expose({}, {}).status().code() == Code::invalid_argument);
    const Region there = pair.server.expose(pair.server.allocate(8).value(), {}).value();
    CHECK(pair.run(transfer(pair.channel, there.ref(), {})).ok());
}

TEST_CASE("an empty call has no client and no request") {
    Call call;
    CHECK(call.request().empty());
    CHECK(call.deadline() == never);
    CHECK(call.time_left() == Duration::zero());
    CHECK(call.client() == ClientId::none);
    CHECK((call.peer().empty() && call.method().empty()));
    CHECK_FALSE((call.cancelled() || call.draining()));
    CHECK_FALSE(call.stop_token().stop_possible());
    CHECK(call.reply_bytes_max() == 0);
    int refused = 0;
    const auto done = [&](const Status& status) { refused += is_refused(status, "weft::Call"); };
    CHECK(call.get({}, 0, {}, done).generation == 0);
    CHECK(call.put({}, 0, {}, done).generation == 0);
    CHECK(refused == 2);
    call.abandon_transfer({1, 1});
    call.on_cancel([] {});
    call.on_drain([] {});
    call.reply({});
    call.reply_with({});
    call.fail(fail(Code::internal, "nothing"));
    call.fail(std::make_exception_ptr(1));
    CHECK(call.answered());
}

TEST_CASE("an empty task throws std::invalid_argument wherever it is awaited or spawned") {
    EchoPair pair;
    CHECK_THROWS_AS(pair.client.spawn({}), std::invalid_argument);
    RuntimeOptions options;
    options.manual = true;
    Runtime runtime = Runtime::create(options).value();
    CHECK_THROWS_AS(runtime.block_on(Task<int>()), std::invalid_argument);
    CHECK_THROWS_AS(runtime.block_on(await(Task<int>())), std::invalid_argument);
    CHECK_THROWS_AS(runtime.block_on(when_all(Task<int>(), seven())), std::invalid_argument);
    CHECK_THROWS_AS(runtime.block_on(with_timeout(1s, Task<int>())), std::invalid_argument);
    CHECK(runtime.block_on(await(seven())) == 7);
}

TEST_CASE("functions that return no status abort with their name when the handle is empty") {
    CHECK(last_words([] { (void)Channel().executor(); }).find("Channel::executor()") !=
          std::string::npos);
    CHECK(last_words([] { (void)Group().executor(); }).find("Group::executor()") !=
          std::string::npos);
    CHECK(last_words([] {
              Group().on_change([](const MemberChange&) {});
          }).find("Group::on_change()") != std::string::npos);
    SimRig rig;
    Runtime& runtime = rig.add("server");
    const Runtime kept = std::move(runtime);
    const auto names_runtime = [](const std::function<void()>& body) {
        return last_words(body).find("weft::Runtime that was moved from") != std::string::npos;
    };
    CHECK(names_runtime([&] { (void)runtime.connect("sim://server"); }));
    CHECK(names_runtime([&] { (void)runtime.run(); }));
    CHECK(names_runtime([&] { runtime.spawn([]() -> Task<void> { co_return; }()); }));
    CHECK(names_runtime([&] { (void)runtime.block_on(seven()); }));
    CHECK(names_runtime([&] { (void)runtime.addresses(); }));
}
