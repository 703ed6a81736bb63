// The cost of a frame at its receiver depends neither on what other peers hold nor on earlier
// peers: each kind of frame, and the end of a connection, against fresh tables and against full
// ones.
#include <chrono>

#include "support/raw_peer.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr int frames = 32, ends = 8, batches = 12;

struct Full : Victim {
    explicit Full(bool rma_checked) : Victim(rma_checked) {}

    void fill(bool with_grants) {
        api::Node& node = node_of(server);
        // As many transfers as the limit allows; all have completed.
        std::size_t left = 65'000;
        for (std::size_t i = left; i > 0; --i) {
            node.bulk.transfers.conclude([&left](const Status&) { --left; }, Status());
        }
        REQUIRE(rig.run_until([&] { return left == 0; }));
        for (std::size_t i = 0; i < 3000; ++i) {
            regions.push_back(
                server.expose(service.memory.slice(i, 8), {.access = Access::read}).value());
        }
        // As many lost sessions as the limit allows.
        RawPeer lost(rig);
        for (std::size_t i = 0; i < rpc::ServerSessions::sessions_max; ++i) {
            lost.connect("server");
            lost.close();
        }
        if (!with_grants) return;
        for (RawPeer& holder : holders) {
            holder.connect("server");
            const Frame grant = open(region.ref());
            for (int i = 0; i < 16'000; ++i) {
                while (!holder.send(grant)) {
                    REQUIRE_FALSE(holder.lost);
                    holder.wait();
                    holder.take();
                }
                if (i % 32 == 0) holder.wait();
            }
            holder.wait(1ms);
        }
    }

    std::vector<Region> regions;
    RawPeer holders[2] = {RawPeer(rig), RawPeer(rig)};
};

using Clock = std::chrono::steady_clock;

// The least time of some batches, which excludes other work of the machine.
template <class Work>
Clock::duration least(Work&& work) {
    Clock::duration best = Clock::duration::max();
    for (int i = 0; i < batches; ++i) {
        const auto begin = Clock::now();
        work();
        best = std::min(best, Clock::now() - begin);
    }
    return best;
}

Clock::duration cost_of(RawPeer& raw, const Frame& frame) {
    return least([&] {
        if (!raw.peer || raw.lost) raw.connect("server");
        for (int i = 0; i < frames && !raw.lost; ++i) (void)raw.send(frame);
        raw.wait();
        raw.take();
    });
}

Clock::duration cost_of_ends(RawPeer& raw) {
    return least([&] {
        for (int i = 0; i < ends; ++i) {
            if (!raw.peer || raw.lost) raw.connect("server");
            (void)raw.send(Frame(1));
            raw.wait();
            REQUIRE(raw.lost);
        }
    });
}

}  // namespace

TEST_CASE("a frame costs the same when the tables of its receiver are full") {
    const bool checked = GENERATE(true, false);
    Victim fresh(checked);
    Full full(checked);
    full.fill(!checked);
    RawPeer to_fresh(fresh.rig), to_full(full.rig);
    const auto compare = [](int kind, Clock::duration before, Clock::duration after) {
        using std::chrono::microseconds;
        INFO("kind " << kind << ": " << std::chrono::duration_cast<microseconds>(before).count()
                     << " us with fresh tables, "
                     << std::chrono::duration_cast<microseconds>(after).count() << " us with full");
        CHECK(after < 4 * before + 200us);
    };
    const std::vector<Frame> to_one = fresh.good_frames(), to_other = full.good_frames();
    for (std::size_t i = 0; i < to_one.size(); ++i) {
        compare(static_cast<int>(head_of(to_one[i]).kind), cost_of(to_fresh, to_one[i]),
                cost_of(to_full, to_other[i]));
    }
    compare(0, cost_of_ends(to_fresh), cost_of_ends(to_full));
}
