// Many clients connect at once, as at the start of a job, also while the server is stopped.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/seed.h"
#include "support/test_timeout.h"

using namespace weft;
using test::test_timeout, test::promised;

namespace {

constexpr MethodId echo("test.Burst/Echo");
// The processes and the channels of each; tools/soak.py bursts uses 64 processes.
constexpr std::uint64_t processes_at_least = 16;
constexpr int channels = 32;

struct Echoes final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
    }
};

class ServerProcess {
  public:
    // `descriptors`: the server's limit; 0: the maximum of this machine.
    explicit ServerProcess(const std::string& uri, rlim_t descriptors = 0) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) serve(uri, ends[1], descriptors);
        ::close(ends[1]);
        char buffer[256];
        const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
        ::close(ends[0]);
        REQUIRE(got > 0);
        address_.assign(buffer, static_cast<std::size_t>(got));
    }
    ~ServerProcess() {
        signal(SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    void signal(int number) const { ::kill(pid_, number); }
    // Returns when the process has stopped.
    void stop() const {
        signal(SIGSTOP);
        int status = 0;
        REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
        REQUIRE(WIFSTOPPED(status));
    }
    const std::string& address() const { return address_; }
    // CPU time of the process so far.
    Duration cpu_time() const {
        std::ifstream file("/proc/" + std::to_string(pid_) + "/schedstat");
        std::int64_t ns = 0;
        file >> ns;
        return Duration(ns);
    }

  private:
    [[noreturn]] static void serve(const std::string& uri, int ready, rlim_t descriptors) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        rlimit files{};
        ::getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = descriptors != 0 ? descriptors : files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
        Echoes echoes;
        Result<Runtime> runtime = Runtime::create();
        if (!runtime || !runtime->serve(echoes, uri).ok()) ::_exit(1);
        const std::string address = runtime->addresses().front();
        if (::write(ready, address.data(), address.size()) < 0) ::_exit(1);
        ::close(ready);
        (void)runtime->run();
        ::_exit(0);
    }

    pid_t pid_ = -1;
    std::string address_;
};

// Transports on which a connection costs the server a descriptor.
std::vector<std::string> own_uris() {
    const std::string own = std::to_string(::getpid());
    return {"sm://burst-" + own, "tcp://127.0.0.1:0", "unix:///tmp/weft-burst-" + own};
}

std::vector<std::string> uris() {
    std::vector<std::string> all = own_uris();
#ifdef WEFT_WITH_OFI
    all.push_back("ofi+tcp://127.0.0.1:0");
#endif
    return all;
}

// One call over each of many channels that are opened at once.
struct Burst {
    Runtime runtime = Runtime::create({.manual = true}).value();
    std::vector<Channel> channels;
    int completed = 0;
    int failed = 0;
    int unnamed = 0;  // Failures that do not name the server's descriptors.
    std::string first_failure;

    void start(const std::string& address, int count, Duration timeout) {
        for (int i = 0; i < count; ++i) {
            channels.push_back(runtime.connect(address).value());
            channels.back().call(echo, as_bytes("x"), {.timeout = timeout},
                                 [this](const Status& status, ByteView) {
                                     ++completed;
                                     if (status.ok()) return;
                                     const std::string text = status.to_string();
                                     if (failed++ == 0) first_failure = text;
                                     unnamed += text.find("ulimit -n") == text.npos ||
                                                status.code() != Code::unavailable ||
                                                status.effect() != Effect::none;
                                 });
        }
    }
    bool is_over() const { return completed == static_cast<int>(channels.size()); }
};

// Channels of one process that call once, stay open for a while and close.
struct Leavers {
    struct One {
        std::optional<Channel> channel;
        std::optional<std::chrono::steady_clock::time_point> leaves_at;
    };
    Runtime runtime = Runtime::create({.manual = true}).value();
    std::string failure;

    // Returns false when a channel got no reply.
    bool come_and_go(const std::string& address, std::size_t count, Duration timeout) {
        std::vector<One> all(count);
        for (One& one : all) {
            one.channel = runtime.connect(address).value();
            one.channel->call(echo, as_bytes("x"), {.timeout = timeout},
                              [this, &one](const Status& status, ByteView) {
                                  if (!status.ok()) failure = status.to_string();
                                  one.leaves_at = std::chrono::steady_clock::now() + 200ms;
                              });
        }
        const auto end = std::chrono::steady_clock::now() + test_timeout;
        while (!leave(all) && std::chrono::steady_clock::now() < end) {
            runtime.turn_until([] { return false; }, 5ms);
        }
        return leave(all) && failure.empty();
    }
    static bool leave(std::vector<One>& all) {
        const auto now = std::chrono::steady_clock::now();
        for (One& one : all) {
            if (one.leaves_at && now >= *one.leaves_at) one.channel.reset();
        }
        return std::ranges::none_of(all, [](const One& one) { return bool(one.channel); });
    }
};

int bad_of(const std::vector<pid_t>& children) {
    int bad = 0;
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        bad += status != 0;
    }
    return bad;
}

}  // namespace

