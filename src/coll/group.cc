// The public handle.
#include <weft/group.h>

#include <algorithm>

#include "coll/engine.h"

namespace weft {

namespace {

using coll::Engine;

Engine::Beginning beginning_of(const std::shared_ptr<coll::GroupImpl>& group,
                               const MethodId& method, const GroupCallOptions& options) {
    Engine& engine = group->engine;
    Engine::Beginning beginning;
    beginning.group = group;
    beginning.method = method.hash;
    beginning.options = options;
    if (options.include) beginning.include = *options.include;
    if (options.exclude) beginning.exclude = *options.exclude;
    beginning.options.include = beginning.options.exclude = nullptr;
    const Duration timeout =
        options.timeout == Duration::zero() ? engine.default_timeout : options.timeout;
    beginning.deadline =
        timeout == no_timeout ? never : saturating_add(engine.context().clock().now(), timeout);
    if (!options.detached) {
        beginning.deadline = std::min(beginning.deadline, core::Context::inherited_deadline());
    }
    return beginning;
}

// Begins it there, or hands it over. `fill` copies the bodies, of that many bytes.
template <class Fill>
CollectiveId begin(Engine::Beginning beginning, std::size_t bytes, Fill&& fill) {
    const std::shared_ptr<coll::GroupImpl> group = beginning.group;
    core::Context& context = group->engine.context();
    if (context.on_thread()) {
        fill(beginning);
        return group->engine.start(std::move(beginning));
    }
    const std::size_t room = bytes + core::Context::handed_over_bytes;
    core::Context::Admission admission(context, room);
    if (!admission) {
        context.post([group, why = context.why_not_admitted(room),
                      done = std::move(beginning.done)]() mutable {
            done(coll::failed_outcome(*group, why));
        });
        return 0;
    }
    fill(beginning);
    auto handed = std::make_unique<Engine::Beginning>(std::move(beginning));
    handed->options.detached = false;  // There it is in no scope.
    context.post([handed = std::move(handed), admission = std::move(admission)]() mutable {
        admission.release();
        Engine& engine = handed->group->engine;
        engine.start(std::move(*handed));
    });
    return 0;
}

}  // namespace

CollectiveId Group::collective(const MethodId& method, const BodyWriter& body,
                               const GroupCallOptions& options, GroupCompletion done) const {
    Engine::Beginning beginning = beginning_of(impl_, method, options);
    beginning.done = std::move(done);
    return begin(std::move(beginning), body.bytes, [&](Engine::Beginning& into) {
        into.body.resize(body.bytes);
        body(into.body.data());
    });
}

CollectiveId Group::scatter(const MethodId& method, std::span<const ByteView> bodies,
                            const GroupCallOptions& options, GroupCompletion done) const {
    Engine::Beginning beginning = beginning_of(impl_, method, options);
    beginning.done = std::move(done);
    beginning.scatters = true;
    std::size_t bytes = 0;
    for (const ByteView body : bodies) bytes += body.size();
    return begin(std::move(beginning), bytes, [&](Engine::Beginning& into) {
        for (const ByteView body : bodies) into.bodies.emplace_back(body.begin(), body.end());
    });
}

void Group::meet(std::string_view name, ByteView value, const GroupCallOptions& options,
                 GroupCompletion done) const {
    Engine::Beginning beginning = beginning_of(impl_, MethodId(), options);
    coll::Meetings::Coming coming;
    coming.group = impl_;
    coming.name = name;
    coming.value.assign(value.begin(), value.end());
    coming.options = beginning.options;
    coming.include = std::move(beginning.include);
    coming.exclude = std::move(beginning.exclude);
    coming.deadline = beginning.deadline;
    coming.done = std::move(done);
    core::Context& context = impl_->engine.context();
    if (context.on_thread()) return impl_->engine.meetings().come(std::move(coming));
    const std::size_t room = value.size() + name.size() + core::Context::handed_over_bytes;
    core::Context::Admission admission(context, room);
    if (!admission) {
        return context.post(
            [group = impl_, why = context.why_not_admitted(room),
             told = std::move(coming.done)]() mutable { told(coll::failed_outcome(*group, why)); });
    }
    auto handed = std::make_unique<coll::Meetings::Coming>(std::move(coming));
    context.post([handed = std::move(handed), admission = std::move(admission)]() mutable {
        admission.release();
        Engine& engine = handed->group->engine;
        engine.meetings().come(std::move(*handed));
    });
}

void Group::cancel(CollectiveId id) const { impl_->engine.cancel(id); }

GroupView Group::view() const { return impl_->view(); }

Status Group::install(const GroupView& view) const {
    Status status;
    impl_->engine.run_on_context([&] { status = impl_->install(view); });
    return status;
}

void Group::on_change(Function<void(const MemberChange&)> told) const {
    impl_->engine.run_on_context([&] { impl_->on_change(std::move(told)); });
}

Executor& Group::executor() const { return impl_->engine.context(); }

bool Group::on_thread() const { return impl_->engine.context().on_thread(); }

Result<Channel> Group::channel(std::uint32_t rank) const {
    Result<Channel> channel = fail(Code::internal, "");
    impl_->engine.run_on_context([&] { channel = impl_->channel(rank); });
    return channel;
}

}  // namespace weft
