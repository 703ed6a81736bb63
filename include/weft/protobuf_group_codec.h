// The codec of collectives: bodies of requests, and results made from outcomes. Include
// weft/protobuf_group.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <weft/group.h>
#include <weft/group_result.h>
#include <weft/protobuf.h>

namespace weft {

// The request for one rank of a scatter. (No aggregate: g++ 12 destroys twice the aggregates that
// fill a container within a co_await expression.)
template <class Request>
struct RankRequest {
    RankRequest() = default;
    RankRequest(std::uint32_t of, Request request_body)
        : rank(of), request(std::move(request_body)) {}

    std::uint32_t rank = 0;
    Request request;
};

namespace detail {

GroupCallOptions options_for(const GroupCallOptions& of_method, Duration timeout,
                             std::uint32_t priority, MergeFunction merge, GroupCallOptions options);

template <class Request, class Reply>
GroupCallOptions options_for(const ProtoMethod<Request, Reply>& method,
                             const GroupCallOptions& options) {
    return options_for(method.group, method.timeout, method.priority, method.merge, options);
}

// Checks, by the policy of the options, whether enough ranks succeeded.
struct PolicyCheck {
    Policy policy = Policy::all;
    std::uint32_t quorum = 0;

    PolicyCheck() = default;
    explicit PolicyCheck(const GroupCallOptions& options)
        : policy(options.policy), quorum(options.quorum) {}
    bool is_met(std::size_t ok, std::size_t all) const;
};

// Makes the result of an outcome.
template <class Result>
struct ReadGroup;

template <class Reply>
struct ReadGroup<GroupResult<Reply>> {
    GroupResult<Reply> operator()(GroupOutcome&& outcome, const PolicyCheck& required) const {
        std::vector<RankReply<Reply>> ranks;
        ranks.reserve(outcome.ranks.size());
        std::size_t room = parsed_bytes_max();
        for (RankOutcome& rank : outcome.ranks) {
            RankReply<Reply>& taken = ranks.emplace_back();
            taken.rank = rank.rank;
            taken.incarnation = rank.incarnation;
            taken.status = std::move(rank.status);
            if (taken.status.ok()) taken.status = read_reply(taken.reply, rank.reply, room);
            if (!taken.status.ok()) taken.reply.Clear();
        }
        GroupResult<Reply> result(std::move(outcome.status), outcome.epoch, std::move(ranks));
        // The policy was applied before these replies were parsed, so it is applied once more.
        if (!result.status().ok() || required.is_met(result.ok_count(), result.size()))
            return result;
        const bool is_known = std::all_of(result.begin(), result.end(), [](const auto& rank) {
            return rank.status.effect() != Effect::unknown;
        });
        return {result.first_error().with_effect(is_known ? Effect::applied : Effect::unknown),
                result.epoch(), result.ranks()};
    }
};

template <class Reply>
struct ReadGroup<MergedResult<Reply>> {
    MergedResult<Reply> operator()(GroupOutcome&& outcome, const PolicyCheck&) const {
        std::vector<RankStatus> ranks;
        ranks.reserve(outcome.ranks.size());
        for (RankOutcome& rank : outcome.ranks) {
            ranks.push_back({rank.rank, std::move(rank.status), rank.incarnation});
        }
        Reply reply;
        if (Status read = read_reply<Reply>(&reply, outcome.merged); !read.ok()) {
            reply.Clear();
            if (outcome.status.ok()) outcome.status = std::move(read);
        }
        return {std::move(outcome.status), outcome.epoch, std::move(ranks), std::move(reply)};
    }
};

template <>
struct ReadGroup<Status> {
    Status operator()(GroupOutcome&& outcome, const PolicyCheck&) const {
        return std::move(outcome.status);
    }
};

// The serialized request bodies of a scatter.
class Bodies {
  public:
    template <class Request>
    explicit Bodies(std::span<const RankRequest<Request>> each) {
        bodies_.reserve(each.size());
        for (const RankRequest<Request>& one : each) {
            const BodyWriter writer = writer_of(one.request);
            auto& [rank, body] = bodies_.emplace_back(one.rank, writer.bytes);
            writer(body.data());
        }
    }
    std::vector<RankBody> views() const {
        std::vector<RankBody> views;
        views.reserve(bodies_.size());
        for (const auto& [rank, body] : bodies_) views.push_back({rank, body});
        return views;
    }

  private:
    std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> bodies_;
};

}  // namespace detail

}  // namespace weft
