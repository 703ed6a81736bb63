// The public handle.
#include <weft/group.h>

#include <algorithm>

#include "base/assert.h"
#include "base/fork.h"
#include "coll/group_impl.h"
#include "rpc/body.h"

namespace weft {

namespace {

using coll::CollectiveRequest;
using coll::Engine;

TimePoint deadline_of(Engine& engine, const GroupCallOptions& options) {
    const Duration timeout =
        options.timeout == Duration::zero() ? engine.default_timeout : options.timeout;
    const TimePoint own = timeout == no_timeout
                              ? never
                              : saturating_add(engine.host().context().clock().now(), timeout);
    return options.detached ? own : std::min(own, core::Context::inherited_deadline());
}

CollectiveRequest request_for(const coll::GroupImpl& impl, const MethodId& method,
                              const GroupCallOptions& options) {
    Engine& engine = impl.engine;
    CollectiveRequest request;
    request.id = engine.host().new_id();
    request.group = impl.group;
    request.method = method.hash;
    request.options = options;
    if (options.include) request.include = *options.include;
    if (options.exclude) request.exclude = *options.exclude;
    request.options.include = request.options.exclude = nullptr;
    request.deadline = deadline_of(engine, options);
    return request;
}

// A call that another context of the runtime serves, and that began a collective: the operation in
// its scope there, which passes a cancel on, and the scope that stands for it here, in which the
// collective begins and completes. Destroyed on that other context.
struct CallElsewhere final : core::Submission, core::ScopedOperation {
    // Requires: the thread of the groups, once open() was called.
    struct SendBack {
        void operator()(CallElsewhere* call) const {
            if (call->remote_) call->groups_.remote_scopes().close(*call->remote_);
            call->home_.post(static_cast<core::Submission&>(*call));
        }
    };
    using Pointer = std::unique_ptr<CallElsewhere, SendBack>;

    // nullptr: this thread serves no call on another context, or the options detach from it.
    static Pointer find(core::Context& groups, const GroupCallOptions& options) {
        core::Context* const home = core::Context::innermost();
        if (!home || home->family() != groups.family() || options.detached) return nullptr;
        core::CallScope* const scope = home->scope();
        return scope ? Pointer(new CallElsewhere(*home, groups, *scope)) : nullptr;
    }

    core::CallScope* open() {
        WEFT_ASSERT(!remote_);
        remote_ = &groups_.remote_scopes().open(key_, deadline_);
        remote_->scope.cancelled = was_cancelled_;
        return &remote_->scope;
    }

  private:
    CallElsewhere(core::Context& home, core::Context& groups, core::CallScope& call)
        : home_(home),
          groups_(groups),
          key_{home.number(), home.next_serial()},
          deadline_(call.deadline),
          was_cancelled_(call.cancelled) {
        cancel = [](core::ScopedOperation& operation) {
            const auto& self = static_cast<const CallElsewhere&>(operation);
            self.groups_.post(
                [&groups = self.groups_, key = self.key_] { groups.remote_scopes().cancel(key); });
        };
        finish = [](core::Submission& self, Use) { delete static_cast<CallElsewhere*>(&self); };
        call.add(*this);
    }

