// Servers of a group die by SIGKILL, or stand still, in the middle of broadcasts through trees in
// which they have others below them: what the caller is told, how soon, and what ran where.
//
// KILLS=n kills so many instead of 50 in each test.
#include <map>
#include <set>

#include "base/random.h"
#include "coll/tree.h"
#include "support/process_group.h"
#include "support/seed.h"

using namespace weft;
using test::patience, test::promised, test::ProcessGroup;

namespace {

constexpr std::uint32_t n = 16;

struct Shape {
    Topology topology;
    coll::Tree tree;  // The same.
};
const Shape shapes[] = {
    {{.shape = Topology::Shape::k_nomial, .fanout = 2}, {coll::Shape::k_nomial, 2}},
    {{.shape = Topology::Shape::k_ary, .fanout = 2}, {coll::Shape::k_ary, 2}},
};

// Those with others below them, and these, where an outside client asks: by rank.
using Inner = std::map<std::uint32_t, std::set<std::uint32_t>>;
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
    all_run,         // Its handler and all others'.
    below_answered,  // Its handler waits, and it has the answers of those below.
    any,             // Nobody waits for anything.
    before,          // Dead already, but its connections don't know.
};
constexpr const char* name_of(Moment moment) {
    constexpr const char* names[] = {"all run", "below answered", "any", "before"};
    return names[static_cast<int>(moment)];
}

Duration since(TimePoint then) { return std::chrono::steady_clock::now() - then; }

// Outlives the client, which completes what is under way.
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
    // What others do is looked for again and again.
    template <class Done>
    bool turn_until(Done done) {
        const TimePoint begun = std::chrono::steady_clock::now();
        while (!done()) {
            if (since(begun) > patience) return false;
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
    // None of those whom it has asked has an answer left to give.
    void wait_for_answers_to(std::uint32_t rank) {
        struct Told {
            bool done = false;
            std::string asks;
        };
        const auto told = std::make_shared<Told>();
        const Channel channel = group.channel(rank).value();
        do {
            told->done = false;
            channel.call(test::asks_method, {}, {.timeout = patience},
                         [told](const Status& status, ByteView reply) {
                             told->done = true;
                             told->asks = status.ok() ? std::string(as_text(reply)) : "";
                         });
            REQUIRE(client.turn_until([&] { return told->done; }, patience));
            REQUIRE(told->asks != "");
        } while (told->asks != "0");
    }
    // All are there, and connected as this shape wants it; how long it took.
    Duration warm_up(const Shape& shape) {
        const std::uint32_t number = ++last;
        INFO("warm up, broadcast " << number);
        open_all(number);
        const TimePoint begun = std::chrono::steady_clock::now();
        const auto made = broadcast(shape, number);
        REQUIRE(turn_until([&] { return made->completions > 0; }));
        const Duration took = since(begun);
        judge(*made, n);
        return took;
    }
    // Of all but one who may have died each ran it once, and said so.
    void judge(const Broadcast& made, std::uint32_t killed) {
        CHECK(made.completions == 1);
        REQUIRE(made.outcome.ranks.size() == n);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            const RankOutcome& one = made.outcome.ranks[rank];
            INFO("rank " << rank << ": " << one.status.to_string());
            CHECK(one.rank == rank);
            if (rank == killed && !one.status.ok()) {
                judge_killed(made, one);
                continue;
            }
            CHECK(one.status.ok());
            CHECK(servers.ran(rank, made.number) == 1);
            CHECK(as_text(one.reply) == std::to_string(rank));
        }
        if (killed == n || made.outcome.ranks[killed].status.ok()) CHECK(made.outcome.status.ok());
    }

    std::uint32_t last = 0;  // Number of a broadcast.
    ProcessGroup servers;
    Runtime client = Runtime::create({.manual = true}).value();
    const Group group = client.group(servers.view()).value();

  private:
    void judge_killed(const Broadcast& made, const RankOutcome& one) {
        CHECK(one.status.code() == Code::unavailable);
        CHECK(one.status.peer() == servers.address(one.rank));
        CHECK(servers.ran(one.rank, made.number) <= 1);
        if (one.status.effect() == Effect::none) CHECK(servers.ran(one.rank, made.number) == 0);
        const Status& all = made.outcome.status;
        INFO(all.to_string());
        CHECK(all.code() == Code::unavailable);
        CHECK(all.to_string().find("rank " + std::to_string(one.rank)) != std::string::npos);
    }
};

