// Transfers on the simulated network: pieces in flight.
#include "support/sim_net.h"

using namespace weft;
using na::PeerId;
using test::SimHost;

namespace {

constexpr std::size_t bytes_all = 64 * 1024;
constexpr std::byte before{0x11}, sent{0x77};

// A client connected to a server that exposes memory, over a link of 1 MB/s.
class Loan {
  public:
    explicit Loan(std::uint64_t seed, bool is_checked = true, const weft::sim::Link& link = slow())
        : net(seed, link, is_checked), server(net.open("server")), client(net.open("client")) {
        peer = net.join(client, "server");
        fabric = server.endpoint->expose({1, 1, 4711, memory, Access::read_write}).value();
    }

    static weft::sim::Link slow() {
        weft::sim::Link link;
        link.bytes_per_second = 1e6;
        return link;
    }
    void start(na::RmaKind kind) {
        na::RmaItem item;
        item.kind = kind;
        item.peer = peer;
        item.region = item.generation = 1;
        item.key = 4711;
        item.fabric = fabric;
        item.local = local;
        REQUIRE(client.endpoint->post({&item, 1}) == 1);
    }
    void run_for(Duration time) {
        net.until([] { return false; }, time);
    }
    static std::size_t count(const std::vector<std::byte>& bytes, std::byte value) {
        return static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), value));
    }

    test::SimNet net;
    SimHost& server;
    SimHost& client;
    PeerId peer;
    na::FabricKey fabric;
    std::vector<std::byte> memory = std::vector<std::byte>(bytes_all, before);
    std::vector<std::byte> local = std::vector<std::byte>(bytes_all, sent);
};

}  // namespace

TEST_CASE("sim pieces: a transfer takes the time of its link and arrives piece by piece") {
    Loan loan(1);
    const bool is_put = GENERATE(true, false);
    CAPTURE(is_put);
    const std::byte moved = is_put ? sent : before;
    const std::vector<std::byte>& into = is_put ? loan.memory : loan.local;
    const TimePoint start = loan.net.clock.now();
    loan.start(is_put ? na::RmaKind::put : na::RmaKind::get);
    loan.run_for(30ms);
    CHECK(loan.client.done.empty());
    const std::size_t there = Loan::count(into, moved);
    CHECK(there > bytes_all / 4);
    CHECK(there < bytes_all * 3 / 4);
    CHECK(there % na::sim::World::piece_bytes_max == 0);
    REQUIRE(loan.net.until([&] { return !loan.client.done.empty(); }));
    CHECK(loan.client.done == std::vector{Code::ok});
    CHECK(Loan::count(into, moved) == bytes_all);
    CHECK(loan.net.clock.now() - start >= 65ms);
    CHECK(loan.net.clock.now() - start < 70ms);
}

TEST_CASE("sim pieces: pieces that a host sent before it stopped arrive until the fence") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {  // Some seeds have fences that wait.
        CAPTURE(seed);
        Loan loan(seed);
        loan.start(na::RmaKind::put);
        loan.run_for(10ms);
        REQUIRE(loan.net.world->stop_host("client", false));
        const std::size_t then = Loan::count(loan.memory, sent);
        loan.run_for(10ms);
        const std::size_t later = Loan::count(loan.memory, sent);
        CHECK(later > then);
        loan.server.endpoint->fence(1, na::Holders::done);
        REQUIRE(loan.net.until([&] { return !loan.server.fenced.empty(); }, 2ms));
        const std::vector<std::byte> fenced = loan.memory;
        CHECK(Loan::count(fenced, sent) < bytes_all);
        loan.run_for(100ms);
        CHECK(loan.memory == fenced);
        CHECK(loan.net.world->late_accesses() == 0);
    }
}

TEST_CASE("sim pieces: a put that is pending at a fence is denied the rest") {
    Loan loan(1);
    const auto kind = GENERATE(na::RmaKind::put, na::RmaKind::get);
    loan.start(kind);
    loan.run_for(10ms);
    loan.server.endpoint->fence(1, na::Holders::done);
    REQUIRE(loan.net.until([&] { return !loan.client.done.empty(); }));
    // The owner sent all pieces of a get before the fence, because the link has room.
    const Code wanted = kind == na::RmaKind::put ? Code::permission_denied : Code::ok;
    CHECK(loan.client.done == std::vector{wanted});
    loan.run_for(100ms);
    CHECK(loan.client.done.size() == 1);
}

TEST_CASE("sim pieces: an access after the fence is counted when accesses are not checked") {
    Loan loan(1, false);
    loan.start(na::RmaKind::put);
    loan.run_for(10ms);
    // The layers above never do this: the client has not reported completion.
    loan.server.endpoint->fence(1, na::Holders::done);
    loan.run_for(100ms);
    CHECK(loan.net.world->late_accesses() == 1);
    CHECK(Loan::count(loan.memory, sent) < bytes_all);
}

TEST_CASE("sim pieces: lost, repeated and late pieces are applied once, in order") {
    weft::sim::Link bad;
    bad.loss = 0.2;
    bad.duplicate = 0.2;
    bad.reorder = 0.5;
    bad.jitter = 50us;
    Loan loan(3, true, bad);
    for (std::size_t i = 0; i < bytes_all; ++i) loan.local[i] = static_cast<std::byte>(i / 257);
    const std::vector<std::byte> wanted = loan.local;
    loan.start(na::RmaKind::put);
    REQUIRE(loan.net.until([&] { return loan.client.done.size() == 1; }));
    CHECK(loan.memory == wanted);
    std::fill(loan.local.begin(), loan.local.end(), std::byte{});
    loan.start(na::RmaKind::get);
    REQUIRE(loan.net.until([&] { return loan.client.done.size() == 2; }));
    CHECK(loan.client.done == std::vector{Code::ok, Code::ok});
    CHECK(loan.local == wanted);
    CHECK(loan.net.world->faults().resent > 0);
    CHECK(loan.net.world->faults().repeated > 0);
}

TEST_CASE("sim pieces: a cut disconnects the writer, and pieces that were not sent never arrive") {
    Loan loan(1);
    loan.start(na::RmaKind::put);
    loan.run_for(10ms);
    loan.net.world->cut("client", "server");
    REQUIRE(loan.net.until([&] { return !loan.client.done.empty(); }, 3s));
    CHECK(loan.client.done == std::vector{Code::unavailable});
    CHECK(loan.client.downs == std::vector{Code::unavailable});
    CHECK(Loan::count(loan.memory, sent) < bytes_all / 2);
}
