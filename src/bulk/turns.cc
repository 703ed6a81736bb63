// Which transfer posts its next chunk, and which peers do not move.
#include <algorithm>

#include "base/mutant.h"
#include "bulk/transfers.h"

namespace weft::bulk {

// A chunk is what one turn copies without keeping small messages waiting (about 30 us in memory);
// on a fabric it is a part of the peer's window.
static constexpr std::size_t chunk_bytes_checked = 256u << 10;
static constexpr std::size_t chunk_bytes_fabric = 1u << 20;

// A peer that ends no chunk in 25 ticks does not move; the slowest link that does brings 256 KiB in
// that time, on a fabric na::InFlightWindow::bytes_first. Ticks are counted, not time, so that a
// stall of our own accuses no peer.
static constexpr Duration look_tick = 400ms;
static constexpr std::uint32_t stalls_max = 25;

static std::uint64_t cookie_of(base::SlotId id) {
    return std::uint64_t{id.generation} << 32 | id.slot;
}

bool Transfers::wants_more(const Transfer& transfer) {
    return transfer.state == State::running && transfer.chunks < chunks_max &&
           transfer.posted < transfer.spec.local.size();
}

void Transfers::pump(Transfer& transfer) {
    if (transfer.core::Starved::is_linked()) return;  // Its turn comes.
    core::Peer& peer = *transfer.peer;
    core::Traffic& traffic = peer.traffic;
    while (wants_more(transfer)) {
        const bool others_first = !traffic.starved.empty() || !transfer.endpoint->starved.empty();
        if (others_first || is_at_share(peer) || !post_next(transfer)) {
            traffic.starved.push_back(transfer);
            return line_up(peer);
        }
    }
}

// False: the endpoint is full.
bool Transfers::post_next(Transfer& transfer) {
    const TransferSpec& spec = transfer.spec;
    core::EndpointSlot& endpoint = *transfer.endpoint;
    core::Traffic& traffic = transfer.peer->traffic;
    const std::size_t chunk_max = std::min(
        endpoint.endpoint->limits().rma_bytes_max,
        endpoint.caps.rma_checked ? chunk_bytes_checked
                                  : std::min(chunk_bytes_fabric, traffic.window.item_bytes()));
    const std::size_t bytes =
        std::min<std::uint64_t>(chunk_max, spec.local.size() - transfer.posted);
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
    const bool is_posted = transfer.posted == transfer.spec.local.size();
    if (base::is_mutated(base::Mutant::early_success) && is_posted) {
        end(base::SlotTable<Transfer>::entry_of(transfer), Status());
    }
    return true;
}

// Chunks are done in the order in which they were posted, but for few, which changes no sum.
void Transfers::note_done(const Transfer& transfer, core::Peer& peer, bool is_ok) {
    --peer.traffic.posted;
    ++peer.traffic.ended;
    if (transfer.endpoint->caps.rma_checked) return;
    const Chunk& chunk = transfer.times[(transfer.next - transfer.chunks) % chunks_max];
    if (is_ok) {
        peer.traffic.window.on_done(chunk.bytes, chunk.posted_at, context_.current_time());
    } else {
        peer.traffic.window.on_dropped(chunk.bytes);
    }
}

bool Transfers::is_at_share(const core::Peer& peer) {
    const core::EndpointSlot& endpoint = *peer.endpoint;
    return peer.traffic.posted >= endpoint.endpoint->limits().rma_share ||
           (!endpoint.caps.rma_checked && !peer.traffic.window.has_room());
}

// Where it has something to post and its share allows that.
void Transfers::line_up(core::Peer& peer) {
    core::Traffic& traffic = peer.traffic;
    if (traffic.starved.empty() || traffic.is_linked() || is_at_share(peer)) return;
    peer.endpoint->starved.push_back(traffic);
    look_later();
}

// A chunk of each in turn, as long as the endpoint takes them.
void Transfers::serve(core::EndpointSlot& endpoint) {
    while (core::Traffic* next = endpoint.starved.front()) {
        auto& transfer = static_cast<Transfer&>(*next->starved.front());
        if (!post_next(transfer)) return;
        leave_queue(transfer);
        if (wants_more(transfer)) next->starved.push_back(transfer);
        if (next->is_linked()) next->unlink();
        line_up(*transfer.peer);
    }
}

void Transfers::leave_queue(Transfer& transfer) {
    if (!transfer.core::Starved::is_linked()) return;
    transfer.core::Starved::unlink();
    core::Traffic& traffic = transfer.peer->traffic;
    if (traffic.starved.empty() && traffic.is_linked()) traffic.unlink();
}

// ---- who does not move -------------------------------------------------------------------------

void Transfers::look_later() {
    if (closed_ || looking_.is_linked()) return;
    looking_.owner = this;
    looking_.fire = [](base::Timer& timer, TimePoint) { static_cast<Later&>(timer).owner->look(); };
    context_.timers().arm(looking_, saturating_add(context_.current_time(), look_tick));
}

// Peers that hold what was given up, or what others wait for, and do not move.
void Transfers::look() {
    const MemoryWaiters waiters = memory_waiters_ ? memory_waiters_() : MemoryWaiters::none;
    const bool memory_is_wanted = waiters == MemoryWaiters::for_others;
    std::vector<core::PeerRef> stalled;
    bool again = waiters != MemoryWaiters::none;
    transfers_.for_each([&](Entry& entry) {
        Transfer& transfer = entry.value;
        if (transfer.chunks == 0) return;
        const bool is_wanted = transfer.state == State::ended ||
                               !transfer.endpoint->starved.empty() ||
                               (memory_is_wanted && transfer.spec.fills_pool);
        if (!is_wanted) return;
        again = true;
        const core::Peer* peer = context_.find(transfer.peer_ref);
        if (!peer) return;  // The transport is about to let go.
        if (std::exchange(transfer.seen, peer->traffic.ended) != peer->traffic.ended) {
            transfer.stalls = 0;
        } else if (++transfer.stalls >= stalls_max) {
            stalled.push_back(transfer.peer_ref);
        }
    });
    if (again) look_later();
    for (const core::PeerRef ref : stalled) {
        core::Peer* peer = context_.find(ref);
        if (!peer || peer->state != core::PeerState::up) continue;  // Lost with one before.
        context_.log().write_of_peer(LogLevel::warning, context_.current_time(),
                                     "closing " + peer->uri + ": it does not answer transfers");
        context_.drop_connection(*peer,
                                 fail(Code::unavailable, "the peer does not answer transfers"));
    }
}

}  // namespace weft::bulk
