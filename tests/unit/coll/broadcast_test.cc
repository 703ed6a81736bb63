#include <algorithm>
#include <map>
#include <set>

#include "coll/tree.h"
#include "support/catch.h"
#include "support/seed.h"
#include "support/sim_rig.h"

using namespace weft;
using test::SimRig;

namespace {

constexpr MethodId set_config("test.Config/Set");
constexpr MethodId set_one("test.Config/SetOne");  // Not registered as collective.

// Stores the requests of one rank.
struct Config final : Service {
    std::vector<std::string> values;
    bool hold = false;
    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        const auto received = [this](Call call) {
            values.emplace_back(as_text(call.request()));
            if (hold) return held.push_back(std::move(call));
            call.reply(as_bytes("was told " + values.back()));
        };
        registrar.add(set_config, received, {.collective = true});
        registrar.add(set_one, received);
    }
};

GroupView view_of(std::uint32_t n, std::uint64_t epoch = 1) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back({rank, {"sim://s" + std::to_string(rank)}});
    }
    return GroupView::make("store", epoch, std::move(members)).value();
}

struct Cluster {
    explicit Cluster(std::uint32_t n, const RuntimeOptions& options = {}) : services(n) {
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            Runtime& runtime = rig.add("s" + std::to_string(rank), options);
            REQUIRE(runtime.add(services[rank]).ok());
            REQUIRE(runtime.join(view_of(n), rank).ok());
        }
        client = &rig.add("", options);
    }
    ~Cluster() {
        for (Config& service : services) service.held.clear();
    }

    std::vector<RankOutcome> broadcast(const Group& group, std::string_view text,
                                       GroupCallOptions options = {},
                                       const MethodId& method = set_config) {
        int completions = 0;
        std::vector<RankOutcome> result;
        const auto finished = [&](GroupOutcome all) {
            ++completions;
            result = std::move(all.ranks);
        };
        group.collective(method, BodyWriter::of(as_bytes(text)), options, finished);
        REQUIRE(completions == 0);
        REQUIRE(rig.run_until([&] { return completions > 0; }));
        rig.run_for(10ms);
        REQUIRE(completions == 1);
        return result;
    }

    std::vector<Config> services;
    SimRig rig;
    Runtime* client = nullptr;
};

void check_every_rank_once(const std::vector<RankOutcome>& outcomes, std::uint32_t n) {
    REQUIRE(outcomes.size() == n);
    for (std::uint32_t rank = 0; rank < n; ++rank) REQUIRE(outcomes[rank].rank == rank);
}

}  // namespace

TEST_CASE("a client's broadcast reaches every rank of any group once") {
    for (std::uint32_t n = 1; n <= 24; ++n) {
        Cluster cluster(n);
        const Group group = cluster.client->group(view_of(n)).value();
        const auto outcomes = cluster.broadcast(group, "x");
        check_every_rank_once(outcomes, n);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            REQUIRE(outcomes[rank].status.ok());
            REQUIRE(outcomes[rank].status.effect() == Effect::applied);
            REQUIRE(as_text(outcomes[rank].reply) == "was told x");
            REQUIRE(cluster.services[rank].values.size() == 1);
        }
    }
}

TEST_CASE("a collective runs only methods that are registered as collective") {
    Cluster cluster(5);
    const Group group = cluster.client->group(view_of(5)).value();
    const auto outcomes = cluster.broadcast(group, "x", {}, set_one);
    check_every_rank_once(outcomes, 5);
    for (const RankOutcome& outcome : outcomes) {
        CHECK(outcome.status.code() == Code::unimplemented);
        CHECK(outcome.status.effect() == Effect::none);
    }
    for (const Config& service : cluster.services) CHECK(service.values.empty());
    // A method that ran on no rank leaves no state: no timer is armed after a while.
    for (int again = 0; again < 3; ++again) cluster.broadcast(group, "x", {}, set_one);
    cluster.rig.run_for(200s);
    for (const auto& runtime : cluster.rig.runtimes) {
        CHECK(node_of(*runtime).context.timers().armed() == 0);
    }
}

