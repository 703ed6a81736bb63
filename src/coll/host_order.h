// The members of a view in order of their hosts. It does not depend on where a collective begins:
// the order for each root is this one turned, which is arithmetic. Immutable, shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <weft/group_view.h>

#include "coll/tree.h"

namespace weft::coll {

// Members of one host stand side by side, by index; hosts stand by their first member's index.
class HostOrder {
  public:
    explicit HostOrder(const GroupView& view);
    // Of some members, by index, ascending; hosts without any are left out. Cost: linear.
    HostOrder(const HostOrder& all, std::span<const std::uint32_t> chosen);

    std::uint32_t members() const { return static_cast<std::uint32_t>(order_.size()); }
    std::uint32_t hosts() const { return static_cast<std::uint32_t>(starts_.size() - 1); }

    // Turned so that one member comes first: its host in front of the others, which follow in turn,
    // and the member in front of those of its host, likewise.
    struct Turn {
        std::uint32_t host = 0;
        std::uint32_t place = 0;  // Within the host.
    };
    // Requires: the member of this index is among them.
    Turn turn_to(std::uint32_t index) const;
    // The index of the member at a position. Requires: position < members().
    std::uint32_t at(std::uint32_t position, Turn turn) const;
    HostStarts starts(Turn turn) const {
        return {std::span(starts_).first(hosts()), turn.host, members(), 0};
    }
    std::size_t heap_bytes() const {
        return (order_.capacity() + starts_.capacity() + host_of_.capacity()) *
               sizeof(std::uint32_t);
    }

  private:
    void sort(std::span<const std::uint32_t> indices, std::uint32_t hosts);

    std::vector<std::uint32_t> order_;    // Indices.
    std::vector<std::uint32_t> starts_;   // Of each host in `order_`, and the end of that.
    std::vector<std::uint32_t> host_of_;  // By index.
};

}  // namespace weft::coll
