// The empty transport of src/na/template keeps the part of the contract that needs no network.
#include "na/template/template.h"

#include <array>

#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace na_template_test {
namespace {

struct Rig {
    Result<PeerId> connect(const char* uri) {
        return endpoint->connect(*parse_address(uri), TimePoint{});
    }
    std::span<const Event> poll() { return {events.data(), endpoint->poll(events, TimePoint{})}; }

    base::SeededRandom random{1};
    base::Log log;
    std::shared_ptr<Arena> arena = Arena::make();
    std::unique_ptr<Provider> provider = make_template_provider();
    std::unique_ptr<Endpoint> endpoint =
        *provider->open(nullptr, {random, log, *arena, {1, 2}, "", 2}, TimePoint{});
    std::array<Event, 4> events;
};

const Address nowhere{"template", "a", "", 0};

}  // namespace

TEST_CASE("template: a connect ends with exactly one peer_down and its reason") {
    Rig rig;
    const Result<PeerId> peer = rig.endpoint->connect(nowhere, TimePoint{});
    REQUIRE(peer);
    CHECK(rig.endpoint->reserve(*peer, 64) == nullptr);
    CHECK(rig.endpoint->info(*peer) == nullptr);
    const auto events = rig.poll();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::peer_down);
    CHECK(events[0].code == Code::unavailable);
    CHECK(events[0].peer == *peer);
    CHECK(rig.endpoint->error() == "nothing listens at template://a");
    CHECK(rig.poll().empty());
    CHECK(rig.endpoint->unsent(*peer) == 0);
}

TEST_CASE("template: a peer that is closed before its peer_down gives no event") {
    Rig rig;
    const Result<PeerId> peer = rig.endpoint->connect(nowhere, TimePoint{});
    REQUIRE(peer);
    rig.endpoint->close(*peer);
    CHECK(rig.poll().empty());
}

TEST_CASE(
    "template: an index is used again in the poll after its peer_down, or when its peer is "
    "closed") {
    Rig rig;
    const PeerId first = rig.endpoint->connect(nowhere, TimePoint{}).value();
    const PeerId second = rig.endpoint->connect(nowhere, TimePoint{}).value();
    CHECK(second.index != first.index);
    rig.endpoint->close(second);
    CHECK(rig.endpoint->connect(nowhere, TimePoint{}).value().index == second.index);
    REQUIRE(rig.poll().size() == 1);
    const PeerId within = rig.endpoint->connect(nowhere, TimePoint{}).value();
    CHECK(within.index != first.index);
    rig.endpoint->close(within);
    REQUIRE(rig.poll().size() == 1);  // Of the second peer at the index of `second`.
    CHECK(rig.endpoint->connect(nowhere, TimePoint{}).value().index == first.index);
}

TEST_CASE("template: a connect beyond peers_max fails") {
    Rig rig;
    const auto closed =
        rig.provider->open(nullptr, {rig.random, rig.log, *rig.arena, {1, 2}, "", 0}, TimePoint{});
    REQUIRE(closed);
    CHECK((*closed)->limits().peers_max == 0);
    CHECK((*closed)->connect(nowhere, TimePoint{}).status().code() == Code::resource_exhausted);
}

TEST_CASE("template: each accepted transfer completes once, and each failure ends its batch") {
    Rig rig;
    std::array<std::byte, 8> memory{};
    RmaItem item;
    item.local = memory;
    std::array<RmaItem, 2> items{item, item};
    items[0].cookie = 7;
    items[1].cookie = 8;
    REQUIRE(rig.endpoint->post(items) == 2);
    for (const std::uint64_t cookie : {7u, 8u}) {
        const auto events = rig.poll();
        REQUIRE(events.size() == 1);
        CHECK(events[0].kind == EventKind::rma_done);
        CHECK(events[0].code == Code::unavailable);
        CHECK(events[0].cookie == cookie);
    }
    CHECK(rig.poll().empty());
}

TEST_CASE("template: a region is exposed once, and its fence is reported") {
    Rig rig;
    std::array<std::byte, 8> memory{};
    Exposure exposure{3, 1, 42, memory, Access::read};
    REQUIRE(rig.endpoint->expose(exposure));
    CHECK(rig.endpoint->expose(exposure).status().code() == Code::already_exists);
    rig.endpoint->fence(3, Holders::done);
    const auto events = rig.poll();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::region_fenced);
    CHECK(events[0].region == 3);
    REQUIRE(rig.endpoint->expose(exposure));
    exposure.region = regions_max;
    CHECK(rig.endpoint->expose(exposure).status().code() == Code::invalid_argument);
}

TEST_CASE("template: it reaches no peer, and says so in its capabilities and diagnosis") {
    Rig rig;
    CHECK_FALSE(rig.endpoint->caps().rma);
    CHECK_FALSE(rig.endpoint->caps().wait_fd);
    CHECK(rig.endpoint->address().empty());
    CHECK_FALSE(rig.provider->probe().usable);
    CHECK(rig.connect("tcp://127.0.0.1:1").status().code() == Code::invalid_argument);
    const auto listening =
        rig.provider->open(&nowhere, {rig.random, rig.log, *rig.arena, {1, 2}, "", 2}, TimePoint{});
    CHECK(listening.status().code() == Code::unavailable);
}

}  // namespace na_template_test