TEST_CASE("any member's broadcast reaches every rank once, itself included") {
    const std::uint32_t n = 11;
    Cluster cluster(n);
    for (std::uint32_t root = 0; root < n; ++root) {
        const Group group = cluster.rig.runtimes[root]->group(view_of(n)).value();
        const auto outcomes = cluster.broadcast(group, std::to_string(root));
        check_every_rank_once(outcomes, n);
        for (const auto& outcome : outcomes) REQUIRE(outcome.status.ok());
        for (const Config& service : cluster.services) {
            REQUIRE(service.values.size() == root + 1);
            REQUIRE(service.values.back() == std::to_string(root));
        }
    }
}

TEST_CASE("a dead rank fails alone: its parent contacts the ranks below it") {
    const std::uint32_t n = 24;
    for (std::uint32_t dead = 0; dead < n; ++dead) {
        Cluster cluster(n);
        cluster.rig.kill("s" + std::to_string(dead));
        const Group group = cluster.client->group(view_of(n)).value();
        const auto outcomes = cluster.broadcast(group, "x");
        check_every_rank_once(outcomes, n);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            INFO("rank " << rank << ": " << outcomes[rank].status.to_string());
            REQUIRE(outcomes[rank].status.ok() == (rank != dead));
            REQUIRE(cluster.services[rank].values.size() == (rank == dead ? 0 : 1));
        }
        REQUIRE(outcomes[dead].status.code() == Code::unavailable);
        REQUIRE(outcomes[dead].status.effect() == Effect::none);
    }
}

TEST_CASE("a broadcast reports each dead rank and reaches every other rank once") {
    const std::uint32_t n = 33;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        Cluster cluster(n);
        std::set<std::uint32_t> dead;
        for (std::uint64_t i = 1 + random.next() % n; i > 0; --i) {
            dead.insert(static_cast<std::uint32_t>(random.next() % n));
        }
        for (const std::uint32_t rank : dead) cluster.rig.kill("s" + std::to_string(rank));
        const Group group = cluster.client->group(view_of(n)).value();
        // In the message, or by rendezvous: ranks forward it after the request is freed.
        const std::string text(seed % 4 == 0 ? 300'000 : 5000, static_cast<char>('a' + seed % 26));
        const auto outcomes = cluster.broadcast(group, text);
        check_every_rank_once(outcomes, n);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            INFO("rank " << rank << ": " << outcomes[rank].status.to_string());
            REQUIRE(outcomes[rank].status.ok() == !dead.count(rank));
            REQUIRE(cluster.services[rank].values.size() == (dead.count(rank) ? 0 : 1));
            if (!dead.count(rank)) REQUIRE(cluster.services[rank].values.front() == text);
        }
    }
}

TEST_CASE("a member forwards a body to an adopted subtree after the body's request is freed") {
    const std::uint32_t n = 160;
    const coll::Interval parent = coll::split({0, n}, {}).front();
    const coll::Interval child = coll::split({parent.first + 1, parent.last}, {}).front();
    REQUIRE(child.size() > 1);  // `parent` contacts the ranks below it.
    Cluster cluster(n);
    const Group group = cluster.client->group(view_of(n)).value();
    check_every_rank_once(cluster.broadcast(group, "all are connected"), n);
    for (Config& service : cluster.services) service.hold = true;
    std::vector<std::vector<RankOutcome>> outcomes;
    const std::vector<std::string> texts{std::string(5000, 'a'), std::string(5000, 'b'),
                                         std::string(200'000, 'c'), std::string(200'000, 'd')};
    // One after the other, so that later bodies reuse the memory of earlier ones; the child
    // forwards none.
    cluster.rig.kill("s" + std::to_string(child.first));
    for (const std::string& text : texts) {
        group.collective(set_config, BodyWriter::of(as_bytes(text)), {.timeout = 20s},
                         [&](GroupOutcome all) { outcomes.push_back(std::move(all.ranks)); });
        cluster.rig.run_for(20us);
    }
    for (int ms = 0; ms < 8000 && outcomes.size() < texts.size(); ++ms) {
        cluster.rig.run_for(1ms);
        for (Config& service : cluster.services) {
            for (Call& call : service.held) call.reply(as_bytes("well"));
            service.held.clear();
        }
    }
    REQUIRE(outcomes.size() == texts.size());
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        INFO("rank " << rank);
        if (rank == child.first) continue;
        const std::vector<std::string>& received = cluster.services[rank].values;
        REQUIRE(received.size() == texts.size() + 1);
        REQUIRE(
            std::is_permutation(texts.begin(), texts.end(), received.begin() + 1, received.end()));
    }
}

