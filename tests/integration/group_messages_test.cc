// A broadcast costs exactly the messages of its tree: counted at each rank of a group over sm.
#include "api/runtime_impl.h"
#include "coll/tree.h"
#include "support/catch.h"
#include "support/test_timeout.h"

using namespace weft;
using test::test_timeout;

namespace {

constexpr std::uint32_t n = 16;
constexpr int outside = -1;  // No rank: a client.
constexpr MethodId count_method("test.Messages/Count");

struct Counter final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(count_method,
                      [this](Call call) {
                          ++ran;
                          call.reply(call.request());
                      },
                      {.collective = true});
    }
    int ran = 0;
};

// The calls of a runtime as a client, by outcome.
struct Messages {
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    std::uint64_t failed = 0;
    std::uint64_t again = 0;
    friend bool operator==(const Messages&, const Messages&) = default;

    static Messages of(Runtime& runtime) {
        const rpc::Client::Counters& counters = node_of(runtime).client.counters();
        Messages all{counters.submitted, 0, 0, counters.resent + counters.retried};
        for (std::size_t code = 0; code < counters.completed.size(); ++code) {
            (code == 0 ? all.answered : all.failed) += counters.completed[code];
        }
        return all;
    }
    Messages since(const Messages& then) const {
        return {asked - then.asked, answered - then.answered, failed - then.failed,
                again - then.again};
    }
};

// One thread turns all runtimes: they progress in turn_all() only.
struct Rig {
    Rig() {
        std::vector<Member> members;
        const std::string name = "sm://messages-" + std::to_string(::getpid()) + "-";
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            runtimes.push_back(Runtime::create({.manual = true}).value());
            REQUIRE(runtimes[rank].serve(services[rank], name + std::to_string(rank)).ok());
            members.push_back({rank, runtimes[rank].addresses()});
        }
        runtimes.push_back(Runtime::create({.manual = true}).value());
        const GroupView view = GroupView::make("messages", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            REQUIRE(runtimes[rank].join(view, rank).ok());
        }
        for (Runtime& runtime : runtimes) groups.push_back(runtime.group(view).value());
    }
    std::uint32_t turn_all() {
        std::uint32_t events = 0;
        for (Runtime& runtime : runtimes) events += runtime.turn();
        return events;
    }
    static std::size_t index_of(int caller) {
        return caller == outside ? n : static_cast<std::size_t>(caller);
    }
    // Returns the time until no runtime had anything left to do.
    Duration broadcast(int caller, const Topology& topology) {
        std::optional<GroupOutcome> outcome;
        const TimePoint begun = std::chrono::steady_clock::now();
        groups[index_of(caller)].collective(count_method, BodyWriter::of(as_bytes("x")),
                                            {.timeout = test_timeout, .topology = topology},
                                            [&](GroupOutcome all) { outcome = std::move(all); });
        while (!outcome) {
            turn_all();
            REQUIRE(std::chrono::steady_clock::now() - begun < 2 * test_timeout);
        }
        for (int idle = 0; idle < 8;) idle = turn_all() == 0 ? idle + 1 : 0;
        INFO(outcome->status.to_string());
        REQUIRE(outcome->status.ok());
        REQUIRE(outcome->ranks.size() == n);
        return std::chrono::steady_clock::now() - begun;
    }
    std::vector<Messages> messages() {
        std::vector<Messages> all;
        for (Runtime& runtime : runtimes) all.push_back(Messages::of(runtime));
        return all;
    }

    Counter services[n];
    std::vector<Runtime> runtimes;  // By rank; then the client's.
    std::vector<Group> groups;
};

struct Shape {
    const char* name;
    Topology::Shape topology;
    coll::Tree tree;
};
const Shape shapes[] = {
    {"flat", Topology::Shape::flat, {coll::Shape::flat}},
    {"k_ary 2", Topology::Shape::k_ary, {coll::Shape::k_ary, 2}},
    {"k_nomial 2", Topology::Shape::k_nomial, {coll::Shape::k_nomial, 2}},
    {"k_nomial 4", Topology::Shape::k_nomial, {coll::Shape::k_nomial, 4}},
    {"greedy", Topology::Shape::greedy, {coll::Shape::greedy, 16}},
};

// The number of children of each rank and of the client; `parents`: the number of parents of a
// rank.
struct Family {
    std::vector<std::uint64_t> children = std::vector<std::uint64_t>(n + 1);
    std::vector<int> parents = std::vector<int>(n);

    Family(const coll::Tree& tree, int caller) {
        if (caller == outside) {
            add(n, {0, n}, tree, 0);
        } else {
            const auto root = static_cast<std::uint32_t>(caller);
            add(root, {1, n}, tree, root);
        }
    }

  private:
    void add(std::uint32_t above, coll::Interval below, const coll::Tree& tree,
             std::uint32_t root) {
        for (const coll::Interval child : coll::split(below, tree)) {
            const std::uint32_t rank = coll::rank_at(child.first, root, n);
            ++children[above];
            ++parents[rank];
            if (child.size() > 1) add(rank, {child.first + 1, child.last}, tree, root);
        }
    }
};

// Each parent sends each child one request, and receives one reply from it.
void check_messages(Rig& rig, const Shape& shape, int caller) {
    const Family family(shape.tree, caller);
    for (int rank = 0; rank < static_cast<int>(n); ++rank) {
        REQUIRE(family.parents[static_cast<std::size_t>(rank)] == (rank == caller ? 0 : 1));
    }
    const Topology topology{.shape = shape.topology, .fanout = shape.tree.fanout};
    rig.broadcast(caller, topology);  // Connects.
    // A machine that stalls for longer than the progress interval causes more messages: try again.
    std::vector<Messages> before, after;
    for (int tries = 0;; ++tries) {
        for (Counter& service : rig.services) service.ran = 0;
        before = rig.messages();
        const Duration took = rig.broadcast(caller, topology);
        after = rig.messages();
        if (took < 100ms) break;
        REQUIRE(tries < 100);
    }
    for (std::uint32_t at = 0; at <= n; ++at) {
        INFO(shape.name << ", caller " << caller << ", at " << at);
        const Messages all = after[at].since(before[at]);
        CHECK(all.asked == family.children[at]);
        CHECK(all.answered == family.children[at]);
        CHECK(all.failed == 0);
        CHECK(all.again == 0);
        CHECK(node_of(rig.runtimes[at]).server.executing() == 0);
        if (at < n) CHECK(rig.services[at].ran == 1);
    }
}

}  // namespace

TEST_CASE("a broadcast sends each child one request, gets one answer, and nothing else") {
    Rig rig;
    for (const Shape& shape : shapes) {
        for (const int caller : {outside, 0, 7, 15}) check_messages(rig, shape, caller);
    }
}
