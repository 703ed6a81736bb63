// fork() in a process with a runtime: the child's copy is unusable, and no use of it by the child
// disturbs the parent.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/await.h>
#include <weft/group_authority.h>
#include <weft/offload.h>
#include <weft/protobuf_group.h>
#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/group_file.h"
#include "support/test_timeout.h"
#include "support/usable.h"

namespace weft {
namespace {

using test::test_timeout;

constexpr MethodId hold("test.Fork/Hold");
constexpr MethodId fork_here("test.Fork/Fork");

// Counts the calls; while `holds` is set, keeps them until release().
struct HoldService final : Service {
    std::atomic<int> ran{0};
    std::atomic<bool> holds{false};
    std::function<void()> in_handler = [] {};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(hold, [this](Call call) {
            if (holds) {
                held_.push_back(std::move(call));
                ++ran;  // After the call is stored, since release() may follow.
            } else {
                ++ran;  // Before the reply, since a test reads the count after it.
                call.reply(call.request());
            }
        });
        registrar.add(fork_here, [this](Call call) {
            in_handler();
            call.reply(call.request());
        });
    }
    // For a forked child. Requires: a call is held.
    const Call& held() const { return held_.front(); }
    // Requires: `server` serves this.
    void release(Runtime& server) {
        holds = false;
        server.executor().post([this] {
            for (Call& call : std::exchange(held_, {})) call.reply(call.request());
        });
    }

  private:
    std::vector<Call> held_;  // On the context's thread only.
};

struct Outcome {
    std::atomic<bool> done{false};
    Status status;
};

void start(const Channel& channel, Outcome& into, const MethodId& method = hold) {
    static constexpr std::byte body{1};
    channel.call(method, {&body, 1}, {.timeout = test_timeout},
                 [&](const Status& status, ByteView) {
                     into.status = status;
                     into.done = true;
                 });
}

bool becomes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (!condition() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(1ms);
    }
    return condition();
}

Status end_of(Outcome& outcome) {
    const bool ended = becomes_true([&] { return outcome.done.load(); });
    return ended ? outcome.status : fail(Code::deadline_exceeded, "the test's own");
}

// The exit status of `body` in a forked child, or minus the signal that ended it. Appends the
// child's standard error to `output`.
int end_of_fork(const std::function<int()>& body, std::string* output = nullptr) {
    const test::ChildOutput child = test::output_of_child(body);
    if (output) output->append(child.text);
    return child.end;
}

bool names_fork(const Status& status) {
    return status.code() == Code::failed_precondition && status.effect() == Effect::none &&
           status.text().find("fork()") != std::string_view::npos &&
           status.text().find("create the runtime after") != std::string_view::npos;
}

std::vector<std::string> uris() {
    static int count = 0;
    const std::string name = "fork-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    std::vector<std::string> all = {"sm://" + name, "unix:///tmp/weft-" + name,
                                    "tcp://127.0.0.1:0"};
    if (test::is_usable("ofi+tcp")) all.push_back("ofi+tcp://127.0.0.1:0");
    return all;
}

// Two runtimes of this process; a forked child has copies of both.
struct Parent {
    explicit Parent(const std::string& uri)
        : server(Runtime::create().value()), client(Runtime::create().value()) {
        REQUIRE(server->serve(service, uri).ok());
        at = server->addresses().front();
        channel = client->connect(at).value();
    }
    HoldService service;
    std::optional<Runtime> server, client;
    std::string at;
    Channel channel;
};

// Calls before, during and after the child's `body` succeed.
void check_unnoticed(const std::string& uri, const std::function<int(Parent&)>& body) {
    INFO(uri);
    Parent parent(uri);
    Outcome first, held, next;
    start(parent.channel, first);
    REQUIRE(end_of(first).ok());
    parent.service.holds = true;
    start(parent.channel, held);
    REQUIRE(becomes_true([&] { return parent.service.ran == 2; }));
    CHECK(end_of_fork([&] { return body(parent); }) == 0);
    parent.service.release(*parent.server);
    start(parent.channel, next);
    CHECK_THAT(end_of(held).to_string(), Catch::Matchers::StartsWith("OK"));
    CHECK_THAT(end_of(next).to_string(), Catch::Matchers::StartsWith("OK"));
    CHECK(parent.service.ran == 3);
    CHECK(parent.client->state().find("0 connections lost") != std::string::npos);
}

