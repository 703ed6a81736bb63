// Collectives with protobuf messages: the base of a generated <Service>GroupClient, and collectives
// among members.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/group.h>
#include <weft/home_context.h>
#include <weft/protobuf_group_codec.h>

namespace weft {

// Requests for ranks; the ranks that they name take part. An lvalue of any type that a std::span
// can be made of, or a std::vector or std::span made for the call. Name a std::array first: g++ 12
// destroys the elements of such a temporary in a co_await expression twice.
// clang-format off
template <class Requests, class Request>
concept RequestsOf = AwaitSafeArgument<Requests> &&
    std::constructible_from<std::span<const RankRequest<Request>>,
                            const std::remove_reference_t<Requests>&>;
// clang-format on

// Called by generated stubs with a completion token of Boost.Asio for void(Result): see
// <weft/asio.h>. `group` is a weft::Group.
template <class Result, class AnyGroup, class Request, class Reply, class Token>
decltype(auto) collective(const AnyGroup& group, const ProtoMethod<Request, Reply>& method,
                          const Request& in, const GroupCallOptions& options, Token&& token) {
    static_assert(detail::IsDefined<detail::Tokens<Token>>,
                  "for a completion token include <weft/asio.h>");
    if constexpr (detail::IsDefined<detail::Tokens<Token>>) {
        return detail::Tokens<Token>::template collective<Result>(
            group, method.id, detail::writer_of(in), detail::options_for(method, options), token);
    }
}

template <class Result, class AnyGroup, class Request, class Reply, class Token>
decltype(auto) scatter(const AnyGroup& group, const ProtoMethod<Request, Reply>& method,
                       std::span<const RankRequest<Request>> each, const GroupCallOptions& options,
                       Token&& token) {
    static_assert(detail::IsDefined<detail::Tokens<Token>>,
                  "for a completion token include <weft/asio.h>");
    if constexpr (detail::IsDefined<detail::Tokens<Token>>) {
        return detail::Tokens<Token>::template scatter<Result>(
            group, method.id, detail::Bodies(each), detail::options_for(method, options), token);
    }
}

// The operation that `co_await group_client.Method(in)` awaits. Starts when it is made, gives its
// result once, and resumes its awaiter on the executor that it was made on; awaited again, or in a
// turn of another executor, it throws std::logic_error. By its deadline, and by the cancel of its
// call, it ends even while the group's runtime, on another thread, is blocked: at most 10 ms later,
// with effect unknown and no ranks. Destroying it early cancels it (Group::cancel). Thread: where
// it was made; destroying it early on another one aborts the program with a message.
template <class Result>
class [[nodiscard]] GroupCall {
  public:
    // `group` is a weft::Group.
    template <class AnyGroup, class Request, class Reply>
    GroupCall(const AnyGroup& group, const ProtoMethod<Request, Reply>& method, const Request& in,
              const GroupCallOptions& options) {
        start(group, detail::options_for(method, options), [&](const auto& with, auto done) {
            return group.collective(method.id, detail::writer_of(in), with, std::move(done));
        });
    }
    // As Group::scatter().
    template <class AnyGroup, class Request, class Reply>
    GroupCall(const AnyGroup& group, const ProtoMethod<Request, Reply>& method,
              std::span<const RankRequest<Request>> each, const GroupCallOptions& options) {
        start(group, detail::options_for(method, options), [&](const auto& with, auto done) {
            const detail::Bodies bodies(each);
            return group.scatter(method.id, bodies.views(), with, std::move(done));
        });
    }
    // As Group::all_gather().
    template <class AnyGroup>
    GroupCall(const AnyGroup& group, std::string_view name, ByteView value,
              const GroupCallOptions& options) {
        start(group, options, [&](const auto& with, auto done) {
            return group.all_gather(name, value, with, std::move(done));
        });
    }
    GroupCall(const GroupCall&) = delete;  // An operation stays where it was made.
    GroupCall& operator=(const GroupCall&) = delete;
    ~GroupCall() {
        shared_->awaiter_slot.on_destroyed();
        shared_->stop(true);
    }

    static constexpr const char* what = "a group stub's call, barrier() or all_gather()";
    detail::ReferenceAwaiter<GroupCall> operator co_await() {
        return detail::ReferenceAwaiter(*this);
    }
    bool await_ready() const noexcept { return shared_->done; }
    Result await_resume() { return std::move(shared_->result); }
    // The result of an operation that was destroyed while it was awaited.
    static Result destroyed_result(Status why) {
        GroupOutcome outcome;
        outcome.status = std::move(why);
        return detail::ReadGroup<Result>()(std::move(outcome), {});
    }

