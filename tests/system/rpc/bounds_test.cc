// Misuse of calls, and the behaviour at each bound.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include <weft/await.h>

#include "rpc/channel_impl.h"
#include "support/raw_echo.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

// Runs `doomed` in a child process; true when that ended by SIGABRT.
template <class Doomed>
static bool aborts(Doomed&& doomed) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        // Catch would report the signal as its own failure.
        signal(SIGABRT, SIG_DFL);
        [[maybe_unused]] const auto quiet = freopen("/dev/null", "w", stderr);
        doomed();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_CASE("a request that waited for its connection is checked against the limit of the peer") {
    // No transport of weft has a limit below 16 KiB, but a peer may announce one.
    const std::size_t eager = 8 * 1024;
    Echo service;
    SimRig rig(1, {.eager_bytes_max = eager});
    REQUIRE(rig.add("server").add(service).ok());
    Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome over, exact;
    channel.call(echo_method, std::vector<std::byte>(eager + 1), {}, over.done());
    channel.call(echo_method, std::vector<std::byte>(eager), {}, exact.done());
    REQUIRE(rig.run_until([&] { return over.completions > 0 && exact.completions > 0; }));
    CHECK(over.status.code() == Code::invalid_argument);
    CHECK(over.status.effect() == Effect::none);
    CHECK(std::string(over.status.text()).find("BulkRef") != std::string::npos);
    CHECK(exact.status.ok());
    CHECK(service.handled == 1);
}

TEST_CASE("a queued reply is checked against the message limit, not against that of calls") {
    Echo service;
    SimRig rig(1, {.eager_bytes_max = 64, .connection_messages_max = 4, .joins_commits = false});
    service.hold = true;
    REQUIRE(rig.add("server").add(service).ok());
    Channel channel = rig.add("").connect("sim://server").value();
    std::vector<CallOutcome> outcomes(20);
    for (CallOutcome& outcome : outcomes)
        channel.call(echo_method, {}, {.timeout = 1s}, outcome.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == outcomes.size(); }));
    const std::string reason(500, 'r');
    for (Call& call : service.held) call.fail(fail(Code::not_found, reason));
    service.held.clear();
    rig.run_for(2s);
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        REQUIRE(outcome.status.code() == Code::not_found);
        REQUIRE(outcome.status.text() == reason);
    }
}

TEST_CASE("listen fails when a runtime has 64 addresses") {
    Echo service;
    SimRig rig;
    Runtime& many = rig.add("");
    for (std::size_t i = 0; i < core::endpoints_max; ++i) {
        REQUIRE(many.listen("sim://name-" + std::to_string(i)).ok());
    }
    const Status status = many.listen("sim://one-too-many");
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(status.text() ==
          "can't listen on sim://one-too-many: a runtime has at most 64 addresses and transports");
    REQUIRE(many.add(service).ok());
    CallOutcome outcome;
    Channel channel = rig.add("").connect("sim://name-63").value();
    channel.call(echo_method, as_bytes("the last"), {}, outcome.done());
    REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(outcome.status.ok());
}

TEST_CASE("calls that end while they wait leave the queue at once, in any order") {
    Pair pair;
    std::vector<CallOutcome> outcomes(1000);
    std::vector<OperationId> ids;
    for (CallOutcome& outcome : outcomes) {
        ids.push_back(
            pair.channel.call(echo_method, as_bytes("x"), {.timeout = 5s}, outcome.done()));
    }
    const core::Peer& peer = *core::Context::find(rpc::ChannelImpl::of(pair.channel)->peer());
    REQUIRE(rpc::Client::waiting(peer) == 1000);
    std::set<std::size_t> ended;
    for (int i = 0; i < 600; ++i) ended.insert(pair.rig.random->next() % 1000);
    for (const std::size_t at : ended) pair.channel.cancel_call(ids[at]);
    CHECK(rpc::Client::waiting(peer) == 1000 - ended.size());
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }));
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        REQUIRE(outcomes[i].completions == 1);
        REQUIRE(outcomes[i].status.code() == (ended.count(i) ? Code::cancelled : Code::ok));
    }
    CHECK(pair.service.handled == 1000 - ended.size());
}

TEST_CASE("calls that expire in the queue leave it with effect none") {
    Pair pair;
    Channel dead = pair.client.connect("sim://server").value();
    pair.rig.kill("server");
    std::vector<CallOutcome> outcomes(100);
    for (CallOutcome& outcome : outcomes)
        dead.call(echo_method, {}, {.timeout = 1ms}, outcome.done());
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }));
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        REQUIRE(outcome.status.effect() == Effect::none);
    }
    CHECK(rpc::Client::waiting(*core::Context::find(rpc::ChannelImpl::of(dead)->peer())) == 0);
}

