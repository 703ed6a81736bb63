// Members that an untrusted client names: the connections that a server makes to them.
#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <thread>

#include <weft/executor.h>
#include <weft/runtime.h>

#include "coll/wire.h"
#include "na/resolver.h"
#include "support/catch.h"
#include "support/no_more_threads.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace hostile_names {

constexpr MethodId record_method("test.Names/Tell");
constexpr MethodId offload_method("test.Names/Offload");

struct Told final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(record_method, [](Call call) { call.reply({}); }, {.collective = true});
        // Fails the call with the exception, as generated code does.
        registrar.add(offload_method, [](Call call) {
            const auto held = std::make_shared<Call>(std::move(call));
            try {
                Executor& home = *Executor::current();
                home.offload([held, &home] { home.post([held] { held->reply({}); }); });
            } catch (...) {
                held->fail(std::current_exception());
            }
        });
    }
};

std::size_t listening_sockets() {
    std::size_t count = 0;
    for (int fd = 0; fd < 4096; ++fd) {
        int listens = 0;
        socklen_t bytes = sizeof listens;
        if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) count += listens;
    }
    return count;
}

std::size_t threads_here() {
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// A member that listens on tcp alone, and a channel of an untrusted client to it.
struct NamesRig {
    explicit NamesRig(const std::string& other = "tcp://127.0.0.1:1") {
        REQUIRE(server.serve(service, "tcp://127.0.0.1:0").ok());
        const GroupView view =
            GroupView::make("names", 1, {{0, {address()}}, {1, {other}}}).value();
        REQUIRE(server.join(view, 0).ok());
        channel = stranger.connect(address()).value();
    }
    std::string address() { return server.addresses().front(); }

    Status call(MethodId method, ByteView body, std::vector<std::byte>* reply = nullptr) {
        std::promise<Status> done;
        channel.call(method, body, {.timeout = 20s}, [&](const Status& status, ByteView bytes) {
            if (reply) reply->assign(bytes.begin(), bytes.end());
            done.set_value(status);
        });
        return done.get_future().get();
    }
    coll::SubtreeReply forward(const coll::ForwardParts& parts) {
        std::vector<std::byte> body(parts.bytes()), reply;
        coll::encode_forward(parts, body);
        REQUIRE(call(coll::forward_method, body, &reply).ok());
        return coll::decode_subtree_reply(reply).value();
    }
    // Requests a collective of the member and of these addresses. Returns the statuses of these.
    std::vector<Status> name(const std::vector<std::string>& uris) {
        std::vector<Member> members{{0, {address()}, 0, false}};
        for (std::uint32_t i = 0; i < uris.size(); ++i) members.push_back({i + 1, {uris[i]}});
        std::vector<const Member*> pointers;
        for (const Member& member : members) pointers.push_back(&member);
        const std::vector<std::byte> named = coll::encode_members(pointers);
        coll::ForwardParts parts;
        parts.header.group = method_hash("names");
        parts.header.epoch = 2;
        parts.header.key = {77, ++sequence};
        parts.header.method = record_method.hash;
        parts.header.last = static_cast<std::uint32_t>(members.size());
        parts.header.tree = {coll::Shape::flat};
        parts.header.progress_interval_us = 10'000'000;
        parts.header.kind = coll::RequestKind::clock;
        parts.header.began = forward(parts).clock;
        parts.header.kind = coll::RequestKind::all;
        parts.named = named;
        std::vector<Status> statuses(uris.size());
        const coll::SubtreeReply answer = forward(parts);
        for (const coll::Outcome& one : answer.outcomes) {
            if (one.position != 0) statuses[one.position - 1] = one.status;
        }
        return statuses;
    }

    Told service;
    Runtime server = Runtime::create().value();
    Runtime stranger = Runtime::create().value();
    Channel channel;
    std::uint64_t sequence = 0;
};

TEST_CASE("hostile names: a member that listens on tcp opens no other transport for a client") {
    NamesRig rig;
    const std::size_t before = listening_sockets();
    for (const char* uri : {"ofi+tcp://127.0.0.1:1", "ofi+verbs://127.0.0.1:1",
                            "verbs://127.0.0.1:1", "sm://nothing"}) {
        const Status status = rig.name({uri}).front();
        INFO(uri << ": " << status.to_string());
        CHECK(status.code() == Code::unavailable);
        CHECK(status.effect() == Effect::none);
        CHECK(status.text().find("does not connect to for a peer: it listens on tcp") !=
              std::string::npos);
    }
    CHECK(listening_sockets() == before);
    // No endpoint here reaches IPv6, and none is opened for that.
    CHECK_FALSE(rig.name({"tcp://[::1]:1"}).front().ok());
    CHECK_FALSE(rig.name({rig.address()}).front().ok());  // This address is rank 0, and not rank 1.
}

TEST_CASE("hostile names: a server connects to no socket file that a client names") {
    NamesRig rig;
    const std::string path = std::filesystem::temp_directory_path() / "weft-named-XXXXXX";
    std::string made = path;
    REQUIRE(::mkdtemp(made.data()) != nullptr);
    const std::string file = made + "/service.sock";
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::copy(file.begin(), file.end(), name.sun_path);
    REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
    REQUIRE(::listen(listener, 8) == 0);
    CHECK_FALSE(rig.name({"unix://" + file}).front().ok());
    CHECK(::accept(listener, nullptr, nullptr) < 0);
    ::close(listener);
    std::filesystem::remove_all(made);
}

TEST_CASE("hostile names: transports of the own view are opened for members that a client names") {
    NamesRig rig("sm://names-" + std::to_string(::getpid()) + "-a");
    Told other;
    Runtime third = Runtime::create().value();
    const std::string uri = "sm://names-" + std::to_string(::getpid()) + "-b";
    REQUIRE(third.serve(other, uri).ok());
    REQUIRE(third.join(GroupView::make("names", 2, {{0, {rig.address()}}, {1, {uri}}}).value(), 1)
                .ok());
    const Status status = rig.name({uri}).front();
    INFO(status.to_string());
    CHECK(status.ok());
}

TEST_CASE("hostile names: resolving a thousand invented host names takes two threads") {
    NamesRig rig;
    std::vector<std::string> uris;
    for (int i = 0; i < 1000; ++i) {
        uris.push_back("tcp://host-" + std::to_string(i) + ".invalid:1");
    }
    const std::size_t before = threads_here();
    std::atomic<bool> over{false};
    std::size_t most = 0;
    std::thread watch([&] {
        while (!over) most = std::max(most, threads_here());
    });
    const std::vector<Status> statuses = rig.name(uris);
    over = true;
    watch.join();
    for (const Status& status : statuses) CHECK_FALSE(status.ok());
    // Plus the thread `watch`.
    CHECK(most <= before + 1 + na::Resolver::peer_threads_max);
}

TEST_CASE("hostile names: offload() without a free thread fails its call and names the limit") {
    NamesRig rig;
    {
        const NoMoreThreads none;
        const Status status = rig.call(offload_method, {});
        INFO(status.to_string());
        CHECK(status.code() == Code::resource_exhausted);
        CHECK(status.effect() == Effect::unknown);
        CHECK(status.text().find("ulimit -u") != std::string::npos);
    }
    CHECK(rig.call(offload_method, {}).ok());
}

}  // namespace hostile_names
