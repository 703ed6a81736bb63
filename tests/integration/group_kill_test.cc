// Servers of a group are killed, or stopped, during broadcasts in which they have ranks below them:
// the outcomes at the caller, the time until then, and the ranks that ran.
//
// KILLS=n kills so many instead of 20 in each test: each moment with each shape twice.
#include <map>
#include <set>

#include "base/random.h"
#include "coll/tree.h"
#include "support/process_group.h"
#include "support/seed.h"

using namespace weft;
using test::test_timeout, test::promised, test::ProcessGroup;

namespace {

constexpr std::uint32_t n = 16;

struct Shape {
    Topology topology;
    coll::Tree tree;  // The same shape.
};
const Shape shapes[] = {
    {{.shape = Topology::Shape::k_nomial, .fanout = 2}, {coll::Shape::k_nomial, 2}},
    {{.shape = Topology::Shape::k_ary, .fanout = 2}, {coll::Shape::k_ary, 2}},
};

// The inner ranks of a broadcast by an outside client, each with the ranks below it.
using Ranks = std::set<std::uint32_t>;
using Inner = std::map<std::uint32_t, Ranks>;
void add_inner(Inner& inner, coll::Interval below, const coll::Tree& tree) {
    for (const coll::Interval child : coll::split(below, tree)) {
        for (std::uint32_t at = child.first + 1; at < child.last; ++at) {
            inner[child.first].insert(at);
        }
        if (child.size() > 1) add_inner(inner, {child.first + 1, child.last}, tree);
    }
}
Inner inner_of(const coll::Tree& tree) {
    Inner inner;
    add_inner(inner, {0, n}, tree);
    return inner;
}

enum class Moment : std::uint8_t {
    all_run,         // All handlers run.
    outlasted,       // As all_run; the others run on until the ranks below have another parent.
    below_answered,  // Its handler waits, and the ranks below have replied to it.
    any,             // No handler waits.
    before,          // Dead already, but its connections have not detected it.
};
constexpr const char* name_of(Moment moment) {
    constexpr const char* names[] = {"all run", "outlasted", "below answered", "any", "before"};
    return names[static_cast<int>(moment)];
}

Duration since(TimePoint then) { return std::chrono::steady_clock::now() - then; }

// Outlives the client, which completes broadcasts in flight.
struct Broadcast {
    std::uint32_t number = 0;
    int completions = 0;
    GroupOutcome outcome;
};

class Rig {
  public:
    explicit Rig(const std::string& uri) : servers(n, uri) {}

