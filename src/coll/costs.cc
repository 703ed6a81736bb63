#include "coll/costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/assert.h"

namespace weft::coll {

// ---- one collective ----------------------------------------------------------------------------

void CostMeter::on_reply(TimePoint now) {
    if (replies_++ == 0) first_reply_ = now;
    last_reply_ = now;
}

void CostMeter::add_reported(const Cost& cost) {
    if (!cost.is_known()) return;
    reported_busy_ns_ += cost.busy_ns;
    reported_trip_ns_ += cost.trip_ns;
    ++reported_;
}

static std::uint32_t nanoseconds(Duration time) {
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(time.count(), 1, most));
}

Cost CostMeter::snapshot() const {
    if (replies_ >= 2) {
        WEFT_DCHECK(first_reply_ <= last_reply_);
        return {nanoseconds((last_reply_ - first_reply_) / (replies_ - 1)),
                nanoseconds(first_reply_ - first_sent_)};
    }
    if (reported_ == 0) return {};
    return {static_cast<std::uint32_t>(reported_busy_ns_ / reported_),
            static_cast<std::uint32_t>(reported_trip_ns_ / reported_)};
}

// ---- many --------------------------------------------------------------------------------------

std::size_t Costs::class_of(std::size_t bytes) {
    const std::size_t magnitude = std::bit_width(bytes == 0 ? 0 : bytes - 1);  // 64: 6.
    return magnitude <= 6 ? 0 : std::min((magnitude - 4) / 3, classes - 1);
}

// As Tree::latency. Half of the trip is one way, which includes the sender's own time.
static double latency_of(double busy_ns, double trip_ns) {
    const double busy = std::max(busy_ns, 1.0);
    return std::clamp<double>(4 * (trip_ns / 2 - busy) / busy, 1, latency_max);
}

void Costs::note(std::size_t bytes, const Cost& cost) {
    if (!cost.is_known()) return;
    Mean& mean = means_[class_of(bytes)];
    const bool is_first = mean.samples == 0;
    // The first samples have equal weight.
    if (mean.samples < std::numeric_limits<std::uint32_t>::max()) ++mean.samples;
    WEFT_DCHECK(mean.samples > 0);
    const double share = std::max(weight, 1.0 / mean.samples);
    mean.busy_ns += share * (cost.busy_ns - mean.busy_ns);
    mean.trip_ns += share * (cost.trip_ns - mean.trip_ns);
    const double step = steps_per_octave * std::log2(latency_of(mean.busy_ns, mean.trip_ns));
    if (is_first || std::abs(step - mean.step) > steps_off) {
        mean.step = static_cast<int>(std::lround(step));
    }
}

Tree Costs::tree(std::uint32_t ranks, std::size_t bytes) const {
    Tree tree;
    if (ranks <= few) {
        tree.shape = Shape::flat;
        return tree;
    }
    const std::size_t size = class_of(bytes);
    WEFT_DCHECK(size < classes);
    const Mean& mean = means_[size];
    if (mean.samples == 0) return size >= large_class ? tree_for(1, 1) : tree;
    tree.latency = static_cast<std::uint16_t>(std::lround(std::exp2(mean.step / steps_per_octave)));
    return tree;
}

}  // namespace weft::coll