// One rank dies during a broadcast; how long after that it went on.
Duration kill_one(Rig& rig, const Shape& shape, Moment moment, std::uint32_t rank,
                  const std::set<std::uint32_t>& below, Duration random) {
    const std::uint32_t number = ++rig.last;
    ProcessGroup& servers = rig.servers;
    const bool holds = moment == Moment::all_run || moment == Moment::below_answered;
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
    if (holds) CHECK(made->completions == 0);
    if (moment != Moment::before) {
        killed = std::chrono::steady_clock::now();
        servers.kill(rank);
    }
    if (holds) rig.open_all(number);
    REQUIRE(rig.turn_until([&] { return made->completions > 0; }));
    const Duration took = since(killed);
    rig.judge(*made, rank);
    const RankOutcome& its = made->outcome.ranks[rank];
    if (moment != Moment::any) CHECK_FALSE(its.status.ok());
    if (holds) CHECK(its.status.effect() == Effect::unknown);
    CHECK(servers.ran(rank, number) <= (moment == Moment::before ? 0 : 1));
    return took;
}

void kill_often(const std::string& uri) {
    const std::uint64_t seed = test::seed_of(0);
    base::SeededRandom random(seed);
    Rig rig(uri);
    Duration healthy = 1ms, longest = 0ms;
    const std::uint64_t kills = test::setting("KILLS", 50);
    for (std::uint64_t i = 0; i < kills; ++i) {
        const Shape& shape = shapes[i / 4 % 2];
        const auto moment = static_cast<Moment>(i % 4);
        const Inner inner = inner_of(shape.tree);
        const auto chosen = std::next(inner.begin(), static_cast<std::ptrdiff_t>(
                                                         random.next() % inner.size()));
        INFO(uri << ", TEST_SEED=" << seed << ", kill " << i << " of rank " << chosen->first
                 << ", moment: " << name_of(moment) << ", shape " << i / 4 % 2);
        rig.warm_up(shape);  // Those who come again have to be met.
        healthy = rig.warm_up(shape);
        const auto span = static_cast<std::uint64_t>(healthy.count()) * 3 / 2 + 1;
        const Duration at(static_cast<std::int64_t>(random.next() % span));
        const Duration took = kill_one(rig, shape, moment, chosen->first, chosen->second, at);
        if (std::getenv("KILL_TIMES")) {
            std::fprintf(stderr, "%s: %.1f ms\n", name_of(moment),
                         std::chrono::duration<double, std::milli>(took).count());
        }
        longest = std::max(longest, took);
        CHECK(took < promised(2s));
        rig.servers.start(chosen->first);
    }
}

const std::string sm = "sm://group-kill-" + std::to_string(::getpid());
const std::string tcp = "tcp://127.0.0.1:0";

}  // namespace

TEST_CASE("sm: SIGKILL of an inner rank during a broadcast costs its own outcome only", "[kill]") {
    kill_often(sm);
}

TEST_CASE("tcp: SIGKILL of an inner rank during a broadcast costs its own outcome only", "[kill]") {
    kill_often(tcp);
}

TEST_CASE("those below a rank that stands still are reached in a second, and all complete",
          "[kill]") {
    for (const std::string& uri : {sm, tcp}) {
        Rig rig(uri);
        for (const Shape& shape : shapes) {
            for (const auto& [rank, below] : inner_of(shape.tree)) {
                INFO(uri << ", rank " << rank << " with " << below.size() << " below");
                rig.warm_up(shape);
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
                rig.judge(*made, n);
            }
        }
    }
}