TEST_CASE("a call with a negative timeout fails, one with the longest timeout succeeds") {
    Pair pair;
    CallOutcome least, negative, most;
    pair.channel.call(echo_method, {}, {.timeout = Duration::min()}, least.done());
    pair.channel.call(echo_method, {}, {.timeout = -1ns}, negative.done());
    pair.channel.call(echo_method, {}, {.timeout = Duration::max()}, most.done());
    REQUIRE(pair.rig.run_until([&] { return most.completions > 0; }));
    pair.rig.run_for(10ms);
    CHECK(most.status.ok());
    CHECK(least.completions == 1);
    CHECK_FALSE(least.status.ok());
    CHECK(negative.completions == 1);
    CHECK_FALSE(negative.status.ok());
    CHECK(pair.service.handled == 1);
}

// On a clock that advances within a turn and over an established connection: a message would be
// sent.
TEST_CASE("a call or transfer with a negative timeout sends nothing and is DEADLINE_EXCEEDED") {
    const char* scheme = GENERATE("sm", "tcp");
    Echo service;
    Runtime server = Runtime::create().value();
    const std::string uri =
        scheme == std::string("sm") ? "sm://" + unique_name("over") : "tcp://127.0.0.1:0";
    REQUIRE(server.serve(service, uri).ok());
    const Buffer theirs = server.allocate(64).value();
    std::memset(theirs.data(), 7, theirs.size());
    const Region region = server.expose(theirs, {.access = Access::read_write}).value();
    Runtime client = Runtime::create().value();
    const Channel channel = client.connect(server.addresses().at(0)).value();
    struct {
        Task<void> operator()(Channel to, RegionRef ref, Buffer local) {
            const Result<std::vector<std::byte>> first = co_await call(to, echo_method, {});
            CHECK(first.ok());
            for (const Duration timeout : {Duration(-1), Duration(-1s), Duration::min()}) {
                const CallOptions over{.timeout = timeout};
                std::vector<Status> ends;
                const Result<std::vector<std::byte>> called =
                    co_await call(to, echo_method, {}, over);
                ends.push_back(called.status());
                ends.push_back(co_await put(to, ref, 0, local, over));
                ends.push_back(co_await get(to, ref, 0, local, over));
                for (const Status& end : ends) {
                    CHECK(end.code() == Code::deadline_exceeded);
                    CHECK(end.effect() == Effect::none);
                }
            }
        }
    } body;
    const Buffer local = client.allocate(64).value();
    std::memset(local.data(), 9, local.size());
    client.block_on(body(channel, region.ref(), local));
    CHECK(static_cast<int>(theirs.bytes()[0]) == 7);
    CHECK(static_cast<int>(local.bytes()[0]) == 9);
    CHECK(service.handled == 1);
}

TEST_CASE("submissions of other threads are bounded, and a turn frees their room") {
    Pair pair;
    const auto& bound = node_of(pair.client).context;
    const std::vector<std::byte> body(1 << 20);
    const std::size_t calls = bound.submitted_bytes_max() / body.size() + 5;
    std::vector<CallOutcome> outcomes(calls), again(1);
    CallOutcome huge;
    std::thread([&] {
        for (CallOutcome& outcome : outcomes)
            pair.channel.call(echo_method, body, {}, outcome.done());
        // Writing it aborts: it must be refused before memory is allocated for it.
        const BodyWriter never_written{bound.submitted_bytes_max() + 1, nullptr,
                                       [](void*, std::byte*) { std::abort(); }};
        pair.channel.call_with(echo_method, never_written, {}, huge.done());
    }).join();
    REQUIRE(pair.rig.run_until([&] { return huge.completions > 0; }));
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }));
    std::size_t refused = 0;
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        if (std::string(outcome.status.text()).find("handed over") == std::string::npos) continue;
        CHECK(outcome.status.code() == Code::resource_exhausted);
        CHECK(outcome.status.effect() == Effect::none);
        ++refused;
    }
    CHECK(refused == 6);
    CHECK(huge.status.code() == Code::invalid_argument);
    std::thread([&] { pair.channel.call(echo_method, {}, {}, again[0].done()); }).join();
    REQUIRE(pair.rig.run_until([&] { return again[0].completions > 0; }));
    CHECK(again[0].status.ok());
}

template <class Count>
static Task<> ask(Channel channel, const std::vector<std::byte>& body, const Count& count) {
    const auto reply = co_await weft::call(channel, echo_method, body, {});
    count(reply.status());
}

