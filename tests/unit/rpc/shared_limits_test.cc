// Sessions and the memory for large bodies have limits that all contexts of a runtime share.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/random.h"
#include "rpc/client_capacity.h"
#include "rpc/server_sessions.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::uint32_t sharing = 4;  // Contexts.
constexpr std::size_t sessions_max = rpc::ServerSessions::sessions_max;

// The sessions of a runtime's contexts, without the runtime.
struct SharedSessions final : rpc::SessionOwner {
    SharedSessions() {
        for (std::uint16_t i = 0; i < sharing; ++i) of.emplace_back(i + 1u, i, budgets);
    }
    void on_time(rpc::ServerSession&, TimePoint) override {}
    rpc::ServerSession* begin(std::size_t context) {
        rpc::ServerSessions& sessions = of[context];
        rpc::ServerSession* const session =
            sessions.begin(*this, {1, ++last_id}, [&](rpc::ServerSession& one) {
                ++evicted[context];
                sessions.erase(one);
            });
        if (!session) return nullptr;
        sessions.widen(*session);
        sessions.connect(*session, peer, now);
        return session;
    }
    std::size_t size() const {
        std::size_t all = 0;
        for (const rpc::ServerSessions& one : of) all += one.size();
        return all;
    }

    const std::shared_ptr<core::Budgets> budgets = std::make_shared<core::Budgets>(
        RuntimeOptions(), core::FixedLimits{1 << 30, sessions_max, rpc::ServerSessions::slots_pool},
        sharing);
    std::deque<rpc::ServerSessions> of;
    core::Peer peer;
    TimePoint now{};
    std::uint64_t last_id = 0;
    std::size_t evicted[sharing] = {};
};

std::size_t wide_sessions(rpc::ServerSessions& sessions) {
    std::size_t wide = 0;
    sessions.for_each([&](const rpc::ServerSession& one) { wide += one.slots() == 1024; });
    return wide;
}

}  // namespace

TEST_CASE("shared limits: all contexts together have the sessions and slots of one") {
    SharedSessions shared;
    while (shared.begin(0)) {
    }
    const std::size_t first = shared.of[0].size();
    CHECK(first >= sessions_max - sessions_max / 8);
    // The others have what is reserved for them.
    for (std::size_t i = 1; i < sharing; ++i) {
        while (shared.begin(i)) {
        }
        CHECK(shared.of[i].size() >= sessions_max / (16 * sharing));
    }
    CHECK(shared.size() <= sessions_max);
    std::size_t wide = 0;
    for (rpc::ServerSessions& one : shared.of) wide += wide_sessions(one);
    CHECK(wide >= 60);
    CHECK(wide <= 68);
    for (const std::size_t evicted : shared.evicted) CHECK(evicted == 0);
    // What one context ends another one may begin, also wide.
    while (rpc::ServerSession* one = shared.of[0].any()) shared.of[0].erase(*one);
    while (shared.begin(1)) {
    }
    CHECK(shared.of[1].size() >= sessions_max - sessions_max / 8);
    CHECK(wide_sessions(shared.of[1]) >= 60);
}

TEST_CASE("shared limits: a context with sessions that it may evict leaves half to the others") {
    SharedSessions shared;
    for (std::size_t i = 0; i < 2 * sessions_max; ++i) {
        rpc::ServerSession* const session = shared.begin(0);
        REQUIRE(session);
        shared.of[0].disconnect(*session, shared.now);
    }
    CHECK(shared.of[0].size() < sessions_max / 2 + sessions_max / 8);
    CHECK(shared.evicted[0] == 2 * sessions_max - shared.of[0].size());
    std::size_t begun = 0;
    while (shared.begin(1)) ++begun;
    CHECK(begun >= sessions_max / 2 - sessions_max / 8);
    CHECK(shared.size() <= sessions_max);
    // Connected sessions of its own replace those that it may evict.
    for (int i = 0; i < 100; ++i) REQUIRE(shared.begin(0));
}

TEST_CASE("shared limits: only brief lost sessions are evicted before all sessions are taken") {
    for (const Duration connected :
         {Duration(1ms), Duration(8191ms), Duration(8192ms), Duration(1h)}) {
        CAPTURE(connected / 1ms);
        SharedSessions shared;
        rpc::ServerSession* const lost = shared.begin(1);
        lost->slot(0).sequence = 5;
        shared.now += connected;
        shared.of[1].disconnect(*lost, shared.now);
        for (std::size_t i = 0; i < sessions_max / 2 + 400; ++i) REQUIRE(shared.begin(0));
        for (int i = 0; i < 200; ++i) REQUIRE(shared.begin(1));
        CHECK(shared.evicted[1] == (connected < 8192ms ? 1 : 0));
        CHECK(shared.size() < sessions_max * 3 / 4);
        while (shared.evicted[1] == 0) REQUIRE(shared.begin(1));
        if (connected >= 8192ms) CHECK(shared.size() >= sessions_max - sessions_max / 16);
    }
}

