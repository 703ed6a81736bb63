// A server group: who is in it, and calling all of it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/channel.h>
#include <weft/result.h>

namespace weft {

namespace coll {
class GroupImpl;
}

struct Member {
    std::uint32_t rank = 0;
    std::vector<std::string> uris;  // Of which the best is used, as by connect().
};

// Who belongs to a group in one epoch. Immutable and shared; a change makes a new view with a
// higher epoch. Ranks are 0 .. size-1, in order.
class GroupView {
  public:
    static constexpr std::size_t members_max = 1u << 20;

    // Errors: INVALID_ARGUMENT, with what is wrong and where: no name, ranks that are not 0..n-1
    // once each, a member without or with a malformed address.
    static Result<GroupView> make(std::string name, std::uint64_t epoch,
                                  std::vector<Member> members);
    // From the JSON of a group file: {"name":"…","epoch":1,"members":[{"rank":0,"uris":["…"]}]}.
    static Result<GroupView> parse(std::string_view json);
    // Errors: NOT_FOUND, PERMISSION_DENIED (naming the file), else as parse().
    static Result<GroupView> load(const std::string& path);

    const std::string& name() const { return name_; }
    std::uint64_t epoch() const { return epoch_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
    // Requires: rank < size().
    const Member& member(std::uint32_t rank) const { return members_[rank]; }
    // Equal for equal views, in every process.
    std::uint64_t digest() const { return digest_; }

  private:
    GroupView() = default;
    std::string name_;
    std::uint64_t epoch_ = 0;
    std::vector<Member> members_;
    std::uint64_t digest_ = 0;
};

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
