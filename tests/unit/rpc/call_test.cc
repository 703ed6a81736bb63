#include <thread>

#include "rpc/channel_impl.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("a call is answered, and not before a later turn") {
    Pair pair;
    CallOutcome outcome;
    pair.channel.call(echo_method, as_bytes("hello"), {}, outcome.done());
    CHECK(outcome.completions == 0);
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.ok());
    CHECK(outcome.reply == "hello");
}

TEST_CASE("an unknown method is UNIMPLEMENTED with no effect") {
    Pair pair;
    CallOutcome outcome;
    pair.channel.call(MethodId("test.Echo/Nothing"), {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.code() == Code::unimplemented);
    CHECK(outcome.status.effect() == Effect::none);
}

TEST_CASE("a call names its method and its client, however long their names") {
    const std::string name = "test.AServiceWithAName/ThatIsLongerThanAStringKeepsInside";
    struct Named final : Service {
        explicit Named(const std::string& of) : method(of) {}
        MethodId method;
        std::vector<Call> held;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(method, [this](Call call) { held.push_back(std::move(call)); });
        }
    } service(name);
    Pair pair;
    REQUIRE(pair.server.add(service).ok());
    Runtime& client = pair.rig.add("a-client-with-a-name-that-is-long");
    Channel channel = client.connect("sim://server").value();
    CallOutcome outcome;
    channel.call(service.method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return !service.held.empty(); }));
    const std::string_view method = service.held[0].method();
    const std::string peer = service.held[0].peer();
    CHECK(method == name);
    CHECK(peer == "sim://a-client-with-a-name-that-is-long");
    service.held[0].reply({});
    CHECK(service.held[0].method().empty());
    CHECK(service.held[0].peer().empty());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
}

TEST_CASE("a call's ClientId identifies the connection, not the name that the client sends") {
    Lost lost;
    RawPeer one(lost.rig), two(lost.rig);
    std::vector<Call>& held = lost.service.held;
    lost.service.hold = true;
    const auto client_of = [&](RawPeer& raw) {
        rpc::RequestHeader request;
        request.call = {static_cast<std::uint32_t>(held.size()), 1};
        request.remaining_us = 50'000;
        request.method = echo_method.hash;
        REQUIRE(raw.send(frame_of(request, as_bytes("x"))));
        raw.wait();
        return held.back().client();
    };
    one.connect("server");
    two.connect("server");
    const ClientId first = client_of(one);
    CHECK(first != ClientId::none);
    CHECK(client_of(one) == first);
    const ClientId second = client_of(two);
    CHECK(held[0].peer() == held[2].peer());
    CHECK(second != first);

    REQUIRE(one.send_as_is(frame_of(rpc::SessionEndFrame())));
    one.wait();
    CHECK(held[0].client() == ClientId::none);
    one.close();
    one.wait();
    one.connect("server");
    CHECK(client_of(one) != first);
}

TEST_CASE("a call's client is the same when its session goes on over another connection") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome before, after;
    lost.channel.call(echo_method, {}, {}, before.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
    const ClientId client = lost.service.held[0].client();
    CHECK(client != ClientId::none);
    lost.lose_connection();
    lost.channel.call(echo_method, {}, {}, after.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 2; }));
    CHECK(lost.served().resumed == 1);
    CHECK(lost.service.held[0].client() == client);
    CHECK(lost.service.held[1].client() == client);
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
}

TEST_CASE("a refused connection is UNAVAILABLE with no effect") {
    Pair pair;
    Channel absent = pair.client.connect("sim://absent").value();
    CallOutcome outcome;
    absent.call(echo_method, {}, {}, outcome.done());
    CHECK(outcome.completions == 0);
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }, 3s));
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::none);
    CHECK(outcome.status.peer() == "sim://absent");
}

