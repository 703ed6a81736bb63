// The bounds of the frames that wait, of all peers of a runtime together.
#include "core/send_queues.h"

#include <deque>
#include <memory>

#include "support/catch.h"

using namespace weft;
using namespace weft::core;

namespace {

constexpr std::size_t waiting_bytes_max = 16u << 20;
constexpr std::size_t peers_each = 8;

// The queues of a runtime's contexts, with some peers each, without the runtime.
struct AllQueues {
    explicit AllQueues(std::uint32_t contexts) {
        RuntimeOptions shared;
        shared.waiting_bytes_max = options.waiting_bytes_all_max = waiting_bytes_max;
        if (contexts > 1)
            options.budgets = std::make_shared<Budgets>(shared, FixedLimits{1, 1, 1}, contexts);
        for (std::uint32_t i = 0; i < contexts; ++i) of.emplace_back(options);
        peers.resize(contexts * peers_each);
    }
    ~AllQueues() {
        for (std::size_t i = 0; i < of.size(); ++i) drop_all(i);
    }
    // Until each peer of the context is refused a frame of so many bytes.
    void fill(std::size_t context, std::size_t bytes) {
        for (std::size_t i = 0; i < peers_each; ++i) {
            Peer& peer = peers[context * peers_each + i];
            while (QueuedFrame* const queued = of[context].claim(peer, bytes))
                of[context].push(peer, *queued, bytes);
        }
    }
    void drop_all(std::size_t context) {
        for (std::size_t i = 0; i < peers_each; ++i)
            of[context].drop_all(peers[context * peers_each + i]);
        of[context].trim_shares();
    }
    std::size_t bytes() const {
        std::size_t all = 0;
        for (const SendQueues& one : of) all += one.bytes();
        return all;
    }
    // What each peer may have in any case, with a frame that exceeds it.
    std::size_t guaranteed(std::size_t frame) const {
        return peers.size() * (waiting_bytes_guaranteed + frame);
    }

    ContextOptions options;
    std::deque<SendQueues> of;
    std::deque<Peer> peers;
};

}  // namespace

TEST_CASE("send queues: short frames of all contexts exceed the limit by a quarter of it") {
    constexpr std::size_t short_frame = 1024, long_frame = 8192;
    for (const std::uint32_t contexts : {1u, 2u, 8u, 64u}) {
        CAPTURE(contexts);
        AllQueues all(contexts);
        for (std::size_t i = 0; i < contexts; ++i) all.fill(i, long_frame);
        CHECK(all.bytes() >= waiting_bytes_max / 8 * 7);
        CHECK(all.bytes() <= waiting_bytes_max + all.guaranteed(long_frame));
        for (std::size_t i = 0; i < contexts; ++i) all.fill(i, short_frame);
        CHECK(all.bytes() >= waiting_bytes_max / 8 * 9);
        CHECK(all.bytes() <= waiting_bytes_max / 4 * 5 + all.guaranteed(long_frame));
    }
}

TEST_CASE("send queues: the room for short frames that one context drops another one has") {
    constexpr std::size_t short_frame = 1024;
    AllQueues all(8);
    all.fill(0, short_frame);
    const std::size_t first = all.bytes();
    CHECK(first >= waiting_bytes_max / 8 * 9);
    all.drop_all(0);
    CHECK(all.bytes() == 0);
    all.fill(7, short_frame);
    CHECK(all.bytes() >= first - waiting_bytes_max / 64);
}
