#include "na/common/placement.h"

#include <algorithm>
#include <string>

namespace weft::na {

Placement::Placement(std::uint16_t contexts, std::uint32_t peers_max)
    : contexts_(contexts),
      named_max_(std::max(peers_max / 2, 1u)),
      loads_(std::make_unique<Load[]>(contexts)) {
    WEFT_ASSERT(contexts != 0);
}

void Placement::Place::leave() {
    Placement* const of = std::exchange(of_, nullptr);
    if (!of) return;
    Load& load = of->load(context_);
    const std::uint32_t before = load.connections.fetch_sub(1, std::memory_order_relaxed);
    WEFT_ASSERT(before != 0);
    if (!is_named_) return;
    const std::uint32_t named = load.named.fetch_sub(1, std::memory_order_relaxed);
    WEFT_ASSERT(named != 0);
}

bool Placement::is_blocked(std::uint16_t context, TimePoint now) const {
    const TimePoint at = load(context).stamped_at.load(std::memory_order_relaxed);
    return at != never && now - at > blocked_after;
}

void Placement::stamp(std::uint16_t context, TimePoint now, std::uint32_t busy_share) {
    Load& own = load(context);
    own.busy_share.store(busy_share, std::memory_order_relaxed);
    own.stamped_at.store(now, std::memory_order_relaxed);
}

// The context that follows from the client, or the one with the least load.
std::uint16_t Placement::choose(const Client& client, TimePoint now, base::Random& random) const {
    const auto own =
        static_cast<std::uint16_t>((client.incarnation.low + client.context) % contexts_);
    std::uint16_t least = own;
    std::uint32_t ties = 0;
    bool is_any_free = false;
    for (std::uint16_t i = 0; i < contexts_; ++i) {
        if (is_blocked(i, now)) continue;
        const auto of = [&](std::uint16_t context) {
            return std::pair(load(context).connections.load(std::memory_order_relaxed),
                             load(context).busy_share.load(std::memory_order_relaxed));
        };
        if (!std::exchange(is_any_free, true) || of(i) < of(least)) {
            least = i;
            ties = 1;
        } else if (of(i) == of(least) && random.next() % ++ties == 0) {
            least = i;  // Each of the equal ones with the same probability.
        }
    }
    const bool keeps_own = !is_blocked(own, now) && connections(own) <= connections(least) + 1;
    return keeps_own ? own : least;
}

Result<Placement::Place> Placement::place(const Client& client, TimePoint now,
                                          base::Random& random) {
    const bool is_named = client.wanted != 0 && client.wanted <= contexts_;
    const std::uint16_t context =
        is_named ? static_cast<std::uint16_t>(client.wanted - 1) : choose(client, now, random);
    Load& load = this->load(context);
    if (is_named && load.named.fetch_add(1, std::memory_order_relaxed) >= named_max_) {
        load.named.fetch_sub(1, std::memory_order_relaxed);
        return fail(Code::resource_exhausted,
                    "context " + std::to_string(context) + " of this listener has its " +
                        std::to_string(named_max_) + " clients that name it");
    }
    load.connections.fetch_add(1, std::memory_order_relaxed);
    return Place(*this, context, is_named);
}

}  // namespace weft::na
