#include "na/common/placement.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "na/common/no_room.h"
#include "na/hello.h"

namespace weft::na {

Placement::Placement(std::uint16_t contexts, const Incarnation& own, std::uint32_t peers_max,
                     LoadOf load_of)
    : contexts_(contexts),
      own_(own),
      peers_max_(peers_max),
      named_max_(contexts == 1 ? peers_max : std::max(peers_max / 2, 1u)),
      load_of_(std::move(load_of)),
      counts_(std::make_unique<Count[]>(contexts)) {
    WEFT_ASSERT(contexts != 0);
}

void Placement::Place::leave() {
    Placement* const of = std::exchange(of_, nullptr);
    if (!of) return;
    Count& count = of->count(context_);
    const std::uint32_t before = count.connections.fetch_sub(1, std::memory_order_relaxed);
    WEFT_ASSERT(before != 0);
    if (!is_named_) return;
    const std::uint32_t named = count.named.fetch_sub(1, std::memory_order_relaxed);
    WEFT_ASSERT(named != 0);
}

std::uint32_t Placement::all_connections() const {
    std::uint32_t all = 0;
    for (std::uint16_t i = 0; i < contexts_; ++i) all += connections(i);
    return all;
}

// The context that follows from the client, or the one with the least load.
std::uint16_t Placement::choose(const Client& client, TimePoint now, base::Random& random) const {
    if (contexts_ == 1) return 0;
    struct Candidate {
        bool is_blocked;
        std::uint32_t connections;
        std::uint32_t busy_share;
        // NOLINTNEXTLINE(modernize-use-nullptr): a false alarm about comparisons made here.
        auto operator<=>(const Candidate&) const = default;
    };
    const auto candidate = [&](std::uint16_t context) -> Candidate {
        const ContextLoad load = load_of_ ? load_of_(context, now) : ContextLoad();
        return {load.is_blocked, connections(context), load.busy_share};
    };
    const auto own =
        static_cast<std::uint16_t>((client.incarnation.low + client.context) % contexts_);
    std::uint16_t least = 0;
    Candidate least_load = candidate(0);
    Candidate own_load = least_load;
    std::uint32_t ties = 1;
    for (std::uint16_t i = 1; i < contexts_; ++i) {
        const Candidate load = candidate(i);
        if (i == own) own_load = load;
        const bool is_less = load < least_load;
        if (is_less) ties = 0;
        // Each of the equal ones with the same probability.
        if (is_less || (load == least_load && random.next() % ++ties == 0)) {
            least = i;
            least_load = load;
            ties = std::max(ties, 1u);
        }
    }
    constexpr std::uint32_t much_busier = 300;
    const bool keeps_own = own_load.is_blocked == least_load.is_blocked &&
                           own_load.connections == least_load.connections &&
                           own_load.busy_share <= least_load.busy_share + much_busier;
    return keeps_own ? own : least;
}

Result<Placement::Place> Placement::place(const Client& client, TimePoint now,
                                          base::Random& random) {
    if (all_connections() >= peers_max_) return listener_at_peers_max(peers_max_);
    const Wanted wanted = decode_wanted(client.wanted, own_);
    const bool is_there = wanted.number != 0 && wanted.number <= contexts_;
    const bool is_named = is_there && !wanted.has_session;
    const std::uint16_t context =
        is_there ? static_cast<std::uint16_t>(wanted.number - 1) : choose(client, now, random);
    Count& count = this->count(context);
    if (is_named && count.named.fetch_add(1, std::memory_order_relaxed) >= named_max_) {
        count.named.fetch_sub(1, std::memory_order_relaxed);
        return fail(Code::resource_exhausted,
                    "context " + std::to_string(context) + " of this listener has its " +
                        std::to_string(named_max_) + " clients that name it");
    }
    count.connections.fetch_add(1, std::memory_order_relaxed);
    return Place(*this, context, is_named);
}

}  // namespace weft::na
