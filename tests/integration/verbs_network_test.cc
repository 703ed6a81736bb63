// A network that loses packets, links that go down, a machine that vanishes: between two machines
// with an RDMA device each, one of which runs this (`make softroce`).
#include <atomic>
#include <chrono>
#include <thread>

#include "support/fault_client.h"
#include "support/machine.h"

using namespace weft;
using namespace weft::test;

namespace {

using Clock = std::chrono::steady_clock;

// A server on the other machine: a process there that runs the last test of this file.
class FarServer {
  public:
    explicit FarServer(const Machines& machines) : machines_(machines) {
        const auto [status, words] =
            machines.far.run("TEST_SERVE_AT=" + machines.far_uri +
                             " build/release/bin/weft_integration '[far server]' "
                             ">/tmp/far-server.log 2>&1 & echo $!");
        INFO(words);
        REQUIRE(status == 0);
        pid_ = words.substr(0, words.find('\n'));
    }
    ~FarServer() { (void)machines_.far.run("kill -KILL " + pid_); }
    FarServer(const FarServer&) = delete;
    FarServer& operator=(const FarServer&) = delete;

    const std::string& pid() const { return pid_; }

  private:
    const Machines& machines_;
    std::string pid_;
};

struct Network {
    explicit Network(const Machines& machines_) : machines(machines_) {
        REQUIRE(is_there(2 * test_timeout));
    }
    // Waits for a reply: the server may be starting, or its link was down.
    bool is_there(Duration limit) {
        const auto end = Clock::now() + limit;
        bool ok = false;
        while (!ok && Clock::now() < end) {
            bool done = false;
            client.channel.call(FaultServer::echo, {}, {.timeout = test_timeout},
                                [&](const Status& status, ByteView) {
                                    done = true;
                                    ok = status.ok();
                                });
            REQUIRE(client.until([&] { return done; }, 2 * test_timeout));
        }
        return ok;
    }
    // Runs a command while the client turns.
    void tell(const Machine& machine, const std::string& command) {
        std::atomic<bool> done{false};
        Machine::Answer answer;
        std::thread talking([&] {
            answer = machine.run(command);
            done = true;
        });
        const bool answered = client.until([&] { return done.load(); }, 3 * test_timeout);
        talking.join();
        INFO(command << ": " << answer.words);
        REQUIRE(answered);
        REQUIRE(answer.status == 0);
    }

    const Machines& machines;
    FarServer server{machines};
    FaultClient client{machines.far_uri};
};

// Calls and transfers are in flight, then `fault` stops them for long enough: each ends once, with
// the right code, within the promised time. Returns the time since the fault took effect.
template <class Fault>
Duration lose(Network& network, Fault&& fault) {
    FaultClient& client = network.client;
    Outcomes calls, transfers;
    client.hold(200, calls);
    client.transfer(64, client.ref(FaultServer::lent), transfers);
    fault();
    const auto there = Clock::now();
    REQUIRE(client.until([&] { return calls.all_ended() && transfers.all_ended(); }));
    const Duration took = Clock::now() - there;
    client.go_on(50ms);
    INFO("calls: " << calls.text());
    INFO("transfers: " << transfers.text());
    CHECK(calls.each_once());
    CHECK(transfers.each_once());
    CHECK(calls.count("UNAVAILABLE unknown") == 200);
    CHECK(transfers.ok() + transfers.count("UNAVAILABLE unknown") +
              transfers.count("UNAVAILABLE none") ==
          64);
    return took;
}

// After the fault calls and transfers work as before.
void check_serves(Network& network) {
    REQUIRE(network.is_there(test_timeout));
    Outcomes transfers;
    network.client.transfer(4, network.client.ref(FaultServer::lent), transfers);
    REQUIRE(network.client.until([&] { return transfers.all_ended(); }));
    INFO("afterwards: " << transfers.text());
    CHECK(transfers.ok() == 4);
}

// A busy machine may be late once, not three times in a row.
template <class Once>
void check_soon(Once&& once) {
    Duration took = once();
    for (int again = 0; again < 2 && took >= promised(3s); ++again) took = once();
    INFO("ended after " << took / 1ms << " ms");
    CHECK(took < promised(3s));
}

// After a link went down under traffic no connection over rxe succeeded for a minute, not even
// perftest's; so the device is created anew.
void check_link_down(const Machines& machines, const Machine& machine) {
    check_soon([&] {
        Duration took;
        {
            Network network(machines);
            took = lose(network, [&] { network.tell(machine, "ip link set roce0 down"); });
        }
        const auto [status, words] = machine.run(
            "ip link set roce0 up && rdma link delete rxe0 && "
            "rdma link add rxe0 type rxe netdev roce0");
        INFO(words);
        REQUIRE(status == 0);
        Network network(machines);
        check_serves(network);
        return took;
    });
}

const std::string carry_nothing = "tc qdisc replace dev roce0 root netem loss 100%";
const std::string carry_all = "tc qdisc del dev roce0 root";

}  // namespace

