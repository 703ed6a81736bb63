#include "na/tcp/hot_sockets.h"

namespace weft::na::tcp {

void HotSockets::touch(PolledSocket& polled) {
    polled.misses = 0;
    if (polled.is_linked() || !polled.watch) return;
    if (count_ < count_max || evict_idle()) add(polled);
}

void HotSockets::add(PolledSocket& polled) {
    WEFT_ASSERT(polled.watch && polled.connection->phase == PeerPhase::up);
    polled.misses = 0;
    lane(polled.kind).sockets.push_back(polled);
    ++count_;
}

bool HotSockets::evict_idle() {
    if (is_crowded()) return false;
    PolledSocket* idle = nullptr;
    for (Lane* lane : {&messages_, &bulk_}) {
        lane->sockets.for_each([&](PolledSocket& polled) {
            if (polled.misses > misses_replaceable) idle = &polled;
        });
    }
    if (idle) remove(*idle);
    return idle != nullptr;
}

void HotSockets::remove(PolledSocket& polled) {
    if (!polled.is_linked()) return;
    WEFT_ASSERT(count_ != 0);
    polled.unlink();
    --count_;
}

}  // namespace weft::na::tcp