TEST_CASE("channels that many processes open at once are all served", "[burst]") {
    const std::uint64_t processes =
        std::max(test::setting("TEST_PROCESSES", processes_at_least), std::uint64_t{1});
    for (const std::string& uri : uris()) {
        // libfabric makes one connection for all channels of a process: fewer processes suffice.
        const std::uint64_t count =
            uri.starts_with("ofi") ? std::min<std::uint64_t>(processes, 8) : processes;
        INFO(uri << ", " << count << " processes");
        ServerProcess server(uri);
        const auto begun = std::chrono::steady_clock::now();
        std::vector<pid_t> children;
        for (std::uint64_t i = 0; i < count; ++i) {
            const pid_t child = ::fork();
            REQUIRE(child >= 0);
            if (child == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                Burst burst;
                burst.start(server.address(), channels, 60s);
                burst.runtime.turn_until([&] { return burst.is_over(); }, test_timeout);
                if (burst.failed != 0) std::fprintf(stderr, "%s\n", burst.first_failure.c_str());
                ::_exit(burst.is_over() && burst.failed == 0 ? 0 : 1);
            }
            children.push_back(child);
        }
        CHECK(bad_of(children) == 0);
        CHECK(std::chrono::steady_clock::now() - begun < promised(20s));
    }
}

TEST_CASE("a thousand channels that one process opens at once are all served", "[burst]") {
    for (const std::string& uri : uris()) {
        INFO(uri);
        ServerProcess server(uri);
        Burst burst;
        burst.start(server.address(), 1000, 60s);
        REQUIRE(burst.runtime.turn_until([&] { return burst.is_over(); }, test_timeout));
        INFO(burst.first_failure);
        CHECK(burst.failed == 0);
    }
}

TEST_CASE("a server that is stopped for 3 s serves the clients that connected meanwhile",
          "[burst]") {
    for (const std::string& uri : uris()) {
        INFO(uri);
        ServerProcess server(uri);
        server.stop();
        Burst burst;
        burst.start(server.address(), 50, 60s);
        CHECK_FALSE(burst.runtime.turn_until([&] { return burst.completed != 0; }, 3200ms));
        server.signal(SIGCONT);
        REQUIRE(burst.runtime.turn_until([&] { return burst.is_over(); }, test_timeout));
        INFO(burst.first_failure);
        CHECK(burst.failed == 0);
    }
}

TEST_CASE("clients that connect to a stopped server get UNAVAILABLE within 3 s of its death",
          "[burst]") {
    for (const std::string& uri : uris()) {
        INFO(uri);
        ServerProcess server(uri);
        server.stop();
        Burst burst;
        burst.start(server.address(), 50, 60s);
        burst.runtime.turn_until([] { return false; }, 100ms);
        const auto killed = std::chrono::steady_clock::now();
        server.signal(SIGKILL);
        REQUIRE(burst.runtime.turn_until([&] { return burst.is_over(); }, test_timeout));
        CHECK(burst.failed == 50);
        INFO(burst.first_failure);
        CHECK(burst.first_failure.find("UNAVAILABLE") != std::string::npos);
        CHECK(std::chrono::steady_clock::now() - killed < promised(3s));
    }
}

// 200 channels that stay for a while each, at a server that has room for half of them.
TEST_CASE("clients of a server with 96 descriptors are served within 10 s as others leave",
          "[burst]") {
    for (const std::string& uri : own_uris()) {
        INFO(uri);
        ServerProcess server(uri, 96);
        std::vector<pid_t> children;
        for (int i = 0; i < 8; ++i) {
            const pid_t child = ::fork();
            REQUIRE(child >= 0);
            if (child == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                Leavers leavers;
                const bool all = leavers.come_and_go(server.address(), 25, promised(10s));
                if (!all) std::fprintf(stderr, "%s\n", leavers.failure.c_str());
                ::_exit(all ? 0 : 1);
            }
            children.push_back(child);
        }
        CHECK(bad_of(children) == 0);
    }
}

TEST_CASE("a server without descriptors does not spin, and calls to it fail at their deadline",
          "[burst]") {
    for (const std::string& uri : own_uris()) {
        INFO(uri);
        ServerProcess server(uri, 64);
        Burst burst;
        burst.start(server.address(), 100, 3s);
        burst.runtime.turn_until([] { return false; }, 500ms);
        const int served = burst.completed;
        CHECK(served > 20);
        CHECK(burst.failed == 0);
        const Duration before = server.cpu_time();
        burst.runtime.turn_until([] { return false; }, 2s);
        CHECK(burst.completed == served);
        CHECK(server.cpu_time() - before < 1s);
        REQUIRE(burst.runtime.turn_until([&] { return burst.is_over(); }, test_timeout));
        INFO(burst.first_failure);
        CHECK(burst.failed == 100 - served);
        CHECK(burst.unnamed == 0);
        // Served as soon as the other channels are closed.
        burst.channels.clear();
        burst.runtime.turn_until([] { return false; }, 100ms);
        Burst late;
        late.start(server.address(), 20, 10s);
        REQUIRE(late.runtime.turn_until([&] { return late.is_over(); }, test_timeout));
        INFO(late.first_failure);
        CHECK(late.failed == 0);
    }
}
