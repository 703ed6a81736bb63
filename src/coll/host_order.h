// The members of a view in order of their hosts. It does not depend on the root: the order for each
// root is a rotation of this one, which is arithmetic. Immutable, shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <weft/group_view.h>

#include "coll/tree.h"

namespace weft::coll {

// Members of one host are adjacent, by index; hosts are in the order of their first members.
class HostOrder {
  public:
    explicit HostOrder(const GroupView& view);
    // Of chosen members, by index, ascending; hosts without any are left out. Cost: linear.
    HostOrder(const HostOrder& all, std::span<const std::uint32_t> chosen);

    std::uint32_t members() const { return static_cast<std::uint32_t>(order_.size()); }
    std::uint32_t hosts() const { return static_cast<std::uint32_t>(starts_.size() - 1); }

    // A rotation that puts one member first: its host before the others, and the member before the
    // others of its host, both in cyclic order.
    struct Rotation {
        std::uint32_t host = 0;
        std::uint32_t place = 0;  // Within the host.
    };
    // Requires: the member of this index is in the order.
    Rotation rotation_for(std::uint32_t index) const;
    // The index of the member at a position. Requires: position < members().
    std::uint32_t at(std::uint32_t position, Rotation rotation) const;
    HostStarts starts(Rotation rotation) const {
        return {std::span(starts_).first(hosts()), rotation.host, members(), 0};
    }
    std::size_t heap_bytes() const {
        return (order_.capacity() + starts_.capacity() + host_of_.capacity()) *
               sizeof(std::uint32_t);
    }

  private:
    void sort(std::span<const std::uint32_t> indices, std::uint32_t hosts);

    std::vector<std::uint32_t> order_;    // Indices.
    std::vector<std::uint32_t> starts_;   // Of each host in `order_`, then its end.
    std::vector<std::uint32_t> host_of_;  // By index.
};

}  // namespace weft::coll
