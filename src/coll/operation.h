// One collective at one rank, alive while a child, the local handler or the table of those that are
// known refers to it.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/call.h>

#include "base/timer_wheel.h"
#include "coll/engine.h"
#include "coll/gathering.h"
#include "core/context.h"

namespace weft::coll {

struct Operation {
    struct Timer : base::Timer {
        Operation* of = nullptr;
    };

    Operation(Engine& in, std::shared_ptr<GroupImpl> with, const ForwardHeader& as)
        : engine(in),
          group(std::move(with)),
          header(as),
          gathering({as.first, as.last}, as.root, group->view.size()) {
        deadline.of = orphaned.of = this;
    }

    std::uint32_t rank_of(Interval subtree) const {
        return rank_at(subtree.first, header.root, group->view.size());
    }

    Engine& engine;
    const std::shared_ptr<GroupImpl> group;
    const ForwardHeader header;
    Gathering gathering;
    ByteView
        body;  // In `own_body`; or, where nobody is below, in the request while that is handled.
    TimePoint until = never;
    Timer deadline;
    std::vector<std::pair<Channel, OperationId>> children;
    std::weak_ptr<Operation> self;
    bool running = true;
    bool stopped = false;  // Nobody waits for it: what fails is not adopted.

    std::vector<std::byte> own_body;

    // Where it began.
    bool detached = false;  // From the handler that started it.
    core::InScope made_in;  // Where its completion runs.
    GroupCompletion done;

    // Elsewhere.
    std::vector<std::shared_ptr<Call>>
        asked_by;          // First the parent, then whoever adopted this rank.
    std::size_t gone = 0;  // Of these.
    Timer orphaned;
    std::vector<std::byte> answer;  // Once all outcomes are there: for those who ask again,
    TimePoint keep_until{};         // who may come until then.
};

}  // namespace weft::coll
