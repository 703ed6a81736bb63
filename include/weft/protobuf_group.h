// Collective calls with protobuf messages: what a generated <Service>GroupClient stands on.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/protobuf.h>

namespace weft {

// One member's answer; `reply` is empty unless the status is OK.
template <class Reply>
struct RankReply {
    std::uint32_t rank = 0;
    Status status;
    Reply reply;
};

// What a collective call came to, member by member: a failure of some is data, not one merged code.
template <class Reply>
class [[nodiscard]] GroupResult {
  public:
    GroupResult() = default;
    explicit GroupResult(std::vector<RankReply<Reply>> ranks) : ranks_(std::move(ranks)) {}

    std::size_t size() const { return ranks_.size(); }
    auto begin() const { return ranks_.begin(); }
    auto end() const { return ranks_.end(); }
    const RankReply<Reply>& operator[](std::size_t at) const { return ranks_[at]; }

    std::size_t ok_count() const {
        std::size_t count = 0;
        for (const RankReply<Reply>& rank : ranks_) count += rank.status.ok();
        return count;
    }
    // Also false for a group without members: nobody did it.
    bool all_ok() const { return !ranks_.empty() && ok_count() == ranks_.size(); }
    // With the rank in its text; OK when there is none.
    Status first_error() const {
        for (const RankReply<Reply>& rank : ranks_) {
            if (!rank.status.ok()) {
                return Status(rank.status).in("rank " + std::to_string(rank.rank));
            }
        }
        return {};
    }

  private:
    std::vector<RankReply<Reply>> ranks_;
};

namespace detail {

// Outcomes are a std::vector<RankOutcome>.
template <class Reply>
struct ReadRanks {
    template <class Outcomes>
    GroupResult<Reply> operator()(Outcomes&& outcomes) const {
        std::vector<RankReply<Reply>> ranks;
        ranks.reserve(outcomes.size());
        for (auto& [rank, status, bytes] : outcomes) {
            RankReply<Reply>& taken = ranks.emplace_back();
            taken.rank = rank;
            taken.status = std::move(status);
            if (taken.status.ok()) taken.status = read_reply<Reply>(&taken.reply, bytes);
            if (!taken.status.ok()) taken.reply.Clear();
        }
        return GroupResult<Reply>(std::move(ranks));
    }
};

}  // namespace detail

// What generated stubs do with a completion token of Boost.Asio for void(GroupResult<Reply>): see
// <weft/asio.h>. `group` is a weft::Group.
template <class AnyGroup, class Request, class Reply, class Token>
decltype(auto) collective(const AnyGroup& group, const ProtoMethod<Request, Reply>& method,
                          const Request& in, const CallOptions& options, Token&& token) {
    static_assert(detail::IsDefined<detail::Tokens<Token>>,
                  "for a completion token include <weft/asio.h>");
    if constexpr (detail::IsDefined<detail::Tokens<Token>>) {
        return detail::Tokens<Token>::template collective<detail::ReadRanks<Reply>>(
            group, method.id, detail::writer_of(in), detail::options_for(method, options), token);
    }
}

// What `co_await group_client.Method(in)` waits for. Starts when it is made, is awaited at most
// once, resumes on the executor it was made on. Destroying it early forgets the outcome; the
// members are not told.
template <class Reply>
class [[nodiscard]] GroupCall {
  public:
    // `group` is a weft::Group.
    template <class AnyGroup, class Request>
    GroupCall(const AnyGroup& group, const ProtoMethod<Request, Reply>& method, const Request& in,
              const CallOptions& options)
        : shared_(std::make_shared<Shared>()) {
        shared_->home = Executor::current();
        if (!shared_->home && !group.on_thread()) {
            shared_->refuse(group.view().size());
            return;
        }
        group.collective(method.id, detail::writer_of(in), detail::options_for(method, options),
                         [shared = shared_](auto outcomes) {
                             shared->result = detail::ReadRanks<Reply>()(std::move(outcomes));
                             shared->bring_home(shared);
                         });
    }
    GroupCall(const GroupCall&) = delete;
    GroupCall& operator=(const GroupCall&) = delete;
    ~GroupCall() { shared_->awaiting = nullptr; }

    bool await_ready() const noexcept { return shared_->done; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { shared_->awaiting = awaiting; }
    GroupResult<Reply> await_resume() { return std::move(shared_->result); }

  private:
    // Of the awaiter and the completion, whichever is left.
    struct Shared {
        Executor* home = nullptr;
        GroupResult<Reply> result;  // The completion's until it came home.
        bool done = false;          // Home's thread only, as what follows.
        std::coroutine_handle<> awaiting;

        void refuse(std::uint32_t ranks_in_all) {
            std::vector<RankReply<Reply>> ranks;
            for (std::uint32_t rank = 0; rank < ranks_in_all; ++rank) {
                ranks.push_back({rank, detail::nowhere(), {}});
            }
            result = GroupResult<Reply>(std::move(ranks));
            done = true;
        }

        void bring_home(std::shared_ptr<Shared> self) {
            if (!home || home == Executor::current()) return finish();
            home->post([self = std::move(self)] { self->finish(); });
        }

        void finish() {
            done = true;
            if (awaiting) awaiting.resume();
        }
    };

    std::shared_ptr<Shared> shared_;
};

}  // namespace weft