TEST_CASE("verbs: a network that carries nothing is detected in time, and found again", "[far]") {
    const auto machines = machines_or_note();
    if (!machines) return;
    check_soon([&] {
        Network network(*machines);
        const Duration took = lose(network, [&] { network.tell(machines->near, carry_nothing); });
        network.tell(machines->near, carry_all);
        check_serves(network);
        return took;
    });
}

TEST_CASE("verbs: a stopped server on another machine is detected, and found again", "[far]") {
    const auto machines = machines_or_note();
    if (!machines) return;
    check_soon([&] {
        Network network(*machines);
        const std::string& pid = network.server.pid();
        const Duration took =
            lose(network, [&] { network.tell(machines->far, "kill -STOP " + pid); });
        network.tell(machines->far, "kill -CONT " + pid);
        check_serves(network);
        return took;
    });
}

TEST_CASE("verbs: calls survive a network that carries nothing for a moment", "[far]") {
    const auto machines = machines_or_note();
    if (!machines) return;
    // A moment may last too long on a busy machine.
    std::string how;
    bool outlived = false;
    for (int i = 0; i < 3 && !outlived; ++i) {
        Network network(*machines);
        Stream stream(network.client, 16);
        network.tell(machines->near, carry_nothing + "; sleep 0.2; " + carry_all);
        REQUIRE(stream.stop());
        outlived = stream.outcomes.ok() == stream.outcomes.ended();
        CHECK(stream.outcomes.each_once());
        how = stream.outcomes.text();
    }
    INFO(how);
    CHECK(outlived);
}

TEST_CASE("verbs: lost and late packets cost time and nothing else", "[far]") {
    const auto machines = machines_or_note();
    if (!machines) return;
    Network network(*machines);
    FaultClient& client = network.client;
    const RegionRef lent = client.ref(FaultServer::lent);
    for (const Machine* machine : {&machines->near, &machines->far}) {
        network.tell(*machine, "tc qdisc replace dev roce0 root netem loss 1% delay 2ms 1ms");
    }
    Buffer sent = client.runtime.allocate(lent.length).value();
    for (std::size_t i = 0; i < sent.size(); ++i) {
        sent.data()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    }
    Buffer back = client.runtime.allocate(lent.length).value();
    Stream stream(client, 16);
    const auto move = [&](bool puts) {
        Outcomes outcome;
        const CallOptions options{.timeout = test_timeout};
        puts ? client.channel.put(lent, 0, sent, options, outcome.transfer())
             : client.channel.get(lent, 0, back, options, outcome.transfer());
        REQUIRE(client.until([&] { return outcome.all_ended(); }, 2 * test_timeout));
        INFO(outcome.text());
        CHECK(outcome.each_once());
        return outcome.ok() == 1;
    };
    // Seven losses of one packet in a row lose the connection, and with it the transfers.
    for (int round = 0; round < 4; ++round) {
        std::memset(back.data(), 0, back.size());
        CHECK((move(true) || move(true) || move(true)));
        CHECK((move(false) || move(false) || move(false)));
        CHECK(std::memcmp(sent.data(), back.data(), sent.size()) == 0);
    }
    REQUIRE(stream.stop());
    for (const Machine* machine : {&machines->near, &machines->far}) {
        // The queue reports its drops.
        network.tell(*machine,
                     "tc -s qdisc show dev roce0 | grep -q 'dropped [1-9]' && "
                     "tc qdisc del dev roce0 root");
    }
    INFO("calls: " << stream.outcomes.text());
    CHECK(stream.outcomes.ok() == stream.outcomes.ended());
    CHECK(stream.outcomes.ok() > 16);
}

TEST_CASE("verbs: a link of the server's machine that goes down is detected in time", "[far]") {
    if (const auto machines = machines_or_note()) check_link_down(*machines, machines->far);
}

TEST_CASE("verbs: a link of the client's machine that goes down is detected in time", "[far]") {
    if (const auto machines = machines_or_note()) check_link_down(*machines, machines->near);
}

// The last test: the other machine is down afterwards.
TEST_CASE("verbs: a machine that vanishes is detected in time", "[far][vanish]") {
    const auto machines = machines_or_note();
    if (!machines) return;
    Network network(*machines);
    // Counted from before the command is sent; there is no reply to it.
    const Duration took = lose(network, [&] {
        std::thread([far = machines->far] {
            (void)far.run("echo b >/proc/sysrq-trigger");
        }).detach();
    });
    INFO("ended after " << took / 1ms << " ms");
    CHECK(took < promised(3s));
    Outcomes more;
    network.client.channel.call(FaultServer::echo, {}, {.timeout = test_timeout}, more.call());
    REQUIRE(network.client.until([&] { return more.all_ended(); }));
    INFO(more.text());
    CHECK(more.count("UNAVAILABLE none") == 1);
}

// Runs on the other machine.
TEST_CASE("verbs: a server of the other machine", "[.][far server]") {
    const char* uri = std::getenv("TEST_SERVE_AT");
    REQUIRE(uri);
    FaultServer server;
    Runtime runtime = Runtime::create().value();
    const Status status = server.serve(runtime, uri);
    INFO(status.to_string());
    REQUIRE(status.ok());
    (void)runtime.run();
}