TEST_CASE("a rank that dies in its handler fails alone, and no other handler runs twice") {
    const std::uint32_t n = 24;
    Cluster cluster(n);
    for (Config& service : cluster.services) service.hold = true;
    const Group group = cluster.client->group(view_of(n)).value();
    std::vector<RankOutcome> outcomes;
    group.collective(set_config, {0, nullptr, [](void*, std::byte*) {}}, {.timeout = 5s},
                     [&](GroupOutcome all) { outcomes = std::move(all.ranks); });
    REQUIRE(cluster.rig.run_until([&] {
        for (const Config& service : cluster.services) {
            if (service.held.empty()) return false;
        }
        return true;
    }));
    const coll::Interval subtree = coll::split({0, n}, {}).front();
    REQUIRE(subtree.size() > 1);
    const std::uint32_t inner = subtree.first;
    cluster.rig.kill("s" + std::to_string(inner));
    const bool before = GENERATE(false, true);  // Replies before the next requests.
    if (!before) cluster.rig.run_for(1s);
    for (Config& service : cluster.services) {
        for (Call& call : service.held) call.reply(as_bytes("well"));
        service.held.clear();
    }
    REQUIRE(cluster.rig.run_until([&] { return !outcomes.empty(); }));
    check_every_rank_once(outcomes, n);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        INFO("rank " << rank << ": " << outcomes[rank].status.to_string());
        REQUIRE(outcomes[rank].status.ok() == (rank != inner));
        REQUIRE(cluster.services[rank].values.size() == 1);
        if (rank != inner) REQUIRE(as_text(outcomes[rank].reply) == "well");
    }
    REQUIRE(outcomes[inner].status.code() == Code::unavailable);
    REQUIRE(outcomes[inner].status.effect() == Effect::unknown);
}

TEST_CASE("ranks that die at any moment fail alone, and no handler runs twice", "[seeded]") {
    for (std::uint64_t run = 0; run < 100; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const auto n = static_cast<std::uint32_t>(2 + random.next() % 32);
        Cluster cluster(n);
        for (Config& service : cluster.services) service.hold = true;
        // From a client outside, or from a member that stays alive.
        const bool is_member = random.next() % 2;
        const auto root = static_cast<std::uint32_t>(random.next() % n);
        Runtime& caller = is_member ? *cluster.rig.runtimes[root] : *cluster.client;
        const Group group = caller.group(view_of(n)).value();
        std::vector<RankOutcome> outcomes;
        group.collective(set_config, {0, nullptr, [](void*, std::byte*) {}}, {.timeout = 20s},
                         [&](GroupOutcome all) { outcomes = std::move(all.ranks); });
        std::map<std::uint64_t, std::uint32_t> deaths;  // By millisecond.
        std::set<std::uint32_t> dead;
        for (std::uint64_t i = random.next() % 4; i > 0; --i) {
            const auto rank = static_cast<std::uint32_t>(random.next() % n);
            if (!is_member || rank != root) deaths[random.next() % 20] = rank;
        }
        for (std::uint64_t ms = 0; ms < 8000 && outcomes.empty(); ++ms) {
            cluster.rig.run_for(ms < 100 ? 100us : 1ms);
            if (const auto at = deaths.find(ms); at != deaths.end()) {
                dead.insert(at->second);
                cluster.rig.kill("s" + std::to_string(at->second));
            }
            for (Config& service : cluster.services) {
                if (service.held.empty() || random.next() % 8) continue;
                service.held.back().reply(as_bytes("well"));
                service.held.clear();
            }
        }
        check_every_rank_once(outcomes, n);
        cluster.rig.run_for(10s);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            INFO("rank " << rank << " of " << n << ": " << outcomes[rank].status.to_string());
            REQUIRE(cluster.services[rank].values.size() <= 1);
            if (!dead.count(rank)) {
                REQUIRE(outcomes[rank].status.ok());
                REQUIRE(as_text(outcomes[rank].reply) == "well");
            } else if (!outcomes[rank].status.ok()) {
                REQUIRE(outcomes[rank].status.code() == Code::unavailable);
            }
            if (outcomes[rank].status.effect() == Effect::none) {
                REQUIRE(cluster.services[rank].values.empty());
            }
        }
    }
}