    core::Context& home_;
    core::Context& groups_;
    const core::RemoteScopes::Key key_;
    const TimePoint deadline_;
    const bool was_cancelled_;
    core::RemoteScopes::Remote* remote_ = nullptr;  // Of the groups' context.
};

// Begins on the context's thread, or posts to it: `fill` copies the request, of that many bytes,
// and `start` starts it. `Work` has the group and the completion.
template <class Work, class Fill, class Start>
CollectiveId begin(Engine& engine, Work work, std::size_t bytes, Fill&& fill, Start start) {
    const std::shared_ptr<coll::GroupState> group = work.group;
    core::Context& context = engine.host().context();
    const CollectiveId id = work.id;
    if (const core::ThreadOwnership::UseGuard here(context); here) {
        fill(work);
        start(engine, std::move(work));
        return id;
    }
    if (context.is_forked()) {
        work.done(coll::failed_outcome(*group, context.why_forked()));
        return 0;
    }
    const std::size_t room = core::submission_bytes(bytes);
    core::Context::Admission admission(context, room);
    if (!admission) {
        context.post(
            [group, why = context.why_not_admitted(room), done = std::move(work.done)]() mutable {
                done(coll::failed_outcome(*group, why));
            });
        return 0;
    }
    fill(work);
    auto handed = std::make_unique<Work>(std::move(work));
    CallElsewhere::Pointer call = CallElsewhere::find(context, handed->options);
    CallElsewhere* const within = call.get();
    if (call) {
        handed->done = [call = std::move(call),
                        done = std::move(handed->done)](GroupOutcome outcome) mutable {
            done(std::move(outcome));
            call.reset();
        };
    }
    handed->options.detached = false;  // A posted start has no other scope.
    context.post([&engine, handed = std::move(handed), admission = std::move(admission), start,
                  within]() mutable {
        admission.release();
        const core::Context::ScopeGuard scope(engine.host().context(),
                                              within ? within->open() : nullptr);
        start(engine, std::move(*handed));
    });
    return id;
}

void start_collective(Engine& engine, CollectiveRequest&& request) {
    engine.start(std::move(request));
}

void join_member_collective(Engine& engine, coll::MemberCollectives::Contribution&& contribution) {
    engine.member_collectives().join(std::move(contribution));
}

CollectiveId refuse_empty(GroupCompletion done) {
    GroupOutcome outcome;
    outcome.status = detail::empty_group();
    done(std::move(outcome));
    return 0;
}

}  // namespace

Status detail::empty_group() {
    return fail(Code::failed_precondition,
                "an empty weft::Group, default-made or moved from, has no members; "
                "Runtime::group() returns one that has");
}

CollectiveId Group::collective(const MethodId& method, const BodyWriter& body,
                               const GroupCallOptions& options, GroupCompletion done) const {
    if (!done) detail::refuse_empty("Group::collective(), as its completion");
    if (!impl_) return refuse_empty(std::move(done));
    if (const std::size_t most = impl_->engine.host().reply_bytes_max(); body.bytes > most) {
        refuse(fail(Code::invalid_argument,
                    "a request of " + std::to_string(body.bytes) + " bytes exceeds the limit of " +
                        std::to_string(most) +
                        " bytes (RuntimeOptions::argument_bytes_max); pass large data by "
                        "weft.BulkRef"),
               options, std::move(done));
        return 0;
    }
    CollectiveRequest request = request_for(*impl_, method, options);
    request.done = std::move(done);
    const auto fill = [&](CollectiveRequest& into) {
        into.body.resize(body.bytes);
        rpc::copy_body(body, into.body.data());
    };
    return begin(impl_->engine, std::move(request), body.bytes, fill, start_collective);
}

CollectiveId Group::scatter(const MethodId& method, std::span<const RankBody> bodies,
                            const GroupCallOptions& options, GroupCompletion done) const {
    if (!done) detail::refuse_empty("Group::scatter(), as its completion");
    if (!impl_) return refuse_empty(std::move(done));
    CollectiveRequest request = request_for(*impl_, method, options);
    request.done = std::move(done);
    request.scatters = true;
    std::size_t bytes = 0;
    for (const RankBody& one : bodies) bytes += one.body.size();
    const auto fill = [&](CollectiveRequest& into) {
        into.bodies.reserve(bodies.size());
        for (const RankBody& one : bodies) {
            into.bodies.emplace_back(one.rank,
                                     std::vector<std::byte>(one.body.begin(), one.body.end()));
        }
    };
    return begin(impl_->engine, std::move(request), bytes, fill, start_collective);
}

CollectiveId Group::all_gather(std::string_view name, ByteView value,
                               const GroupCallOptions& options, GroupCompletion done) const {
    if (!done) detail::refuse_empty("Group::all_gather(), as its completion");
    if (!impl_) return refuse_empty(std::move(done));
    CollectiveRequest request = request_for(*impl_, MethodId(), options);
    coll::MemberCollectives::Contribution contribution;
    contribution.id = request.id;
    contribution.group = impl_->group;
    contribution.options = request.options;
    contribution.include = std::move(request.include);
    contribution.exclude = std::move(request.exclude);
    contribution.deadline = request.deadline;
    contribution.done = std::move(done);
    const auto fill = [&](coll::MemberCollectives::Contribution& into) {
        into.name = name;
        into.value.assign(value.begin(), value.end());
    };
    return begin(impl_->engine, std::move(contribution), value.size() + name.size(), fill,
                 join_member_collective);
}

void Group::refuse(const Status& why, const GroupCallOptions& options, GroupCompletion done) const {
    core::Context& context = impl_->engine.host().context();
    if (context.is_forked()) return done(coll::failed_outcome(*impl_->group, context.why_forked()));
    GroupOutcome outcome = coll::failed_outcome(*impl_->group, why);
    if (context.in_turn())
        return impl_->engine.host().complete_later(options, std::move(outcome), std::move(done));
    context.post([group = impl_->group, why, done = std::move(done)]() mutable {
        done(coll::failed_outcome(*group, why));
    });
}

void Group::cancel(CollectiveId id) const {
    if (!impl_) return;
    core::Context& context = impl_->engine.host().context();
    if (context.is_forked()) return;
    if (const core::ThreadOwnership::UseGuard here(context); here && impl_->engine.cancel(id))
        return;
    // Another thread may have begun it just now: this runs after that.
    context.post([group = impl_, id] { (void)group->engine.cancel(id); });
}

GroupView Group::view() const { return impl_ ? impl_->group->view() : GroupView(); }

Status coll::why_not_here(const core::Context& of_groups, const char* call) {
    if (Status why = of_groups.why_forked(); !why.ok()) return why;
    if (!of_groups.is_entered_elsewhere()) return {};
    return fail(Code::failed_precondition,
                std::string(call) +
                    " in a callback, handler or coroutine of another context than 0, which has the "
                    "groups, would wait for that one: submit() the call to context 0");
}

Status Group::install(const GroupView& view) const {
    if (!impl_) return detail::empty_group();
    Status status = coll::why_not_here(impl_->engine.host().context(), "Group::install()");
    if (!status.ok()) return status;
    const bool has_run =
        impl_->engine.host().run_on_context([&] { status = impl_->group->install(view); });
    return has_run ? status : fail(Code::unavailable, "the runtime is shutting down");
}

void Group::on_change(Function<void(const MemberChange&)> listener) const {
    if (!impl_)
        base::abort_misused("Group::on_change()",
                            "of an empty group, which never changes: Runtime::group() returns one");
    if (!listener) detail::refuse_empty("Group::on_change()");
    if (impl_->engine.host().context().is_forked()) {
        return base::report_forked("a notice of Group::on_change() is dropped");
    }
    core::Context& context = impl_->engine.host().context();
    auto listen = [group = impl_, listener = std::move(listener)]() mutable {
        group->engine.on_change(group->group, std::move(listener));
    };
    if (context.is_entered_elsewhere()) return context.post(std::move(listen));
    (void)impl_->engine.host().run_on_context([&] { listen(); });
}

Executor& Group::executor() const {
    if (!impl_)
        base::abort_misused("Group::executor()",
                            "of an empty group, which has none: Runtime::group() returns one");
    return impl_->engine.host().context();
}

bool Group::on_thread() const {
    return impl_ && impl_->engine.host().context().is_owner_or_creator();
}

TimePoint Group::deadline(const GroupCallOptions& options) const {
    return impl_ ? deadline_of(impl_->engine, options) : never;
}

Result<Channel> Group::channel(std::uint32_t rank) const {
    if (!impl_) return detail::empty_group();
    Status why = coll::why_not_here(impl_->engine.host().context(), "Group::channel()");
    if (!why.ok()) return why;
    Result<Channel> channel = fail(Code::unavailable, "the runtime is shutting down");
    (void)impl_->engine.host().run_on_context([&] { channel = impl_->group->channel(rank); });
    return channel;
}

}  // namespace weft