TEST_CASE("a forked child that destroys its copy of a runtime does not disturb its parent") {
    for (const std::string& uri : uris()) {
        check_unnoticed(uri, [](Parent& parent) {
            parent.channel = Channel();
            parent.client.reset();
            parent.server.reset();
            return 0;
        });
    }
}

TEST_CASE("a forked child that calls exit() with a static runtime does not disturb its parent") {
    // In a separate process, which has only the static runtime.
    for (const std::string& uri : uris()) {
        INFO(uri);
        const int end = end_of_fork([&] {
            static std::optional<Parent> parent;
            parent.emplace(uri);
            Outcome held;
            parent->service.holds = true;
            start(parent->channel, held);
            if (!becomes_true([&] { return parent->service.ran == 1; })) return 4;
            const pid_t child = test::fork_child();
            if (child == 0) {
                ::alarm(10);
                std::exit(0);
            }
            int status = -1;
            if (::waitpid(child, &status, 0) != child || status != 0) return 1;
            parent->service.release(*parent->server);
            if (!end_of(held).ok()) return 2;
            return parent->service.ran == 1 ? 0 : 3;
        });
        CHECK(end == 0);
    }
}

Task<Status> await_call(Channel channel) {
    const std::vector<std::byte> body(1);
    auto reply = co_await call(channel, hold, body, {});
    co_return reply.status();
}

TEST_CASE("operations of a forked child on its parent's runtime fail at once and name fork()") {
    for (const std::string& uri : uris()) {
        check_unnoticed(uri, [](Parent& parent) {
            Runtime& runtime = *parent.client;
            HoldService another;
            Outcome call;
            start(parent.channel, call);
            if (!call.done || !names_fork(call.status)) return 1;
            if (!names_fork(runtime.connect(parent.at).status())) return 2;
            if (!names_fork(runtime.serve(another, "tcp://127.0.0.1:0"))) return 3;
            if (!names_fork(runtime.add(another))) return 4;
            if (!names_fork(runtime.run())) return 5;
            if (!names_fork(runtime.allocate(1).status())) return 6;
            if (!names_fork(runtime.block_on(await_call(parent.channel)))) return 7;
            std::vector<std::byte> memory(1);
            Buffer buffer = Buffer::adopt(Bytes(memory), [] {});
            if (!names_fork(runtime.expose(buffer, {.access = Access::read}).status())) return 8;
            Status got;
            parent.channel.get(RegionRef(), 0, buffer, {}, [&](const Status& why) { got = why; });
            if (!names_fork(got)) return 9;
            for (const unsigned context : {0u, 63u}) {
                Outcome pinned;
                start(parent.channel.on(context), pinned);
                if (!pinned.done || !names_fork(pinned.status)) return 12;
            }
            if (runtime.state().find("fork()") == std::string::npos) return 10;
            if (!parent.server->addresses().empty()) return 11;
            parent.server->stop();  // Stops the copy.
            return 0;
        });
    }
}

Task<Status> await_get(Channel channel, Buffer buffer) {
    const Status got = co_await get(channel, RegionRef(), 0, buffer, {});
    co_return got;
}

Task<Status> await_put(Channel channel, Buffer buffer) {
    const Status done = co_await put(channel, RegionRef(), 0, buffer, {});
    co_return done;
}

Task<Status> await_transfer(const Call& call, Buffer buffer) {
    const Status got = co_await get(call, RegionRef(), 0, buffer);
    const Status done = co_await put(call, RegionRef(), 0, buffer);
    co_return names_fork(got) ? done : got;
}