TEST_CASE("shared limits: sessions that end in any way return their shares", "[seeded]") {
    base::SeededRandom random(seed_of(7));
    SharedSessions shared;
    std::vector<rpc::ServerSession*> connected[sharing];
    for (int i = 0; i < 30'000; ++i) {
        const std::size_t k = random.next() % sharing;
        auto& here = connected[k];
        const std::uint64_t step = random.next() % 8;
        if (step < 5 || here.empty()) {
            if (rpc::ServerSession* const session = shared.begin(k)) here.push_back(session);
        } else {
            const std::size_t at = random.next() % here.size();
            rpc::ServerSession* const session = here[at];
            here.erase(here.begin() + static_cast<std::ptrdiff_t>(at));
            // Ended by its client, or lost: later evicted.
            step == 5 ? shared.of[k].erase(*session)
                      : shared.of[k].disconnect(*session, shared.now);
        }
        REQUIRE(shared.size() <= sessions_max + sharing);
    }
    for (std::size_t k = 0; k < sharing; ++k) {
        while (rpc::ServerSession* one = shared.of[k].any()) shared.of[k].erase(*one);
    }
    CHECK(shared.size() == 0);
    std::size_t all = 0;
    while (shared.begin(2)) ++all;
    CHECK(all >= sessions_max - sessions_max / 8);
    CHECK(wide_sessions(shared.of[2]) >= 60);
}

TEST_CASE("sessions: requests are counted once, of all sessions, also of those that have ended") {
    SharedSessions shared;
    rpc::ServerSessions& sessions = shared.of[0];
    CHECK(sessions.count_requests().all == 0);
    CHECK(sessions.busiest().session == nullptr);
    rpc::ServerSession* const few = shared.begin(0);
    rpc::ServerSession* const many = shared.begin(0);
    few->slot(0).sequence = 10;
    many->slot(0).sequence = 50;
    many->slot(1).sequence = 40;
    CHECK(sessions.count_requests().all == 100);
    CHECK(sessions.busiest().session == many);
    CHECK(sessions.busiest().share == Approx(0.9));
    few->slot(0).sequence = 13;
    many->slot(1).sequence = 41;
    CHECK(sessions.count_requests().all == 104);
    CHECK(sessions.busiest().session == few);
    many->slot(0).sequence = 150;
    sessions.erase(*many);
    CHECK(sessions.count_requests().all == 204);
    CHECK(sessions.busiest().session == nullptr);
    // Numbers of a slot wrap around.
    few->slot(0).sequence = 0xffff'ffff;
    const std::uint64_t before = sessions.count_requests().all;
    few->slot(0).sequence = 4;
    CHECK(sessions.count_requests().all == before + 5);
}

TEST_CASE("sessions: the requests of thousands are counted a few sessions at a time") {
    SharedSessions shared;
    rpc::ServerSessions& sessions = shared.of[0];
    constexpr std::uint64_t count = 2000;
    std::vector<rpc::ServerSession*> begun;
    for (std::uint64_t i = 0; i < count; ++i) {
        begun.push_back(shared.begin(0));
        REQUIRE(begun.back());
        begun.back()->slot(0).sequence = 1;
    }
    for (std::uint32_t i = 0; i < begun[70]->slots(); ++i) begun[70]->slot(i).sequence = 2;
    const std::uint64_t of_one = 2 * std::uint64_t{begun[70]->slots()};
    const std::uint64_t all = count - 1 + of_one;
    std::uint64_t before = 0;
    std::vector<std::uint64_t> steps;
    for (bool is_whole = false; !is_whole;) {
        const rpc::ServerSessions::Requests so_far = sessions.count_requests();
        steps.push_back(so_far.all - std::exchange(before, so_far.all));
        is_whole = so_far.is_whole;
        // Meanwhile some that were counted end, and others begin.
        if (steps.size() % 4 == 0) sessions.erase(*std::exchange(begun[steps.size()], nullptr));
        if (steps.size() % 4 == 1) REQUIRE(shared.begin(0));
    }
    CHECK(before == all);
    CHECK(std::ranges::count_if(steps, [](std::uint64_t one) { return one > 64; }) == 1);
    CHECK(sessions.busiest().session == begun[70]);
    CHECK(sessions.busiest().share == Approx(double(of_one) / double(all)));
    // The next round counts what is new, also of sessions that end before their turn.
    begun[70]->slot(3).sequence = 12;
    begun[80]->slot(0).sequence = 2;
    begun[90]->slot(0).sequence = 5;
    sessions.erase(*begun[90]);
    while (!sessions.count_requests().is_whole) {
    }
    CHECK(sessions.busiest().session == begun[70]);
    CHECK(sessions.busiest().share == Approx(10.0 / 11));
    CHECK(sessions.count_requests().all == all + 15);
    while (!sessions.count_requests().is_whole) {
    }
    CHECK(sessions.busiest().session == nullptr);
}

// Calls with bodies are refused for lack of bytes while calls are left.
TEST_CASE("shared limits: a call that is refused for its bytes takes no credit of a call") {
    struct Owner final : rpc::CallOwner {
        void on_deadline(rpc::ClientCall&) override {}
        void on_due(rpc::ClientCall&) override {}
        void on_session_timer(rpc::ClientSession&, TimePoint) override {}
    } owner;
    RuntimeOptions options;
    options.calls_in_flight_max = 3200;
    options.bytes_in_flight_max = 3200;
    rpc::ClientLimits limits;
    limits.budgets = std::make_shared<core::Budgets>(options, core::FixedLimits{1, 1, 1}, 2);
    limits.sent_calls_max = 3200;
    limits.sent_bytes_all_max = limits.sent_bytes_max = 3200;
    core::Peer peer;
    rpc::ClientCapacity one(limits), other(limits);
    rpc::ClientSession session(owner, peer);
    session.byte_credits = limits.sent_bytes_max;
    REQUIRE(other.may_send_after_reach(session, 2900));  // All bytes that are not reserved.
    REQUIRE(one.may_send_after_reach(session, 1));
    one.take(session, 1);  // A context that uses nothing may always begin.
    for (int i = 0; i < 100; ++i) CHECK_FALSE(one.may_send_after_reach(session, 2900));
    CHECK(one.sent_calls() == 1);
    CHECK(one.sent_bytes() == 1);
}
