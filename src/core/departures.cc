#include "core/departures.h"

#include <new>

#include "core/context.h"

namespace weft::core {

static constexpr Duration look_every = 1ms;

bool Departures::add(const Peer::Connection& connection, base::IntrusiveList<QueuedFrame>& frames,
                     TimePoint now, TimePoint until) {
    try {
        all_.emplace_back();
    } catch (const std::bad_alloc&) {
        return false;
    }
    Departure& one = all_.back();
    one.connection = connection;
    one.frames.splice_back(frames);
    one.until = until;
    (void)has_left(one);
    if (is_linked()) return true;
    fire = [](base::Timer& timer, TimePoint at) { static_cast<Departures&>(timer).look(at); };
    timers_.arm(*this, now + look_every);
    return true;
}

static void destroy(QueuedFrame& queued) {
    queued.unlink();
    queued.~QueuedFrame();
    ::operator delete(&queued);
}

bool Departures::has_left(Departure& one) {
    EndpointSlot& slot = *one.connection.endpoint;
    const na::PeerId id = one.connection.id;
    while (QueuedFrame* queued = one.frames.front()) {
        std::byte* to = slot.endpoint->reserve(id, queued->frame_bytes);
        if (!to) return false;
        slot.endpoint->copy_out(to, queued->frame());
        slot.unflushed |= slot.endpoint->commit(queued->frame_bytes);
        destroy(*queued);
    }
    if (slot.caps.sent_survives) return !slot.unflushed && slot.endpoint->has_left(id);
    if (one.is_asked) return one.is_answered;
    if (std::byte* to = slot.endpoint->reserve(id, sizeof(FrameHead))) {
        base::store(to, FrameHead{FrameKind::ping, 0, last_ping, sizeof(FrameHead)});
        slot.unflushed |= slot.endpoint->commit(sizeof(FrameHead));
        one.is_asked = true;
    }
    return false;
}

void Departures::on_message(const EndpointSlot& endpoint, na::PeerId id,
                            ByteView message) noexcept {
    for (Departure& one : all_) {
        if (one.connection.endpoint != &endpoint || one.connection.id != id) continue;
        for_each_frame(message, [&](FrameHead head, ByteView) {
            one.is_answered |= head.kind == FrameKind::pong && head.aux == last_ping;
            return true;
        });
    }
}

void Departures::look(TimePoint now) {
    all_.remove_if([&](Departure& one) {
        if (one.connection.is_up() && now < one.until && !has_left(one)) return false;
        while (QueuedFrame* queued = one.frames.front()) destroy(*queued);
        one.connection.close();
        return true;
    });
    if (!all_.empty()) timers_.arm(*this, now + look_every);
}

void Departures::end() noexcept {
    for (Departure& one : all_) one.connection.close();
    forget_all();
}

void Departures::forget_all() noexcept {
    timers_.cancel(*this);
    for (Departure& one : all_) {
        while (QueuedFrame* queued = one.frames.front()) destroy(*queued);
    }
    all_.clear();
}

}  // namespace weft::core
