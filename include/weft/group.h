// A server group: who is in it, and calling all of it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <weft/channel.h>
#include <weft/group_view.h>
#include <weft/result.h>

namespace weft {

namespace coll {
class GroupImpl;
}

// What one rank answered to a collective call; for each rank there is exactly one.
struct RankOutcome {
    std::uint32_t rank = 0;
    Status status;  // Of the rank itself: those below one that died are asked by others.
    std::vector<std::byte> reply;
};

using GroupCompletion = Function<void(std::vector<RankOutcome>), 64>;

// A handle on a group, for members and for outside clients. Thread: as Channel.
class Group {
  public:
    Group() = default;
    explicit Group(std::shared_ptr<coll::GroupImpl> impl) : impl_(std::move(impl)) {}

    // Runs the method on every rank, through a tree: `done` gets one outcome per rank, in order of
    // rank, once, by the deadline. RuntimeOptions::argument_bytes_max limits the request, and what
    // a member answers for its whole subtree: outcomes have 16 bytes and more each. Errors, in
    // every outcome: RESOURCE_EXHAUSTED for a full queue.
    void collective(const MethodId& method, const BodyWriter& body, const CallOptions& options,
                    GroupCompletion done) const;

    const GroupView& view() const;
    // To one member. Errors: OUT_OF_RANGE, else as Runtime::connect().
    Result<Channel> channel(std::uint32_t rank) const;
    // As Channel::on_thread().
    bool on_thread() const;
    explicit operator bool() const { return impl_ != nullptr; }

  private:
    std::shared_ptr<coll::GroupImpl> impl_;
};

}  // namespace weft