TEST_CASE("a deadline completes the call, reaches the handler, and the late reply is counted") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome outcome;
    pair.channel.call(echo_method, {}, {.timeout = 10ms}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.code() == Code::deadline_exceeded);
    CHECK(outcome.status.effect() == Effect::unknown);
    CHECK(outcome.status.stage() == Stage::sent);
    pair.rig.run_for(1ms);
    REQUIRE(pair.service.held.size() == 1);
    CHECK(pair.service.held[0].cancelled());
    pair.service.held[0].reply(as_bytes("late"));
    pair.service.held.clear();
    pair.rig.run_for(1ms);
    CHECK(outcome.completions == 1);
    CHECK(node_of(pair.client).client.counters().late_replies == 1);
}

TEST_CASE("cancel completes with CANCELLED and reaches the handler") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome outcome;
    const OperationId id = pair.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    bool noticed = false;
    pair.service.held[0].on_cancel([&] { noticed = true; });
    pair.channel.cancel_call(id);
    CHECK(outcome.completions == 0);
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0 && noticed; }));
    CHECK(outcome.status.code() == Code::cancelled);
    pair.service.held.clear();
    pair.rig.run_for(1ms);
    CHECK(outcome.completions == 1);
}

TEST_CASE("every held call completes once with UNAVAILABLE when the server dies") {
    Pair pair;
    pair.service.hold = true;
    std::vector<CallOutcome> outcomes(1000);
    for (CallOutcome& outcome : outcomes)
        pair.channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return pair.service.held.size() == 1000; }));
    pair.rig.kill("server");
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }, 3s));
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        REQUIRE(outcome.status.code() == Code::unavailable);
        REQUIRE(outcome.status.effect() == Effect::unknown);
    }
    pair.service.held.clear();
}

TEST_CASE("a handler that ends without a reply answers INTERNAL") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome outcome;
    pair.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    pair.service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.code() == Code::internal);
    CHECK(outcome.status.effect() == Effect::unknown);
}

TEST_CASE("shutdown completes calls in flight with CANCELLED") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome outcome;
    pair.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    pair.rig.runtimes.pop_back();
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::cancelled);
    pair.service.held.clear();
}

TEST_CASE("a channel that outlives its runtime completes its calls with CANCELLED") {
    Pair pair;
    Channel channel = pair.channel;
    pair.channel = Channel();
    std::weak_ptr<api::RuntimeImpl> impl = impl_of(pair.client).weak_from_this();
    pair.rig.runtimes.pop_back();
    CallOutcome here, there;
    channel.call(echo_method, {}, {}, here.done());
    std::thread([&] { channel.call(echo_method, as_bytes("x"), {}, there.done()); }).join();
    CHECK(here.completions == 1);
    CHECK(here.status.code() == Code::cancelled);
    CHECK(there.completions == 1);
    CHECK(there.status.code() == Code::cancelled);
    channel = Channel();
    CHECK(impl.expired());
}

TEST_CASE("the queue to a connecting peer is bounded, and further calls are refused at once") {
    Pair pair;
    std::vector<CallOutcome> outcomes(20000);
    for (CallOutcome& outcome : outcomes) pair.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }));
    int ok = 0, refused = 0;
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        if (outcome.status.ok()) ++ok;
        if (outcome.status.code() == Code::resource_exhausted &&
            outcome.status.effect() == Effect::none) {
            ++refused;
        }
    }
    CHECK(ok == 16384);
    CHECK(ok + refused == 20000);
}

TEST_CASE("a call made long after the last turn gets its deadline from the current time") {
    Pair pair;
    CallOutcome first, second;
    pair.channel.call(echo_method, {}, {}, first.done());
    REQUIRE(pair.rig.run_until([&] { return first.completions == 1; }));
    pair.service.hold = true;
    pair.rig.clock->advance(10s);
    const TimePoint end = pair.rig.clock->now() + 500ms;
    pair.channel.call(echo_method, {}, {.timeout = 500ms}, second.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    CHECK(pair.service.held[0].deadline() <= end + 1ms);
    pair.service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return second.completions > 0; }));
}