TEST_CASE("a collective ends on every rank when its root dies") {
    const std::uint32_t n = 24;
    Cluster cluster(n);
    for (Config& service : cluster.services) service.hold = true;
    const Group group = cluster.rig.runtimes[0]->group(view_of(n)).value();
    group.collective(set_config, {0, nullptr, [](void*, std::byte*) {}}, {.timeout = no_timeout},
                     [](const GroupOutcome&) {});
    REQUIRE(cluster.rig.run_until([&] {
        for (const Config& service : cluster.services) {
            if (service.held.empty()) return false;
        }
        return true;
    }));
    cluster.services[0].held.clear();
    cluster.rig.kill("s0");
    cluster.rig.run_for(60s);
    for (Config& service : cluster.services)
        service.held.clear();  // Each replies INTERNAL; no parent is left.
    cluster.rig.run_for(1s);
    for (const auto& runtime : cluster.rig.runtimes) {
        CHECK(impl_of(*runtime).collectives.running() == 0);
    }
}

TEST_CASE("a handler that never replies fails only its own rank, at the deadline") {
    const std::uint32_t n = 24;
    for (std::uint32_t slow : {0u, 4u, 7u, 23u}) {
        Cluster cluster(n);
        cluster.services[slow].hold = true;
        const Group group = cluster.client->group(view_of(n)).value();
        const auto outcomes = cluster.broadcast(group, "x", {.timeout = 1s});
        check_every_rank_once(outcomes, n);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            if (rank == slow) {
                REQUIRE(outcomes[rank].status.code() == Code::deadline_exceeded);
                REQUIRE(outcomes[rank].status.effect() == Effect::unknown);
            } else {
                REQUIRE(outcomes[rank].status.ok());
            }
        }
    }
}

