#include "core/lingering_connections.h"

#include <new>

#include "base/assert.h"
#include "core/endpoint_slot.h"
#include "core/send_queues.h"

namespace weft::core {

static constexpr Duration check_interval = 1ms;

bool LingeringConnections::add(const PeerConnection& connection,
                               base::IntrusiveList<QueuedFrame>& frames, TimePoint now,
                               TimePoint close_by) {
    WEFT_ASSERT(connection.endpoint && connection.endpoint->caps.sent_survives);
    WEFT_ASSERT(!connection.endpoint->peer_of(connection.id));
    try {
        all_.emplace_back();
    } catch (const std::bad_alloc&) {
        return false;
    }
    LingeringConnection& one = all_.back();
    one.connection = connection;
    one.frames.splice_back(frames);
    one.close_by = close_by;
    (void)flush_connection(one);
    if (is_linked()) return true;
    fire = [](base::Timer& timer, TimePoint at) {
        static_cast<LingeringConnections&>(timer).check_all(at);
    };
    timers_.arm(*this, now + check_interval);
    return true;
}

bool LingeringConnections::flush_connection(LingeringConnection& one) {
    EndpointSlot& slot = *one.connection.endpoint;
    const na::PeerId id = one.connection.id;
    while (QueuedFrame* queued = one.frames.front()) {
        std::byte* to = slot.endpoint->reserve(id, queued->frame_bytes);
        if (!to) return false;
        slot.endpoint->copy_out(to, queued->frame());
        slot.commit(queued->frame_bytes);
        SendQueues::destroy(*queued);
    }
    return !slot.unflushed && slot.endpoint->has_left(id);
}

void LingeringConnections::check_all(TimePoint now) {
    WEFT_DCHECK(!is_linked() && !all_.empty());
    all_.remove_if([&](LingeringConnection& one) {
        if (one.connection.info() && now < one.close_by && !flush_connection(one)) return false;
        while (QueuedFrame* queued = one.frames.front()) SendQueues::destroy(*queued);
        one.connection.close();
        return true;
    });
    if (!all_.empty()) timers_.arm(*this, now + check_interval);
}

void LingeringConnections::close_all() noexcept {
    for (LingeringConnection& one : all_) one.connection.close();
    discard_all();
}

void LingeringConnections::discard_all() noexcept {
    timers_.cancel(*this);
    for (LingeringConnection& one : all_) {
        while (QueuedFrame* queued = one.frames.front()) SendQueues::destroy(*queued);
    }
    all_.clear();
}

}  // namespace weft::core
