// The output of CollectiveState: what its inputs make ready for the driver. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coll/child_requests.h"
#include "coll/wire.h"

namespace weft::coll {

// To be carried out in the order of the fields. An input of CollectiveState appends to it.
struct Ready {
    struct Cancel {
        ChildRequest request;
        // Also sends a cancel to the child, even if the child sent a partial reply and awaits a
        // request for the rest.
        bool cancel_child = false;
    };
    struct Reply {
        std::uint32_t request = 0;
        SubtreeReply::Kind kind = SubtreeReply::Kind::complete;
    };
    struct Refresh {
        std::uint32_t position = 0;
        std::uint64_t epoch = 0;
    };

    // For each, one of on_reply(), on_failure() follows once, unless it is cancelled.
    std::vector<ChildRequest> sends;
    // Runs the method here; on_method_done() follows, unless it is cancelled.
    bool run = false;
    // Requests under way that are dropped, at the end only: all of them; no reply follows.
    std::vector<Cancel> cancels;
    bool cancel_method = false;
    // At an origin outside of the group: no rank has begun, since this position has a later view.
    // The collective restarts as another state, or use_own_view() follows.
    std::optional<Refresh> refresh;
    // At the origin: the outcome can be reported, though some ranks may still be missing. Once;
    // on_reported() follows.
    bool report = false;
    // Requests of parents that get outcomes(), complete or partial.
    std::vector<Reply> replies;
    // The collective has completed. Once; nothing else becomes ready any more.
    bool done = false;

    bool is_empty() const {
        return sends.empty() && cancels.empty() && replies.empty() && !refresh && !run &&
               !cancel_method && !report && !done;
    }
};

}  // namespace weft::coll
