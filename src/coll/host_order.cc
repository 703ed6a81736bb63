#include "coll/host_order.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "base/assert.h"
#include "group/host.h"

namespace weft::coll {

HostOrder::HostOrder(const GroupView& view) : host_of_(view.size()) {
    std::unordered_map<std::string_view, std::uint32_t> hosts;
    for (std::uint32_t index = 0; index < view.size(); ++index) {
        const auto next = static_cast<std::uint32_t>(hosts.size());
        host_of_[index] = hosts.try_emplace(group::host_of(view.at(index)), next).first->second;
    }
    std::vector<std::uint32_t> all(view.size());
    std::iota(all.begin(), all.end(), 0u);
    sort(all, static_cast<std::uint32_t>(hosts.size()));
}

HostOrder::HostOrder(const HostOrder& all, std::span<const std::uint32_t> chosen)
    : host_of_(all.host_of_.size()) {
    std::vector<std::uint32_t> numbers(all.hosts(), 0);
    for (const std::uint32_t index : chosen) numbers[all.host_of_[index]] = 1;
    // The number of a host: how many hosts before it have chosen members.
    std::uint32_t hosts = 0;
    for (std::uint32_t& number : numbers) {
        const bool has_members = number == 1;
        number = hosts;
        hosts += has_members;
    }
    for (const std::uint32_t index : chosen) host_of_[index] = numbers[all.host_of_[index]];
    sort(chosen, hosts);
}

// Counting sort: linear.
void HostOrder::sort(std::span<const std::uint32_t> indices, std::uint32_t hosts) {
    starts_.assign(std::size_t{hosts} + 1, 0);
    for (const std::uint32_t index : indices) ++starts_[host_of_[index] + 1];
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    order_.resize(indices.size());
    std::vector<std::uint32_t> next = starts_;
    WEFT_DCHECK(starts_.back() == indices.size());
    for (const std::uint32_t index : indices) order_[next[host_of_[index]]++] = index;
}

HostOrder::Rotation HostOrder::rotation_for(std::uint32_t index) const {
    const std::uint32_t host = host_of_[index];
    const auto first = order_.begin() + starts_[host];
    const auto at = std::lower_bound(first, order_.begin() + starts_[host + 1], index);
    WEFT_DCHECK(at != order_.end() && *at == index);
    return {host, static_cast<std::uint32_t>(at - first)};
}

std::uint32_t HostOrder::at(std::uint32_t position, Rotation rotation) const {
    WEFT_DCHECK(position < members() && rotation.host < hosts());
    const std::uint32_t first = starts_[rotation.host];
    const std::uint32_t count = starts_[rotation.host + 1] - first;
    if (position < count) return order_[first + rank_at(position, rotation.place, count)];
    return order_[rank_at(position, first, members())];
}

}  // namespace weft::coll
