#include "core/send_queues.h"

#include <algorithm>
#include <new>

#include "base/assert.h"
#include "core/endpoint_slot.h"
#include "na/hello.h"

namespace weft::core {

// Short frames of a peer may exceed its limit by this.
static constexpr std::size_t short_frames_extra_bytes = 2u << 20;

bool SendQueues::has_full_queue(const Peer& peer, std::size_t bytes) const {
    const std::size_t beyond = bytes <= short_frame_bytes ? short_frames_extra_bytes : 0;
    return peer.queue.frames >= options_.waiting_frames_max ||
           peer.queue.bytes + bytes > options_.waiting_bytes_max() + beyond;
}

// Whether `bytes` more fit what all peers may have waiting.
bool SendQueues::has_room(std::size_t bytes) {
    if (bytes_ + bytes <= limit_.limit() || limit_.reach(bytes_, bytes)) return true;
    return bytes <= short_frame_bytes && beyond_.extend(0, bytes_ + bytes - limit_.limit());
}

QueuedFrame* SendQueues::claim(const Peer& peer, std::size_t bytes) {
    // An incoming peer can't be connected to again.
    if (peer.incoming && peer.state != PeerState::up) return nullptr;
    if (has_full_queue(peer, bytes)) return nullptr;
    // A peer with little waiting is not refused because of other peers.
    if (peer.queue.bytes > waiting_bytes_guaranteed && !has_room(bytes)) return nullptr;
    void* memory = ::operator new(sizeof(QueuedFrame) + bytes, std::nothrow);
    if (!memory) return nullptr;
    auto* queued = ::new (memory) QueuedFrame;
    queued->frame_bytes = static_cast<std::uint32_t>(bytes);
    return queued;
}

void SendQueues::push(Peer& peer, QueuedFrame& queued, std::size_t bytes) {
    WEFT_DCHECK(bytes <= queued.frame_bytes && bytes >= sizeof(FrameHead));
    WEFT_DCHECK(!peer.incoming || peer.state == PeerState::up);
    queued.frame_bytes = static_cast<std::uint32_t>(bytes);
    peer.queue.waiting.push_back(queued);
    peer.queue.bytes += bytes;
    bytes_ += bytes;
    ++peer.queue.frames;
    ++pushed_;
    update_direct(peer);
}

void SendQueues::update_direct(Peer& peer) {
    const std::size_t room = peer.message_bytes_max;
    const bool direct =
        peer.state == PeerState::up && peer.queue.frames == 0 && room > na::call_header_bytes_max;
    peer.direct_body_end =
        direct ? std::min(peer.eager_bytes_max, room - na::call_header_bytes_max) + 1 : 0;
}

void SendQueues::destroy(QueuedFrame& queued) {
    queued.unlink();
    queued.~QueuedFrame();
    ::operator delete(&queued);
}

void SendQueues::drop(Peer& peer, QueuedFrame& queued) {
    WEFT_ASSERT(peer.queue.frames != 0 && peer.queue.bytes >= queued.frame_bytes);
    WEFT_ASSERT(bytes_ >= queued.frame_bytes);
    peer.queue.bytes -= queued.frame_bytes;
    bytes_ -= queued.frame_bytes;
    --peer.queue.frames;
    update_direct(peer);
    destroy(queued);
}

void SendQueues::drop_all(Peer& peer) {
    while (QueuedFrame* queued = peer.queue.waiting.front()) drop(peer, *queued);
    WEFT_ASSERT(peer.queue.frames == 0 && peer.queue.bytes == 0);
}

void SendQueues::on_taken(Peer& peer) {
    WEFT_ASSERT(peer.queue.waiting.empty() && bytes_ >= peer.queue.bytes);
    bytes_ -= std::exchange(peer.queue.bytes, 0);
    peer.queue.frames = 0;
}

bool SendQueues::flush(Peer& peer) {
    while (QueuedFrame* queued = peer.queue.waiting.front()) {
        if (peer.state != PeerState::up) return false;
        // The smallest message size that a peer may offer holds any of these frames; the size of
        // replies was checked when they were built.
        if (queued->frame_bytes <= peer.message_bytes_max) {
            na::Endpoint& endpoint = *peer.endpoint->endpoint;
            std::byte* to = endpoint.reserve(peer.na_id, queued->frame_bytes);
            if (!to) return false;
            endpoint.copy_out(to, queued->frame());
            peer.endpoint->commit(queued->frame_bytes);
        }
        drop(peer, *queued);
    }
    WEFT_DCHECK(peer.queue.frames == 0 && peer.queue.bytes == 0);
    return true;
}

}  // namespace weft::core
