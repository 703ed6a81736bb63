#include <weft/protobuf_group.h>

namespace weft::detail {

GroupCallOptions options_for(const GroupCallOptions& of_method, Duration timeout,
                             std::uint32_t priority, MergeFunction merge,
                             GroupCallOptions options) {
    if (options.timeout == Duration::zero()) options.timeout = timeout;
    if (options.priority == 0) options.priority = static_cast<std::uint8_t>(priority);
    if (!options.policy.has_value()) {
        options.policy = of_method.policy;
        if (options.quorum == 0) options.quorum = of_method.quorum;
    }
    if (options.topology.shape == Topology::Shape::automatic && !options.topology.by_host) {
        options.topology = of_method.topology;
    }
    // The reduction is the method's, because replies merged in another way can't be parsed as
    // messages.
    const bool ordered = options.reduction.ordered || of_method.reduction.ordered;
    options.reduction = of_method.reduction;
    options.reduction.ordered = ordered && merge;
    options.merge = merge;
    return options;
}

bool PolicyCheck::is_met(std::size_t ok, std::size_t all) const {
    switch (policy) {
        case Policy::all: return ok == all;
        case Policy::quorum: return ok >= (quorum > 0 ? quorum : all / 2 + 1);
        case Policy::best_effort: break;
    }
    return true;
}

}  // namespace weft::detail