  private:
    friend detail::ReferenceAwaiter<GroupCall>;
    detail::AwaiterSlot& awaiter_slot() { return shared_->awaiter_slot; }

    // Shared by the awaiter and the completion; either may outlive the other. Thread: the one that
    // awaits.
    struct Shared : std::enable_shared_from_this<Shared> {
        std::optional<detail::HomeContext> home;  // Empty on the group's context.
        detail::NextTurnWork later;
        Result result;
        bool done = false;
        detail::AwaiterSlot awaiter_slot;
        Function<void(bool is_dropped)> cancel;

        void finish(Result&& with) {
            if (done) return;
            if (home) home->detach();
            cancel = nullptr;  // It holds the group, which may hold this.
            result = std::move(with);
            done = true;
            if (awaiter_slot.is_suspended()) awaiter_slot.resume_or_end();
        }
        void stop(bool is_dropped) {
            if (home) home->detach();
            cancel_once(is_dropped);
        }
        void cancel_once(bool is_dropped) {
            if (!done && cancel) std::exchange(cancel, nullptr)(is_dropped);
        }
    };

    template <class AnyGroup, class Begin>
    void start(const AnyGroup& group, const GroupCallOptions& options, Begin begin) {
        const detail::PolicyCheck required(options);
        const auto refuse = [shared = shared_.get(), required](Status why) {
            GroupOutcome refused;
            refused.status = std::move(why);
            shared->finish(detail::ReadGroup<Result>()(std::move(refused), required));
        };
        const auto refuse_later = [shared = shared_.get(), refuse](Status why) {
            shared->later.run([refuse, why = std::move(why)] { refuse(why); });
        };
        Executor* const here = Executor::current();
        shared_->awaiter_slot.set_home(here);
        if (!group.on_thread() || (here && here != &group.executor())) {
            Status why =
                group ? detail::why_not_awaitable_here(group.executor()) : detail::empty_group();
            if (!why.ok()) return here ? refuse_later(std::move(why)) : refuse(std::move(why));
            shared_->home.emplace([shared = shared_.get(), refuse](Status ended) {
                const auto kept = shared->shared_from_this();
                shared->stop(false);
                refuse(std::move(ended).with_effect(Effect::unknown));
            });
            detail::HomeContext& home = *shared_->home;
            const auto cancel = [shared = shared_.get()] { shared->cancel_once(false); };
            why = options.detached ? Status() : home.join_call(cancel);
            if (!why.ok()) return refuse_later(std::move(why));
            home.limit(group.deadline(options));
        } else {
            shared_->awaiter_slot.set_home(&group.executor());
        }
        const CollectiveId id =
            begin(options, [shared = shared_, required](GroupOutcome outcome) mutable {
                Result result = detail::ReadGroup<Result>()(std::move(outcome), required);
                if (!shared->home) return shared->finish(std::move(result));
                shared->home->deliver([shared, result = std::move(result)]() mutable {
                    shared->finish(std::move(result));
                });
            });
        if (id == 0 || shared_->done) return;
        shared_->cancel = [group, id, is_away = shared_->home.has_value()](bool is_dropped) {
            // With `is_away`, HomeContext::detach() has checked the thread.
            if (is_dropped && !is_away && !group.on_thread()) {
                detail::require_end_on_thread(group.executor(), "a collective (GroupCall)");
            }
            group.cancel(id);
        };
    }

    const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// ---- collectives among members ------------------------------------------------------------------

// The list of all members' messages; every member calls it once under the same name: see
// Group::all_gather(). Policies, the timeout and the ranks that take part apply; there is no
// reduction.
template <class Message, class AnyGroup>
GroupCall<GroupResult<Message>> all_gather(const AnyGroup& group, std::string_view name,
                                           const Message& message, GroupCallOptions options = {}) {
    options.reduction = {};
    const BodyWriter writer = detail::writer_of(message);
    std::vector<std::byte> value(writer.bytes);
    writer(value.data());
    return {group, name, value, options};
}

// Completes when all members have called it. Gives a Status, by the policy.
template <class AnyGroup>
GroupCall<Status> barrier(const AnyGroup& group, std::string_view name,
                          GroupCallOptions options = {}) {
    options.reduction = {};
    return {group, name, ByteView(), options};
}

}  // namespace weft