TEST_CASE("collectives, transfers and awaited calls of other threads are bounded like calls") {
    Pair pair;
    auto& context = node_of(pair.client).context;
    const std::size_t room = context.submitted_bytes_max();
    const GroupView view = GroupView::make("one", 1, {{0, {"sim://server"}}}).value();
    const Group group = pair.client.group(view).value();
    const std::vector<std::byte> body(1 << 20);
    const std::size_t fits = room / (body.size() + core::Context::submission_overhead_bytes);
    const std::size_t calls = fits + 7;
    std::size_t completions = 0, full = 0;
    const auto count = [&](const Status& status) {
        ++completions;
        full += status.text().find("handed over") != std::string_view::npos &&
                status.code() == Code::resource_exhausted;
    };
    const auto run_all = [&](std::size_t all) {
        REQUIRE(pair.rig.run_until([&] { return completions == all; }));
        return std::exchange(completions, 0) - std::exchange(full, 0);
    };
    SECTION("collectives") {
        std::thread([&] {
            for (std::size_t i = 0; i < calls; ++i) {
                group.collective(echo_method, BodyWriter::of(body), {},
                                 [&](const GroupOutcome& outcome) { count(outcome.status); });
            }
        }).join();
        CHECK(run_all(calls) == fits);
    }
    SECTION("transfers") {
        const std::size_t records = room / core::Context::submission_overhead_bytes;
        std::thread([&] {
            for (std::size_t i = 0; i < records + 7; ++i) pair.channel.get({}, 0, {}, {}, count);
        }).join();
        CHECK(run_all(records + 7) == records);
    }
    SECTION("awaited calls") {
        // Another thread turns `other`, this one turns `owner`. The simulation would turn both on
        // one thread.
        Runtime other = Runtime::create({.manual = true}).value();
        Runtime owner = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
        REQUIRE(node_of(owner).context.submitted_bytes_max() == room);
        const Channel channel = owner.connect("tcp://127.0.0.1:1").value();
        for (std::size_t i = 0; i < calls; ++i) other.spawn(ask(channel, body, count));
        std::thread([&] { other.turn(); }).join();
        CHECK(owner.turn_until(
            [&] {
                other.turn();
                return completions == calls;
            },
            test::test_timeout));
        CHECK(full == 7);
    }
    // The turns have freed the room.
    CallOutcome again;
    std::thread([&] { pair.channel.call(echo_method, {}, {}, again.done()); }).join();
    REQUIRE(pair.rig.run_until([&] { return again.completions > 0; }));
    CHECK(again.status.ok());
}

namespace {

// An awaited call with a body that can't be written.
struct BareOperation : detail::AwaitableOperation {
    BareOperation(const Channel& channel, const BodyWriter& body) {
        start_call(channel, echo_method, body, {}, {});
    }
    static constexpr const char* what = "a call of a test";
    detail::ReferenceAwaiter<BareOperation> operator co_await() {
        return detail::ReferenceAwaiter(*this);
    }
    Status await_resume() { return take_status(); }
};

Task<> ask_in_vain(Channel channel, BodyWriter body, int& thrown) {
    try {
        (void)co_await BareOperation(channel, body);
    } catch (const std::bad_alloc&) {
        ++thrown;
    }
}

}  // namespace

TEST_CASE("a submission takes no room when copying its body throws") {
    Pair pair;
    const std::size_t room = node_of(pair.client).context.submitted_bytes_max();
    const BodyWriter body{room / 2, nullptr, [](void*, std::byte*) { throw std::bad_alloc(); }};
    int thrown = 0;
    const auto hand_over = [&](const auto& start) {
        std::thread([&] {
            for (int i = 0; i < 3; ++i) {
                try {
                    start();
                } catch (const std::bad_alloc&) {
                    ++thrown;
                }
            }
        }).join();
    };
    SECTION("calls") {
        hand_over(
            [&] { pair.channel.call_with(echo_method, body, {}, [](const Status&, ByteView) {}); });
    }
    SECTION("calls with inline bulk") {
        const RegionRef ref;
        hand_over([&] {
            pair.channel.call_with(echo_method, body, {.inline_bulk = &ref},
                                   [](const Status&, ByteView) {});
        });
    }
    SECTION("collectives") {
        const GroupView view = GroupView::make("one", 1, {{0, {"sim://server"}}}).value();
        const Group group = pair.client.group(view).value();
        hand_over([&] { group.collective(echo_method, body, {}, [](const GroupOutcome&) {}); });
    }
    SECTION("awaited calls") {
        Runtime other = Runtime::create({.manual = true}).value();  // Not simulated: two threads.
        Runtime owner = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
        const Channel channel = owner.connect("tcp://127.0.0.1:1").value();
        for (int i = 0; i < 3; ++i) other.spawn(ask_in_vain(channel, body, thrown));
        std::thread([&] { other.turn(); }).join();
    }
    CHECK(thrown == 3);
}