TEST_CASE("a call that ended with its channel does not release the next channel's peer") {
    Echo other_service;
    Pair pair;
    Runtime& other = pair.rig.add("other");
    REQUIRE(other.add(other_service).ok());
    pair.service.hold = other_service.hold = true;
    CallOutcome first, second;
    pair.channel.call(echo_method, {}, {}, first.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    Channel next;
    pair.channel = Channel();  // Posts the channel's end; the next channel takes its slot in the
                               // same turn.
    pair.client.executor().post([&] {
        next = pair.client.connect("sim://other").value();
        next.call(echo_method, {}, {}, second.done());
    });
    REQUIRE(pair.rig.run_until([&] { return !other_service.held.empty(); }));
    CHECK(first.completions == 1);
    CHECK(second.completions == 0);
    CHECK(core::Context::find(rpc::ChannelImpl::of(next)->peer())->interest == 1);
    pair.service.held.clear();
    other_service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return second.completions > 0; }));
}

TEST_CASE("a handler that fails with an invalid code leaves the channel usable") {
    struct Cast final : Service {
        MethodId method = MethodId("test.Cast/Errno");
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(
                method, [](Call call) { call.fail(fail(static_cast<Code>(98), "bind: in use")); });
        }
    } service;
    Pair pair;
    REQUIRE(pair.server.add(service).ok());
    CallOutcome outcome, next;
    pair.channel.call(service.method, {}, {}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.code() == Code::unknown);
    CHECK(outcome.status.text() == "code 98 is none of weft::Code: bind: in use");
    pair.channel.call(echo_method, as_bytes("x"), {}, next.done());
    REQUIRE(pair.rig.run_until([&] { return next.completions > 0; }));
    CHECK(next.status.ok());
}

TEST_CASE("a call fails with INTERNAL and a log line when its handler gives no reason") {
    struct Failing final : Service {
        Function<void(Call)> handle;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Failing/Fail"), [this](Call call) {
                handle(std::move(call));
                ++handled;
            });
        }
        int handled = 0;
    } service;
    std::vector<std::string> lines;
    RuntimeOptions options;
    options.log_sink = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
    SimRig rig;
    REQUIRE(rig.add("server", options).add(service).ok());
    Runtime& near = *rig.runtimes[0];
    Runtime& far = rig.add("");
    const auto fails = [&](Runtime& client, Function<void(Call&)> how) {
        service.handle = [&how](Call call) { how(call); };
        const Channel channel = client.connect("sim://server").value();
        CallOutcome outcome;
        channel.call(MethodId("test.Failing/Fail"), {}, {}, outcome.done());
        REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
        return outcome.status;
    };
    for (Runtime* const client : {&far, &near}) {
        lines.clear();
        const Status ok = fails(*client, [](Call& call) { call.fail(Status()); });
        CHECK(ok.code() == Code::internal);
        CHECK(ok.text() == "a failure without a reason");
        CHECK(ok.effect() == Effect::applied);
        REQUIRE(lines.size() == 1);
        CHECK(lines[0].find("test.Failing/Fail: Call::fail() was given a status that is OK") !=
              std::string::npos);

        const Status none = fails(*client, [](Call& call) { call.fail(std::exception_ptr()); });
        CHECK(none.code() == Code::internal);
        CHECK(none.text() == "a failure without a reason");
        CHECK(none.effect() == Effect::unknown);
        REQUIRE(lines.size() == 2);
        CHECK(lines[1].find("given no exception") != std::string::npos);

        const auto refuse = [](Call& call) { call.fail(rejected(Status())); };
        CHECK(fails(*client, refuse).code() == Code::internal);
        const auto reject = [](Call& call) { call.fail(rejected(Code::ok, "y")); };
        const Status rejection = fails(*client, reject);
        CHECK(rejection.code() == Code::internal);
        CHECK(rejection.effect() == Effect::none);
        CHECK(fails(*client, [](Call& call) { call.reply({}); }).ok());
    }
    Call answered;
    answered.fail(Status());
    answered.fail(std::exception_ptr());
}