TEST_CASE("a forked child's await on its parent's channel fails at once and names fork()") {
    for (const std::string& uri : uris()) {
        check_unnoticed(uri, [](Parent& parent) {
            Runtime own = Runtime::create({.manual = true}).value();
            const Buffer buffer = own.allocate(1).value();
            if (!names_fork(own.block_on(await_call(parent.channel)))) return 1;
            if (!names_fork(own.block_on(await_get(parent.channel, buffer)))) return 2;
            if (!names_fork(own.block_on(await_put(parent.channel, buffer)))) return 3;
            const Call& held = parent.service.held();
            if (!names_fork(own.block_on(await_transfer(held, buffer)))) return 4;
            return 0;
        });
    }
}

Task<Status> await_barrier(Group group) {
    const Status all = co_await barrier(group, "fork");
    co_return all;
}

TEST_CASE("a forked child's operations on its parent's group fail at once and name fork()") {
    Runtime runtime = Runtime::create().value();
    const GroupView view = GroupView::make("fork", 1, {{0, {"sm://fork-nothing"}}}).value();
    const Group group = runtime.group(view).value();
    std::string output;
    const int end = end_of_fork(
        [&] {
            Runtime own = Runtime::create({.manual = true}).value();
            if (!names_fork(group.install(view))) return 2;
            if (!names_fork(group.channel(0).status())) return 3;
            if (!names_fork(own.block_on(await_barrier(group)))) return 4;
            group.on_change([](const MemberChange&) {});
            return 0;
        },
        &output);
    CHECK(end == 0);
    CHECK(output.find("a notice of Group::on_change() is dropped") != std::string::npos);
}

TEST_CASE("run() of a parent's runtime fails in a forked child and names fork()") {
    Parent parent(uris()[0]);
    Outcome first;
    start(parent.channel, first);
    REQUIRE(end_of(first).ok());  // The threads hold no lock that the child needs.
    CHECK(end_of_fork([&] { return names_fork(parent.server->run()) ? 0 : 1; }) == 0);
}

TEST_CASE("turning a parent's runtime in a forked child aborts the child with a message") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    for (int kind = 0; kind < 5; ++kind) {
        std::string output;
        const int end = end_of_fork(
            [&] {
                if (kind == 0) runtime.turn();
                if (kind == 1) runtime.turn_until([] { return false; }, 1h);
                if (kind == 2) runtime.arm();
                if (kind == 3) runtime.next_deadline();
                if (kind == 4) runtime.wait_fd();
                return 0;
            },
            &output);
        CHECK(end == -SIGABRT);
        CHECK(output.find("create the runtime after fork()") != std::string::npos);
    }
}

// Does what weft::AsioDriver does, which needs Boost.
TEST_CASE("a driver in a forked child aborts it when a parent's thread had borrowed the turns") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    std::promise<bool> borrowed;
    std::promise<void> forked;
    std::thread other([&] {
        const core::ThreadOwnership::BorrowedTurns turns(node_of(runtime).context);
        borrowed.set_value(static_cast<bool>(turns));
        forked.get_future().wait();
    });
    CHECK(borrowed.get_future().get());
    std::string output;
    const int end = end_of_fork(
        [&] {
            impl_of(runtime).set_driven(true);
            runtime.wait_fd();
            return 0;
        },
        &output);
    forked.set_value();
    other.join();
    CHECK(end == -SIGABRT);
    CHECK(output.find("create the runtime after fork()") != std::string::npos);
}

TEST_CASE("a handler that forks and returns in both processes replies once and the child aborts") {
    for (const std::string& uri : uris()) {
        INFO(uri);
        Parent parent(uri);
        std::atomic<pid_t> child{-1};
        parent.service.in_handler = [&] {
            child = test::fork_child();
            if (child != 0) return;
            ::signal(SIGABRT, SIG_DFL);
            ::close(STDERR_FILENO);
            ::alarm(20);
        };
        Outcome forked, next;
        start(parent.channel, forked, fork_here);
        CHECK_THAT(end_of(forked).to_string(), Catch::Matchers::StartsWith("OK"));
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
        start(parent.channel, next);
        CHECK_THAT(end_of(next).to_string(), Catch::Matchers::StartsWith("OK"));
    }
}