template <class Ask>
static Task<> note_end(Ask ask, Status& status, bool& is_over) {
    status = co_await ask();
    is_over = true;
}

TEST_CASE("the timeout of an operation awaited through another context runs from its start") {
    Pair pair;
    Runtime& other = pair.rig.add("");
    CallOutcome first;
    pair.channel.call(echo_method, {}, {}, first.done());
    REQUIRE(pair.rig.run_until([&] { return first.completions > 0; }));
    const Region region =
        pair.server.expose(pair.server.allocate(64).value(), {.access = Access::read}).value();
    const RegionRef far = region.ref();
    const Buffer near = pair.client.allocate(64).value();
    pair.rig.world->stop_host("server", false);  // No reply will arrive.
    Status status;
    bool is_over = false;
    SECTION("a call") {
        const auto call = [&]() -> Task<Status> {
            co_return (co_await weft::call(pair.channel, echo_method, {}, {.timeout = 50ms}))
                .status();
        };
        other.spawn(note_end(call, status, is_over));
    }
    SECTION("a transfer") {
        const auto get = [&]() -> Task<Status> {
            co_return co_await weft::get(pair.channel, far, 0, near, {.timeout = 50ms});
        };
        other.spawn(note_end(get, status, is_over));
    }
    const TimePoint start = pair.rig.clock->now();
    other.turn();
    // The channel's thread is busy.
    pair.rig.clock->advance(30ms);
    REQUIRE(pair.rig.run_until([&] { return is_over; }));
    CHECK(!status.ok());
    CHECK(pair.rig.clock->now() - start >= 50ms);
    CHECK(pair.rig.clock->now() - start <= 52ms);
}

TEST_CASE("a call awaited through another context expires when the channel's turn is too late") {
    Pair pair;
    Runtime& other = pair.rig.add("");
    Status status;
    bool is_over = false;
    const auto call = [&]() -> Task<Status> {
        co_return (co_await weft::call(pair.channel, echo_method, {}, {.timeout = 50ms})).status();
    };
    other.spawn(note_end(call, status, is_over));
    other.turn();
    pair.rig.clock->advance(50ms);
    REQUIRE(pair.rig.run_until([&] { return is_over; }));
    CHECK(!status.ok());
    CHECK(pair.service.handled == 0);
}

TEST_CASE("an answered call has no request, and its transfers end CANCELLED in a later turn") {
    Pair pair;
    CallOutcome outcome;
    Call call = pair.hold_one(outcome);
    call.reply({});
    CHECK(call.request().empty());
    int completions = 0;
    Status status;
    call.get({}, 0, Buffer(), [&](const Status& with) {
        ++completions;
        status = with;
    });
    CHECK(completions == 0);
    REQUIRE(pair.rig.run_until([&] { return completions > 0; }));
    CHECK(status.code() == Code::cancelled);
    CHECK(Call().request().empty());
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
}

TEST_CASE("a cancel reaches only its own call when many calls are held") {
    Pair pair;
    pair.service.hold = true;
    std::vector<CallOutcome> outcomes(1000);
    std::vector<OperationId> ids;
    for (CallOutcome& outcome : outcomes) {
        ids.push_back(pair.channel.call(echo_method, as_bytes("x"), {}, outcome.done()));
    }
    REQUIRE(pair.rig.run_until([&] { return pair.service.held.size() == 1000; }));
    for (std::size_t i = 0; i < ids.size(); i += 2) pair.channel.cancel_call(ids[i]);
    pair.rig.run_for(5ms);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(pair.service.held[i].cancelled() == (i % 2 == 0));
    }
    // The record of a cancelled call is reset for the next call.
    pair.service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return node_of(pair.client).client.in_flight() == 0; }));
    CallOutcome next;
    pair.channel.call(echo_method, {}, {}, next.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    CHECK_FALSE(pair.service.held[0].cancelled());
    pair.service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return next.completions > 0; }));
}

TEST_CASE("a completion that throws ends the program") {
    CHECK(aborts([] {
        Pair pair;
        pair.channel.call(echo_method, {}, {},
                          [](const Status&, ByteView) { throw std::runtime_error("not here"); });
        pair.rig.run_for(1s);
    }));
}

TEST_CASE("a runtime that is destroyed by its own callback ends the program") {
    CHECK(aborts([] {
        Pair pair;
        pair.channel.call(echo_method, {}, {},
                          [&](const Status&, ByteView) { pair.rig.runtimes.pop_back(); });
        pair.rig.run_for(1s);
    }));
}
