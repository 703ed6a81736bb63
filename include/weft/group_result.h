// The results of typed collectives: a reply of each rank, or one reply that is merged of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <weft/refuse.h>
#include <weft/status.h>

namespace weft {

// One member's answer; `reply` is empty unless the status is OK.
template <class Reply>
struct RankReply {
    std::uint32_t rank = 0;
    Status status;
    Reply reply;
    std::uint64_t incarnation = 0;  // Of the rank, in the caller's view.
};

// The same where replies are merged.
struct RankStatus {
    std::uint32_t rank = 0;
    Status status;
    std::uint64_t incarnation = 0;
};

namespace detail {

// The common part of both results: the outcomes of the ranks.
template <class Rank>
class RankList {
  public:
    // By the policy. Not OK: the status of the first failed rank, which its text names; or, without
    // ranks, why it did not begin. Its effect is none only when every rank's is.
    const Status& status() const { return status_; }
    // The epoch of the view that it ran in.
    std::uint64_t epoch() const { return epoch_; }

    // The ranks that took part, in order: a failure of some is data, not one merged code.
    const std::vector<Rank>& ranks() const { return ranks_; }
    std::size_t size() const { return ranks_.size(); }
    auto begin() const { return ranks_.begin(); }
    auto end() const { return ranks_.end(); }
    // By position in ranks(), which differs from the rank where ranks have gaps. Requires: at <
    // size(); anything else aborts the program with a message.
    const Rank& operator[](std::size_t at) const {
        if (at >= size()) refuse_index("GroupResult or MergedResult, operator[]", at, size());
        return ranks_[at];
    }

    std::size_t ok_count() const {
        std::size_t count = 0;
        for (const Rank& rank : ranks_) count += rank.status.ok();
        return count;
    }
    // Also false for a group without members: no rank ran it.
    bool all_ok() const { return !ranks_.empty() && ok_count() == ranks_.size(); }
    // The first failure, whatever the policy is, with the rank in its text. OK when there is none;
    // without ranks: status().
    Status first_error() const {
        for (const Rank& rank : ranks_) {
            if (!rank.status.ok()) {
                return Status(rank.status).in("rank " + std::to_string(rank.rank));
            }
        }
        return ranks_.empty() ? status_ : Status();
    }

  protected:
    RankList() = default;
    RankList(Status status, std::uint64_t epoch, std::vector<Rank> ranks)
        : status_(std::move(status)), epoch_(epoch), ranks_(std::move(ranks)) {}

  private:
    Status status_;
    std::uint64_t epoch_ = 0;
    std::vector<Rank> ranks_;
};

}  // namespace detail

// The outcome of a collective with the reply of each rank.
template <class Reply>
class [[nodiscard]] GroupResult : public detail::RankList<RankReply<Reply>> {
  public:
    GroupResult() = default;
    GroupResult(Status status, std::uint64_t epoch, std::vector<RankReply<Reply>> ranks)
        : detail::RankList<RankReply<Reply>>(std::move(status), epoch, std::move(ranks)) {}
};

// The outcome of a collective with one reply, merged from those of the ranks that succeeded.
template <class Reply>
class [[nodiscard]] MergedResult : public detail::RankList<RankStatus> {
  public:
    MergedResult() = default;
    MergedResult(Status status, std::uint64_t epoch, std::vector<RankStatus> ranks, Reply reply)
        : RankList(std::move(status), epoch, std::move(ranks)), reply_(std::move(reply)) {}

    // Merged from the ok_count() ranks that have OK; empty when there is none.
    const Reply& reply() const { return reply_; }

  private:
    Reply reply_;
};

}  // namespace weft
