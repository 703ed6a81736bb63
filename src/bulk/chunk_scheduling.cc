// The order in which transfers post their chunks, and the check for stalled peers.
#include <algorithm>

#include "base/assert.h"
#include "bulk/transfers.h"

namespace weft::bulk {

// The sizes of chunks; chunks_max in transfers.h is their number. Copying a chunk in a turn does
// not delay small messages noticeably (about 30 us in memory); on a fabric a chunk is a part of the
// peer's window.
static constexpr std::size_t chunk_bytes_checked = 256u << 10;
static constexpr std::size_t chunk_bytes_fabric = 1u << 20;

// A peer that completes no chunk in 25 ticks is stalled. The slowest link that does not count as
// stalled moves 256 KiB in that time, on a fabric na::InFlightWindow::bytes_initial. Ticks are
// counted instead of time, so that a suspension of this process does not count against a peer.
static constexpr Duration stall_tick = 400ms;
static constexpr std::uint32_t stalls_max = 25;

static std::uint64_t cookie_of(base::SlotId id) {
    return std::uint64_t{id.generation} << 32 | id.slot;
}

bool Transfers::wants_more(const Transfer& transfer) {
    return transfer.state == State::running && transfer.chunks < chunks_max &&
           transfer.posted < transfer.spec.local.size();
}

void Transfers::pump(Transfer& transfer) {
    if (transfer.core::ChunkWaiter::is_linked()) return;  // It waits for its turn.
    WEFT_ASSERT(transfer.peer && transfer.endpoint);
    core::Peer& peer = *transfer.peer;
    core::Traffic& traffic = peer.traffic;
    while (wants_more(transfer)) {
        const bool others_first =
            !traffic.chunk_waiters.empty() || !transfer.endpoint->chunk_waiters.empty();
        if (others_first || is_at_share(peer) || !post_next(transfer)) {
            traffic.chunk_waiters.push_back(transfer);
            return queue_peer(peer);
        }
    }
}

// False: the endpoint is full.
bool Transfers::post_next(Transfer& transfer) {
    WEFT_ASSERT(transfer.peer && wants_more(transfer));
    const TransferSpec& spec = transfer.spec;
    core::EndpointSlot& endpoint = *transfer.endpoint;
    core::Traffic& traffic = transfer.peer->traffic;
    const std::size_t chunk_max = std::min(
        endpoint.endpoint->limits().rma_bytes_max,
        endpoint.caps.rma_checked ? chunk_bytes_checked
                                  : std::min(chunk_bytes_fabric, traffic.window.item_bytes()));
    const std::size_t bytes =
        std::min<std::uint64_t>(chunk_max, spec.local.size() - transfer.posted);
    WEFT_DCHECK(bytes != 0 && transfer.endpoint == transfer.peer->endpoint);
    na::RmaItem item;
    item.kind = spec.kind;
    item.peer = transfer.peer->na_id;
    item.region = spec.remote.region;
    item.generation = spec.remote.generation;
    item.key = spec.remote.key;
    item.fabric = spec.fabric;
    item.offset = spec.remote.offset + spec.offset + transfer.posted;
    item.local = spec.local.bytes().subspan(transfer.posted, bytes);
    item.cookie = cookie_of(transfer.id);
    endpoint.unflushed = true;
    if (endpoint.endpoint->post({&item, 1}) == 0) return false;
    transfer.posted += bytes;
    ++transfer.chunks;
    ++traffic.posted;
    if (!endpoint.caps.rma_checked) {
        transfer.times[transfer.next++ % chunks_max] = {bytes, context_.current_time()};
        traffic.window.on_posted(bytes);
    }
    return true;
}

// Takes it that chunks complete in the order of posting. Where they do not, a time is booked to the
// wrong chunk; the bytes still add up.
void Transfers::note_done(const Transfer& transfer, core::Peer& peer, bool is_ok) {
    WEFT_ASSERT(peer.traffic.posted != 0 && transfer.chunks != 0);
    --peer.traffic.posted;
    ++peer.traffic.completed;
    if (transfer.endpoint->caps.rma_checked) return;
    const Chunk& chunk = transfer.times[(transfer.next - transfer.chunks) % chunks_max];
    if (is_ok) {
        peer.traffic.window.on_done(chunk.bytes, chunk.posted_at, context_.current_time());
    } else {
        peer.traffic.window.on_dropped(chunk.bytes);
    }
}

bool Transfers::is_at_share(const core::Peer& peer) {
    WEFT_DCHECK(peer.endpoint);
    const core::EndpointSlot& endpoint = *peer.endpoint;
    return peer.traffic.posted >= endpoint.endpoint->limits().rma_per_peer_max ||
           (!endpoint.caps.rma_checked && !peer.traffic.window.has_room());
}

// Queues the peer if it has a chunk to post and its share allows that.
void Transfers::queue_peer(core::Peer& peer) {
    core::Traffic& traffic = peer.traffic;
    if (traffic.chunk_waiters.empty() || traffic.is_linked() || is_at_share(peer)) return;
    peer.endpoint->chunk_waiters.push_back(traffic);
    arm_stall_check();
}

// Posts a chunk of each peer in turn, as long as the endpoint accepts them.
void Transfers::post_waiting(core::EndpointSlot& endpoint) {
    while (core::Traffic* next = endpoint.chunk_waiters.front()) {
        WEFT_ASSERT(!next->chunk_waiters.empty());
        auto& transfer = static_cast<Transfer&>(*next->chunk_waiters.front());
        WEFT_ASSERT(transfer.endpoint == &endpoint);
        if (!post_next(transfer)) return;
        unlink_from_queue(transfer);
        if (wants_more(transfer)) next->chunk_waiters.push_back(transfer);
        if (next->is_linked()) next->unlink();
        queue_peer(*transfer.peer);
    }
}

void Transfers::unlink_from_queue(Transfer& transfer) {
    if (!transfer.core::ChunkWaiter::is_linked()) return;
    transfer.core::ChunkWaiter::unlink();
    core::Traffic& traffic = transfer.peer->traffic;
    if (traffic.chunk_waiters.empty() && traffic.is_linked()) traffic.unlink();
}

// ---- stalled peers -----------------------------------------------------------------------------

void Transfers::arm_stall_check() {
    if (closed_ || stall_timer_.is_linked()) return;
    stall_timer_.owner = this;
    stall_timer_.fire = [](base::Timer& timer, TimePoint) {
        static_cast<OwnedTimer&>(timer).owner->check_stalls();
    };
    context_.timers().arm(stall_timer_, saturating_add(context_.current_time(), stall_tick));
}

// Disconnects stalled peers that hold memory of ended transfers, or resources that others wait for.
void Transfers::check_stalls() {
    const MemoryWaiters waiters = memory_waiters_ ? memory_waiters_() : MemoryWaiters::none;
    const bool memory_is_wanted = waiters == MemoryWaiters::other_peers;
    std::vector<core::PeerRef> stalled;
    bool again = waiters != MemoryWaiters::none;
    transfers_.for_each([&](Entry& entry) {
        Transfer& transfer = entry.value;
        if (transfer.chunks == 0) return;
        const bool is_wanted = transfer.state == State::ended ||
                               !transfer.endpoint->chunk_waiters.empty() ||
                               (memory_is_wanted && transfer.spec.fills_pool);
        if (!is_wanted) return;
        again = true;
        const core::Peer* peer = context_.find(transfer.peer_ref);
        if (!peer) return;  // The transport is about to release it.
        if (std::exchange(transfer.ended_at_check, peer->traffic.completed) !=
            peer->traffic.completed) {
            transfer.stalls = 0;
        } else if (++transfer.stalls >= stalls_max) {
            stalled.push_back(transfer.peer_ref);
        }
    });
    if (again) arm_stall_check();
    for (const core::PeerRef ref : stalled) {
        core::Peer* peer = context_.find(ref);
        if (!peer || peer->state != core::PeerState::up) continue;  // Handled already.
        context_.log().write_rate_limited(
            LogLevel::warning, context_.current_time(),
            "closing " + peer->uri + ": it does not answer transfers");
        context_.drop_connection(*peer,
                                 fail(Code::unavailable, "the peer does not answer transfers"));
    }
}

}  // namespace weft::bulk