    std::shared_ptr<Broadcast> broadcast(const Shape& shape, std::uint32_t number) {
        auto made = std::make_shared<Broadcast>();
        made->number = number;
        std::byte body[4];
        base::store(body, number);
        group.collective(test::run_method, BodyWriter::of(body),
                         {.timeout = 10s, .topology = shape.topology},
                         [made](GroupOutcome outcome) {
                             ++made->completions;
                             made->outcome = std::move(outcome);
                         });
        return made;
    }
    // Polls `done` again and again, since other processes change it.
    template <class Done>
    bool turn_until(Done done) {
        const TimePoint begun = std::chrono::steady_clock::now();
        while (!done()) {
            if (since(begun) > test_timeout) return false;
            client.turn_until([&] { return done(); }, 1ms);
        }
        return true;
    }
    void turn_for(Duration time) {
        client.turn_until([] { return false; }, time);
    }
    bool run_everywhere(std::uint32_t number, std::uint32_t but = n) {
        return turn_until([&] {
            for (std::uint32_t rank = 0; rank < n; ++rank) {
                if (rank != but && servers.ran(rank, number) == 0) return false;
            }
            return true;
        });
    }
    void open_all(std::uint32_t number) {
        for (std::uint32_t rank = 0; rank < n; ++rank) servers.open(rank, number);
    }
    // Waits until `rank` has no request in flight to its children.
    void wait_for_answers_to(std::uint32_t rank) {
        struct Told {
            bool done = false;
            std::string asks;
        };
        const auto told = std::make_shared<Told>();
        const Channel channel = group.channel(rank).value();
        do {
            told->done = false;
            channel.call(test::asks_method, {}, {.timeout = test_timeout},
                         [told](const Status& status, ByteView reply) {
                             told->done = true;
                             told->asks = status.ok() ? std::string(as_text(reply)) : "";
                         });
            REQUIRE(client.turn_until([&] { return told->done; }, test_timeout));
            REQUIRE(told->asks != "");
        } while (told->asks != "0");
    }
    // Broadcasts until all ranks reply over the connections of this shape; returns the time of a
    // broadcast. The parent of a restarted rank may detect only now that its connection is lost.
    Duration warm_up(const Shape& shape, const Ranks& came_again = {}) {
        for (int tries = 1;; ++tries) {
            const std::uint32_t number = ++last;
            INFO("warm up, broadcast " << number << ", try " << tries);
            open_all(number);
            const TimePoint begun = std::chrono::steady_clock::now();
            const auto made = broadcast(shape, number);
            REQUIRE(turn_until([&] { return made->completions > 0; }));
            const Duration took = since(begun);
            if (judge(*made, came_again) && tries > 1) return took;
            REQUIRE(tries < 5);
        }
    }
    // Checks that each rank outside of `may_fail` ran it once and replied. Returns whether all
    // replied.
    bool judge(const Broadcast& made, const Ranks& may_fail) {
        CHECK(made.completions == 1);
        REQUIRE(made.outcome.ranks.size() == n);
        std::optional<std::uint32_t> first_failed;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            const RankOutcome& one = made.outcome.ranks[rank];
            INFO("rank " << rank << ": " << one.status.to_string());
            CHECK(one.rank == rank);
            if (may_fail.contains(rank) && !one.status.ok()) {
                if (!first_failed) first_failed = rank;
                judge_killed(made, one);
                continue;
            }
            CHECK(one.status.ok());
            CHECK(servers.ran(rank, made.number) == 1);
            CHECK(as_text(one.reply) == std::to_string(rank));
        }
        const Status& all = made.outcome.status;
        INFO(all.to_string());
        CHECK(all.code() == (first_failed ? Code::unavailable : Code::ok));
        if (first_failed) {
            const std::string named = "rank " + std::to_string(*first_failed) + ":";
            CHECK(all.to_string().find(named) != std::string::npos);
        }
        return !first_failed;
    }

    std::uint32_t last = 0;  // Number of the last broadcast.
    ProcessGroup servers;
    Runtime client = Runtime::create({.manual = true}).value();
    const Group group = client.group(servers.view()).value();

  private:
    void judge_killed(const Broadcast& made, const RankOutcome& one) {
        const int ran = servers.ran(one.rank, made.number);
        CHECK(one.status.code() == Code::unavailable);
        CHECK(one.status.peer() == servers.address(one.rank));
        CHECK(ran <= (one.status.effect() == Effect::none ? 0 : 1));
    }
};

// The longest wait for a lost connection, and for a silent rank.
constexpr Duration adopted_in = 1200ms;

// Kills one rank during a broadcast; returns the time from the kill to the completion.
Duration kill_one(Rig& rig, const Shape& shape, Moment moment, std::uint32_t rank,
                  const Ranks& below, Duration random) {
    const std::uint32_t number = ++rig.last;
    ProcessGroup& servers = rig.servers;
    const bool holds = moment <= Moment::below_answered;
    if (!holds) rig.open_all(number);
    if (moment == Moment::before) servers.kill(rank);
    TimePoint killed = std::chrono::steady_clock::now();
    const auto made = rig.broadcast(shape, number);
    if (moment == Moment::any) rig.turn_for(random);
    if (holds) REQUIRE(rig.run_everywhere(number));
    if (moment == Moment::below_answered) {
        for (const std::uint32_t one : below) servers.open(one, number);
        rig.wait_for_answers_to(rank);
    }
    if (moment != Moment::before) {
        killed = std::chrono::steady_clock::now();
        servers.kill(rank);
    }
    if (moment == Moment::outlasted) rig.turn_for(adopted_in);
    if (holds) CHECK(made->completions == 0);
    if (holds) rig.open_all(number);
    REQUIRE(rig.turn_until([&] { return made->completions > 0; }));
    const Duration took = since(killed);
    const bool all_answered = rig.judge(*made, {rank});
    if (moment != Moment::any) CHECK_FALSE(all_answered);
    if (holds) CHECK(made->outcome.ranks[rank].status.effect() == Effect::unknown);
    if (moment != Moment::any) CHECK(servers.ran(rank, number) == (holds ? 1 : 0));
    return took;
}

