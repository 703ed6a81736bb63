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
    return !slot.unflushed && slot.endpoint->has_left(id);
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