TEST_CASE("a forked child calls its parent with a runtime of its own") {
    if (!test::can_start_threads_in_child) return;
    for (const std::string& uri : uris()) {
        INFO(uri);
        Parent parent(uri);
        Outcome first;
        start(parent.channel, first);
        REQUIRE(end_of(first).ok());
        const int end = end_of_fork([&] {
            Runtime own = Runtime::create().value();
            const Channel channel = own.connect(parent.at).value();
            Outcome call;
            start(channel, call);
            return end_of(call).ok() ? 0 : 1;
        });
        CHECK(end == 0);
        CHECK(parent.service.ran == 2);
    }
}

TEST_CASE("a forked child ends at once whatever its parent's threads were doing") {
    HoldService service;
    Runtime runtime = Runtime::create().value();
    REQUIRE(runtime.serve(service, uris()[0]).ok());
    const Channel channel = runtime.connect(runtime.addresses().front()).value();
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            while (!over) {
                Buffer buffer = runtime.allocate(100'000).value();
                const Region region = runtime.expose(buffer, {.access = Access::read}).value();
                runtime.executor().offload([] {});
                (void)runtime.state();
            }
        });
    }
    const test::GroupDirectory directory;
    std::unique_ptr<GroupAuthority> authority = group_file(directory.path);
    REQUIRE(authority->follow([](const GroupView&) {}, {}).ok());
    for (int i = 0; i < 100; ++i) {
        Buffer buffer = runtime.allocate(100'000).value();
        std::optional<Region> region = runtime.expose(buffer, {.access = Access::read}).value();
        std::optional<Channel> copy = runtime.connect(runtime.addresses().front()).value();
        REQUIRE(end_of_fork([&] {
                    region.reset();
                    copy.reset();
                    buffer = Buffer();
                    authority.reset();
                    Runtime drop = std::move(runtime);
                    return 0;
                }) == 0);
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
}

// ---- descriptors -------------------------------------------------------------------------------

// Serves the address again while a child, forked during the first server's life, still runs.
void check_address_is_free(const std::string& uri, const std::function<void()>& in_child) {
    INFO(uri);
    std::optional<Parent> parent(uri);
    const std::string at = parent->at;
    Outcome first;
    start(parent->channel, first);
    REQUIRE(end_of(first).ok());
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = test::fork_child();
    REQUIRE(child >= 0);
    if (child == 0) {
        in_child();
        ::close(ends[1]);
        ::alarm(60);
        ::pause();
        ::_exit(0);
    }
    ::close(ends[1]);
    char none = 0;
    // in_child() has returned, or has executed another program.
    REQUIRE(::read(ends[0], &none, 1) == 0);
    ::close(ends[0]);
    parent->channel = Channel();
    parent.reset();
    HoldService service;
    Runtime next = Runtime::create().value();
    CHECK(next.serve(service, at).to_string() == "OK");
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("a server's address is free after its end while a forked child still runs") {
    for (const std::string& uri : uris()) {
        if (uri.starts_with("ofi")) continue;  // Sockets of libfabric stay open (docs/limits.md).
        check_address_is_free(uri, [] {});
    }
}

TEST_CASE("a server's address is free after its end while an executed program still runs") {
    for (const std::string& uri : uris()) {
        check_address_is_free(uri, [] { ::execlp("sleep", "sleep", "60", nullptr); });
    }
}

TEST_CASE("a program that a server executes inherits no descriptor of weft") {
    for (const std::string& uri : uris()) {
        if (uri.starts_with("ofi")) continue;  // libfabric has event descriptors of its own.
        INFO(uri);
        const auto inherited = [] {
            FILE* const listing = ::popen("ls -l /proc/self/fd", "r");
            REQUIRE(listing);
            std::string text(8192, '\0');
            text.resize(std::fread(text.data(), 1, text.size(), listing));
            ::pclose(listing);
            std::size_t count = 0;
            for (const char* kind : {"socket:", "eventpoll", "eventfd", "memfd", ".lock"}) {
                for (auto at = text.find(kind); at != std::string::npos;
                     at = text.find(kind, at + 1)) {
                    ++count;
                }
            }
            return count;
        };
        const std::size_t before = inherited();
        Parent parent(uri);
        Outcome first;
        start(parent.channel, first);
        REQUIRE(end_of(first).ok());
        CHECK(inherited() == before);
    }
}

}  // namespace
}  // namespace weft