void kill_often(const std::string& uri) {
    const std::uint64_t seed = test::seed_of(0);
    base::SeededRandom random(seed);
    Rig rig(uri);
    Ranks came_again;
    const std::uint64_t kills = test::setting("KILLS", 20);
    for (std::uint64_t i = 0; i < kills; ++i) {
        const Shape& shape = shapes[i / 5 % 2];
        const auto moment = static_cast<Moment>(i % 5);
        const Inner inner = inner_of(shape.tree);
        const auto chosen =
            std::next(inner.begin(), static_cast<std::ptrdiff_t>(random.next() % inner.size()));
        INFO(uri << ", TEST_SEED=" << seed << ", kill " << i << " of rank " << chosen->first
                 << ", moment: " << name_of(moment) << ", shape " << i / 5 % 2);
        const Duration healthy = rig.warm_up(shape, came_again);
        const auto span = static_cast<std::uint64_t>(healthy.count()) * 3 / 2 + 1;
        const Duration at(static_cast<std::int64_t>(random.next() % span));
        const Duration took = kill_one(rig, shape, moment, chosen->first, chosen->second, at);
        CHECK(took < promised(2s));
        rig.servers.start(chosen->first);
        came_again.insert(chosen->first);
    }
}

const std::string sm = "sm://group-kill-" + std::to_string(::getpid());
const std::string tcp = "tcp://127.0.0.1:0";

}  // namespace

TEST_CASE("sm: SIGKILL of an inner rank during a broadcast costs its own outcome only",
          "[kill][group]") {
    kill_often(sm);
}

TEST_CASE("tcp: SIGKILL of an inner rank during a broadcast costs its own outcome only",
          "[kill][group]") {
    kill_often(tcp);
}

// Stops `rank` before a broadcast, and continues it once all other ranks have run.
static void stop_one(Rig& rig, const Shape& shape, std::uint32_t rank) {
    rig.warm_up(shape);
    const std::uint32_t number = ++rig.last;
    rig.open_all(number);
    rig.servers.stop(rank);
    const TimePoint begun = std::chrono::steady_clock::now();
    const auto made = rig.broadcast(shape, number);
    REQUIRE(rig.run_everywhere(number, rank));
    CHECK(since(begun) < promised(1500ms));
    CHECK(made->completions == 0);
    CHECK(rig.servers.ran(rank, number) == 0);
    rig.servers.go_on(rank);
    REQUIRE(rig.turn_until([&] { return made->completions > 0; }));
    CHECK(since(begun) < promised(3s));
    CHECK(rig.judge(*made, {}));
}

TEST_CASE("ranks below a stopped rank are reached in a second, and the broadcast completes",
          "[kill][group]") {
    for (const std::string& uri : {sm, tcp}) {
        Rig rig(uri);
        for (const Shape& shape : shapes) {
            // The child of the client with the most ranks below it, and an inner rank below that
            // child.
            const Inner inner = inner_of(shape.tree);
            const auto most = std::max_element(
                inner.begin(), inner.end(),
                [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
            const std::uint32_t deeper =
                *std::find_if(most->second.begin(), most->second.end(),
                              [&](std::uint32_t rank) { return inner.contains(rank); });
            for (const std::uint32_t rank : {most->first, deeper}) {
                INFO(uri << ", rank " << rank << " with " << inner.at(rank).size() << " below");
                stop_one(rig, shape, rank);
            }
        }
    }
}
