// All operations at once among three peers, from a seed.
#include <algorithm>

#include "support/na_rma.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

namespace {

constexpr std::size_t slice_bytes = 32 * 1024;

// One direction between two nodes: messages, and transfers into its own slice.
struct Lane {
    NaNode* from;
    NaNode* to;
    PeerId there;  // The id of `to` at `from`.
    PeerId here;
    std::unique_ptr<ExposedMemory> region;  // Exposed by `to`.
    Buffer local;
    std::vector<std::byte> shadow;
    std::uint64_t cookie = 0;
    RmaItem item;

    void check_transfer() {
        if (cookie == 0 || !from->rma_done.contains(cookie)) return;
        REQUIRE(from->rma_done.at(cookie) == Code::ok);
        const auto at = shadow.begin() + static_cast<std::ptrdiff_t>(item.offset);
        if (item.kind == RmaKind::put) std::ranges::copy(item.local, at);
        REQUIRE(std::equal(item.local.begin(), item.local.end(), at));
        REQUIRE(std::ranges::equal(region->bytes(), shadow));
        cookie = 0;
    }

    void start_transfer(base::Random& random) {
        if (cookie != 0) return;
        const std::size_t offset = random.next() % slice_bytes;
        const std::size_t bytes = 1 + random.next() % (slice_bytes - offset);
        const Bytes piece = local.bytes().first(bytes);
        const bool puts = (random.next() & 1) != 0;
        if (puts) fill_random(piece, random);
        item = puts ? region->put(there, offset, piece) : region->get(there, offset, piece);
        cookie = from->post(item);
    }
};

std::size_t random_size(base::Random& random, std::size_t largest) {
    const std::uint64_t kind = random.next() % 20;
    if (kind == 0) return 8 + random.next() % (largest - 7);
    if (kind < 5) return 8 + random.next() % 4000;
    return 8 + random.next() % 200;
}

}  // namespace

CONFORMANCE_SEEDED("random traffic among three peers arrives complete and in order") {
    const std::uint64_t index = GENERATE(range(0, 8));
    const std::uint64_t seed = seed_of(index);
    auto rig = NaRig::on<TestType>(seed);
    if (!rig.usable()) return;
    INFO("repeat with TEST_SEED=" << seed);
    if (!rig.wire.world && index >= 3) return;  // Real time is more expensive.
    std::vector<Lane> lanes;
    NaNode* nodes[] = {&rig.open(), &rig.open(), &rig.open()};
    for (int i = 0; i < 3; ++i) {
        for (int j = i + 1; j < 3; ++j) {
            const PeerId there = rig.connect(*nodes[i], *nodes[j]);
            const PeerId here = nodes[j]->peer_of(nodes[i]->incarnation);
            lanes.push_back({nodes[i], nodes[j], there, here, {}, {}, {}, 0, {}});
            lanes.push_back({nodes[j], nodes[i], here, there, {}, {}, {}, 0, {}});
        }
    }
    const bool transfers = rig.caps().rma;
    for (Lane& lane : lanes) {
        if (!transfers) break;
        lane.region =
            std::make_unique<ExposedMemory>(rig, *lane.to, slice_bytes, Access::read_write);
        lane.shadow.assign(lane.region->bytes().begin(), lane.region->bytes().end());
        lane.local = rig.allocate(slice_bytes);
    }
    const std::size_t largest = nodes[0]->endpoint->limits().message_bytes_max;
    for (int step = 0; step < 4000; ++step) {
        Lane& lane = lanes[rig.random.next() % lanes.size()];
        switch (rig.random.next() % 8) {
            case 0:
                if (transfers) lane.start_transfer(rig.random);
                break;
            case 1: (*lane.from)->flush(); break;
            case 2: lane.to->poll(1 + rig.random.next() % 16); break;
            case 3: rig.pump(); break;
            default: lane.from->send(lane.there, random_size(rig.random, largest)); break;
        }
        for (Lane& each : lanes) each.check_transfer();
    }
    for (Lane& lane : lanes) {
        REQUIRE(rig.pump_until([&] {
            lane.check_transfer();
            return lane.cookie == 0 &&
                   lane.to->at(lane.here).received == lane.from->at(lane.there).sent;
        }));
        CHECK(lane.from->at(lane.there).sent > 0);
        CHECK(lane.from->downs.empty());
    }
}
