// A server is killed with calls in its handlers: the outcome at each caller, and the time until
// then.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/rdma_host.h"
#include "support/test_timeout.h"

using namespace weft;
using test::test_timeout, test::promised;

namespace {

constexpr MethodId hold("test.Hold/Hold");
constexpr MethodId held("test.Hold/Held");

// Holds each call, and replies how many it holds.
struct Holder final : Service {
    std::vector<Call> calls;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(hold, [this](Call call) { calls.push_back(std::move(call)); });
        registrar.add(held, [this](Call call) {
            const std::string count = std::to_string(calls.size());
            call.reply(as_bytes(count));
        });
    }
};

// A server in a process of its own, and the address it listens on.
class ServerProcess {
  public:
    explicit ServerProcess(const std::string& uri) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) serve(uri, ends[1]);
        ::close(ends[1]);
        char buffer[256];
        const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
        ::close(ends[0]);
        REQUIRE(got > 0);
        address_.assign(buffer, static_cast<std::size_t>(got));
    }
    ~ServerProcess() { kill(); }

    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    const std::string& address() const { return address_; }

  private:
    [[noreturn]] static void serve(const std::string& uri, int ready) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        Holder holder;
        Result<Runtime> runtime = Runtime::create();
        if (!runtime || !runtime->serve(holder, uri)) ::_exit(1);
        const std::string address = runtime->addresses().front();
        if (::write(ready, address.data(), address.size()) < 0) ::_exit(1);
        ::close(ready);
        (void)runtime->run();
        ::_exit(0);
    }

    pid_t pid_ = -1;
    std::string address_;
};

struct Tally {
    int completions = 0;
    int wrong = 0;
    std::string first_wrong;
    Completion done() {
        return [this](const Status& status, ByteView) {
            ++completions;
            if (status.code() == Code::unavailable && status.effect() == Effect::unknown) return;
            if (wrong++ == 0) first_wrong = status.to_string();
        };
    }
};

struct Transport {
    std::string uri;
    Duration limit;    // Of calls at a killed server: it may restart within a second.
    Duration refusal;  // Of calls without a server.
};

std::string unique(std::string uri) {
    if (uri.starts_with("sm://")) uri += "-" + std::to_string(::getpid());
    return uri;
}

std::vector<Transport> transports() {
    if (const auto uri = test::rdma_uri()) return {{*uri, promised(3s), promised(3s)}};
    std::vector<Transport> all{{"sm://kill-test", promised(1500ms), promised(100ms)},
                               {"tcp://127.0.0.1:0", promised(1500ms), promised(100ms)}};
#ifdef WEFT_WITH_OFI
    all.push_back({"ofi+tcp://127.0.0.1:0", promised(3s), promised(3s)});
#endif
    return all;
}

}  // namespace

// Kills a server with 1000 calls in its handlers and checks every outcome; returns the time it
// took.
static Duration kill_with_calls(const Transport& transport) {
    ServerProcess server(unique(transport.uri));
    Runtime client = Runtime::create({.manual = true}).value();
    Channel channel = client.connect(server.address()).value();
    Tally tally;
    for (int i = 0; i < 1000; ++i) {
        channel.call(hold, as_bytes("x"), {.timeout = 60s}, tally.done());
    }
    int in_handlers = 0;
    while (in_handlers < 1000) {
        bool answered = false;
        channel.call(held, {}, {}, [&](const Status& status, ByteView reply) {
            answered = true;
            if (status.ok()) in_handlers = std::stoi(std::string(as_text(reply)));
        });
        REQUIRE(client.turn_until([&] { return answered; }, test_timeout));
    }
    REQUIRE(tally.completions == 0);
    const auto killed = std::chrono::steady_clock::now();
    server.kill();
    REQUIRE(client.turn_until([&] { return tally.completions >= 1000; }, test_timeout));
    const auto took = std::chrono::steady_clock::now() - killed;
    INFO(tally.first_wrong);
    CHECK(tally.wrong == 0);
    client.turn_until([] { return false; }, 50ms);
    CHECK(tally.completions == 1000);
    return took;
}

TEST_CASE("SIGKILL of a server completes each of 1000 held calls once, in time", "[kill]") {
    for (const Transport& transport : transports()) {
        INFO(transport.uri);
        // A busy machine may be late once, not three times in a row.
        Duration took = kill_with_calls(transport);
        for (int again = 0; again < 2 && took >= transport.limit; ++again) {
            took = kill_with_calls(transport);
        }
        CHECK(took < transport.limit);
    }
}

TEST_CASE("a connection that no process accepts is UNAVAILABLE, effect none, in time", "[kill]") {
    for (const Transport& transport : transports()) {
        INFO(transport.uri);
        std::string address;
        {
            ServerProcess gone(unique(transport.uri));
            address = gone.address();
        }
        Runtime client = Runtime::create({.manual = true}).value();
        Channel channel = client.connect(address).value();
        int completions = 0;
        Status outcome;
        const auto start = std::chrono::steady_clock::now();
        channel.call(hold, {}, {.timeout = 60s}, [&](const Status& status, ByteView) {
            ++completions;
            outcome = status;
        });
        REQUIRE(client.turn_until([&] { return completions > 0; }, test_timeout));
        CHECK(std::chrono::steady_clock::now() - start < transport.refusal);
        INFO(outcome.to_string());
        CHECK(outcome.code() == Code::unavailable);
        CHECK(outcome.effect() == Effect::none);
        CHECK(outcome.peer() == address);
    }
}
