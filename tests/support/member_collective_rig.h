// Members of a group on a simulated network, for member collectives.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/group_rig.h"

namespace weft::test {

struct MemberCollectiveRig {
    explicit MemberCollectiveRig(std::uint32_t n, const RuntimeOptions& options = {})
        : outcomes(n), rig(n, nullptr, options) {}
    void join(std::uint32_t rank, std::string_view name, ByteView value,
              const GroupCallOptions& options = {.timeout = 20s}) {
        rig.group(static_cast<int>(rank))
            .all_gather(name, value, options, [this, rank](GroupOutcome all) {
                REQUIRE_FALSE(outcomes[rank].has_value());
                outcomes[rank] = std::move(all);
            });
    }
    std::size_t ended() const {
        std::size_t all = 0;
        for (const auto& one : outcomes) all += one.has_value();
        return all;
    }
    std::size_t remaining() const {
        std::size_t all = 0;
        for (const auto& runtime : rig.sim.runtimes) {
            all += impl_of(*runtime).collectives.member_collectives().running();
        }
        return all;
    }
    std::vector<std::optional<GroupOutcome>> outcomes;  // Outlive the callers that still wait.
    GroupRig rig;
};

}  // namespace weft::test