TEST_CASE("replies that do not fit into one message are refused one by one") {
    const std::uint32_t n = 10;  // Some are inner ranks.
    RuntimeOptions small;
    small.argument_bytes_max = 64 << 10;
    Cluster cluster(n, small);
    const Group group = cluster.client->group(view_of(n)).value();
    const auto outcomes = cluster.broadcast(group, std::string(40'000, 'y'));
    check_every_rank_once(outcomes, n);
    int exhausted = 0;
    for (const auto& outcome : outcomes) {
        if (outcome.status.ok()) continue;
        REQUIRE(outcome.status.code() == Code::resource_exhausted);
        REQUIRE(outcome.status.effect() == Effect::applied);
        ++exhausted;
    }
    CHECK(exhausted > 0);
    CHECK(exhausted < 10);
}

TEST_CASE("a collective carries large requests and replies without truncation") {
    const std::uint32_t n = 9;
    Cluster cluster(n);
    const Group group = cluster.client->group(view_of(n)).value();
    const std::string text(300'000, 'z');
    const auto outcomes = cluster.broadcast(group, text);
    check_every_rank_once(outcomes, n);
    for (const RankOutcome& outcome : outcomes) {
        INFO(outcome.status.to_string());
        REQUIRE(outcome.status.ok());
        REQUIRE(as_text(outcome.reply).size() >= text.size());
    }
}

namespace {

constexpr MethodId front("test.Front/Tell");

// A server in front of a group; the test provides its handler.
struct Front final : Service {
    Function<void(Call)> handle;
    Call open;  // The call that waits in the handler.
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(front, [this](Call call) { handle(std::move(call)); });
    }
};

struct FrontService {
    Front service;
};

struct FrontedCluster : FrontService, Cluster {
    explicit FrontedCluster(std::uint32_t n) : Cluster(n) {
        REQUIRE(middle.add(service).ok());
        group = middle.group(view_of(n)).value();
        channel = client->connect("sim://front").value();
        for (Config& each : services) each.hold = true;
    }
    ~FrontedCluster() { service.open = {}; }
    // Requires: the handler starts one collective.
    OperationId start(Duration timeout) {
        return channel.call(front, as_bytes("go"), {.timeout = timeout},
                            [](const Status&, ByteView) {});
    }
    bool all_hold() {
        return rig.run_until([&] {
            return std::all_of(services.begin(), services.end(),
                               [](const Config& each) { return !each.held.empty(); });
        });
    }
    void answer_all() {
        for (Config& each : services) {
            for (Call& call : each.held) call.reply(as_bytes("well"));
            each.held.clear();
        }
    }

    Runtime& middle = rig.add("front");
    Group group;
    Channel channel;
};

}  // namespace

TEST_CASE("a detached collective of a handler outlives the cancel of its call") {
    const std::uint32_t n = 3;
    FrontedCluster cluster(n);
    std::vector<RankOutcome> outcomes;
    cluster.service.handle = [&](Call call) {
        cluster.service.open = std::move(call);
        cluster.group.collective(set_config, BodyWriter::of(as_bytes("x")),
                                 {.timeout = 10s, .detached = true},
                                 [&](GroupOutcome all) { outcomes = std::move(all.ranks); });
    };
    const OperationId id = cluster.start(50ms);
    REQUIRE(cluster.all_hold());
    for (const Config& each : cluster.services) CHECK(each.held[0].time_left() > 5s);
    cluster.channel.cancel_call(id);
    cluster.rig.run_for(100ms);
    CHECK(cluster.service.open.cancelled());
    CHECK(outcomes.empty());
    cluster.answer_all();
    REQUIRE(cluster.rig.run_until([&] { return !outcomes.empty(); }));
    check_every_rank_once(outcomes, n);
    for (const RankOutcome& outcome : outcomes) CHECK(outcome.status.ok());
}

TEST_CASE("the completion of a handler's collective starts operations nested in its call") {
    FrontedCluster cluster(3);
    const bool detached = GENERATE(false, true);
    Status next;
    cluster.service.handle = [&](Call call) {
        cluster.service.open = std::move(call);
        cluster.group.collective(set_config, BodyWriter::of(as_bytes("x")), {.detached = detached},
                                 [&](const GroupOutcome&) {
                                     cluster.group.channel(0).value().call(
                                         set_one, {}, {.timeout = 10s},
                                         [&](const Status& status, ByteView) { next = status; });
                                 });
    };
    const OperationId id = cluster.start(5s);
    REQUIRE(cluster.all_hold());
    cluster.answer_all();
    REQUIRE(cluster.rig.run_until([&] { return !cluster.services[0].held.empty(); }));
    CHECK((cluster.services[0].held[0].time_left() <= 5s) == !detached);
    cluster.channel.cancel_call(id);
    cluster.rig.run_for(1ms);
    CHECK(cluster.services[0].held[0].cancelled() == !detached);
    cluster.answer_all();
    cluster.rig.run_for(1ms);
    CHECK(next.code() == (detached ? Code::ok : Code::cancelled));
}
