// A runtime in the event loop of a program: descriptor, arm() and deadline.
#include <poll.h>
#include <sys/epoll.h>

#include <chrono>
#include <thread>

#include "base/unique_fd.h"
#include "support/echo.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;
using echo::v1::EchoReply;

namespace {

bool is_readable(const Runtime& runtime) {
    pollfd watched{runtime.wait_fd(), POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
}

struct LoopPair : EchoPair {
    struct Holder final : Service {
        std::vector<Call> held;
        void register_methods(MethodRegistrar& registrar) override {
            const auto hold = [this](Call call) { held.push_back(std::move(call)); };
            registrar.add(MethodId("raw.Raw/Hold"), hold);
            registrar.add(MethodId("raw.Raw/HoldAll"), hold, {.collective = true});
        }
    } holder;
    Region lent;
    Buffer memory = server.allocate(64).value();
    LoopPair() {
        REQUIRE(server.add(holder).ok());
        lent = client.expose(client.allocate(64).value(), {.access = Access::read}).value();
        channel.call(MethodId("raw.Raw/Hold"), {}, {}, [](const Status&, ByteView) {});
        rig.run_until_idle();
        rig.run_for(1ms);
        REQUIRE(holder.held.size() == 1);
    }
    ~LoopPair() {
        holder.held.clear();
        rig.runtimes.clear();  // Before the service.
    }
};

// The armed `runtime` sleeps until `act` runs.
template <class Act>
void check_wakes(LoopPair& pair, Runtime& runtime, Act act) {
    pair.rig.run_until_idle();
    runtime.turn();
    REQUIRE(runtime.arm());
    CHECK_FALSE(is_readable(runtime));
    act();
    CHECK(is_readable(runtime));
    while (runtime.turn() > 0 || !runtime.arm()) {
    }
    CHECK_FALSE(is_readable(runtime));
}

}  // namespace

TEST_CASE("operations between turns wake the event loop that waits") {
    LoopPair pair;
    const auto done = [](const Status&, ByteView) {};
    Runtime& client = pair.client;
    Runtime& server = pair.server;
    SECTION("a call, and its cancel") {
        OperationId id;
        check_wakes(pair, client,
                    [&] { id = pair.channel.call(MethodId("raw.Raw/Hold"), {}, {}, done); });
        check_wakes(pair, client, [&] { pair.channel.cancel_call(id); });
    }
    SECTION("a transfer") {
        const Region region = server.expose(pair.memory, {.access = Access::read}).value();
        check_wakes(pair, client, [&] {
            pair.channel.get(region.ref(), 0, client.allocate(64).value(), {},
                             [](const Status&) {});
        });
    }
    SECTION("a collective") {
        const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
        const Group group = client.group(view).value();
        check_wakes(pair, client,
                    [&] { group.collective(MethodId("x"), {}, {}, [](const auto&) {}); });
    }
    SECTION("a collective that reaches only this runtime") {
        const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
        REQUIRE(server.join(view, 0).ok());
        const Group group = server.group(view).value();
        check_wakes(pair, server, [&] {
            group.collective(MethodId("raw.Raw/HoldAll"), {}, {}, [](const auto&) {});
        });
        CHECK(pair.holder.held.size() == 2);
    }
    SECTION("a reply to a held call") {
        check_wakes(pair, server, [&] { pair.holder.held[0].reply({}); });
    }
    SECTION("a failure of a held call") {
        check_wakes(pair, server, [&] { pair.holder.held[0].fail(fail(Code::aborted, "")); });
    }
    SECTION("a held call that is dropped") {
        check_wakes(pair, server, [&] { pair.holder.held.clear(); });
    }
    SECTION("a transfer of a held call") {
        check_wakes(pair, server, [&] {
            pair.holder.held[0].get(pair.lent.ref(), 0, pair.memory, [](const Status&) {});
        });
    }
    SECTION("a region, and its end") {
        Region region;
        check_wakes(pair, server, [&] {
            region = server.expose(pair.memory, {.access = Access::read, .lease = 1s}).value();
        });
        check_wakes(pair, server, [&] { region = Region(); });
    }
    SECTION("another address") {
        check_wakes(pair, server, [&] { REQUIRE(server.listen("sim://other").ok()); });
    }
    SECTION("work that is posted") {
        check_wakes(pair, server, [&] { server.executor().post([] {}); });
    }
}

namespace {

// The loop that weft/runtime.h describes, over two runtimes.
struct EpollLoop {
    base::UniqueFd epoll{epoll_create1(EPOLL_CLOEXEC)};
    std::vector<Runtime*> runtimes;
    int waits = 0;

    void add(Runtime& runtime) {
        epoll_event event{};
        event.events = EPOLLIN;
        REQUIRE(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, runtime.wait_fd(), &event) == 0);
        runtimes.push_back(&runtime);
    }

    bool sleep(TimePoint latest) {
        TimePoint next = latest;
        for (Runtime* runtime : runtimes) {
            if (runtime->turn() > 0 || !runtime->arm()) return false;
            next = std::min(next, runtime->next_deadline());
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - real_now());
        epoll_event events[2];
        ++waits;
        epoll_wait(epoll.get(), events, 2, static_cast<int>(std::max<long>(left.count(), 0)));
        return true;
    }
};

}  // namespace

TEST_CASE("an epoll loop turns runtimes by their descriptor and deadline") {
    EchoServer service;
    Runtime server = Runtime::create({.manual = true}).value();
    Runtime client = Runtime::create({.manual = true}).value();
    EpollLoop loop;
    loop.add(server);
    loop.add(client);
    const std::string uri = "sm://" + unique_name("loop");
    REQUIRE(server.serve(service, uri).ok());  // Opened after its descriptor was taken.
    const EchoClient stub(client.connect(uri).value());
    const TimePoint end = real_now() + test_timeout;
    int replies = 0;
    for (int i = 0; i < 100; ++i) {
        stub.Later(request_of("x"), {},
                   [&](const Status& status, const EchoReply&) { replies += status.ok(); });
        while (replies <= i && real_now() < end) loop.sleep(end);
    }
    CHECK(replies == 100);
    CHECK(loop.waits < 1000);

    // A deadline, and work from another thread.
    bool late = false, posted = false;
    stub.Held(request_of("x"), {.timeout = 20ms},
              [&](const Status& status, const EchoReply&) { late = !status.ok(); });
    while (!late && real_now() < end) loop.sleep(end);
    CHECK(late);
    std::thread other([&] { client.executor().post([&] { posted = true; }); });
    while (!posted && real_now() < end) loop.sleep(end);
    other.join();
    CHECK(posted);
}
