#include "coll/engine.h"

#include <algorithm>

#include "base/assert.h"

namespace weft::coll {

// One collective at this node, alive while a child, the local handler or the timer refers to it.
struct Engine::Operation : base::Timer {
    Operation(std::shared_ptr<GroupImpl> with, ForwardHeader as, Interval interval)
        : group(std::move(with)), header(as), gathering(interval, as.root, group->view.size()) {}

    std::shared_ptr<GroupImpl> group;
    ForwardHeader header;
    Gathering gathering;
    TimePoint until = never;
    bool detached = false;  // From the handler that started it.
    core::InScope made_in;  // Where its completion runs.
    std::vector<std::pair<Channel, OperationId>> children;
    Function<void(std::vector<RankOutcome>)> done;  // Empty once called.
    Engine* engine = nullptr;
    std::weak_ptr<Operation> self;
};

// What is kept back at each hop, so that the rank that is late is named by its parent, and not its
// parent by the grandparent: enough for an answer and two timer ticks.
static Duration share(Duration left) {
    if (left < 8ms) return left / 2;
    return left - std::clamp<Duration>(left / 32, 3ms, 500ms);
}

static TimePoint share_of(TimePoint now, TimePoint deadline) {
    return deadline == never ? never : now + share(std::max(deadline - now, Duration(0)));
}

Engine::Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run)
    : context_(context),
      server_(server),
      connect_(std::move(connect)),
      run_on_context_(std::move(run)) {
    Status status =
        server_.add_method(forward_method.name, [this](Call call) { on_forward(std::move(call)); });
    WEFT_ASSERT(status.ok());
}

Status Engine::join(std::shared_ptr<GroupImpl> group) {
    if (context_.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    for (const auto& there : groups_) {
        if (there->view.name() == group->view.name()) {
            return fail(Code::already_exists,
                        "this runtime is a member of group '" + there->view.name() + "' already");
        }
    }
    groups_.push_back(std::move(group));
    return {};
}

std::shared_ptr<GroupImpl> Engine::joined(std::uint64_t digest) const {
    for (const auto& group : groups_) {
        if (group->view.digest() == digest) return group;
    }
    return nullptr;
}

void Engine::shutdown() { groups_.clear(); }

void Engine::start(std::shared_ptr<GroupImpl> group, std::uint64_t method,
                   std::vector<std::byte> body, TimePoint deadline, bool detached,
                   GroupCompletion done) {
    context_.rouse();
    const std::uint32_t n = group->view.size();
    ForwardHeader header;
    header.view = group->view.digest();
    header.epoch = group->view.epoch();
    header.collective = context_.random().next();
    header.method = method;
    header.root = group->own_rank.value_or(0);
    header.first = 0;
    header.last = n;
    auto operation = std::make_shared<Operation>(group, header, Interval{0, n});
    operation->until = deadline;
    operation->detached = detached;
    core::Scope* const scope = context_.in_turn() && !detached ? context_.scope() : nullptr;
    if (scope) scope->add(operation->made_in);
    operation->done = [this, &ended = *operation,
                       done = std::move(done)](std::vector<RankOutcome> all) mutable {
        std::sort(all.begin(), all.end(),
                  [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
        // Posted: a group of one may be complete inside start().
        context_.post([operation = ended.self.lock(), done = std::move(done),
                       all = std::move(all)]() mutable {
            const core::Context::Within within(operation->engine->context_,
                                               operation->made_in.scope);
            operation->made_in.leave();
            done(std::move(all));
        });
    };
    if (group->own_rank) {
        run(operation, {1, n}, body);
        run_here(operation, body);
    } else {
        // An outside client stands in front of position 0 and forwards to whole subtrees.
        run(operation, {0, n}, body);
    }
    progress(operation);
}

// ---- as a member -------------------------------------------------------------------------------

Status Engine::refusal(const ForwardHeader& header, const GroupImpl* group) const {
    auto stale = [](std::string text) {
        return rejected(Code::failed_precondition, std::move(text));
    };
    if (!group) {
        std::string here;
        for (const auto& joined : groups_) {
            here += (here.empty() ? "" : ", ") + joined->view.name() + " epoch " +
                    std::to_string(joined->view.epoch());
        }
        return stale("stale view: the caller's has epoch " + std::to_string(header.epoch) +
                     "; here: " + (here.empty() ? "no group" : here));
    }
    const std::uint32_t meant = rank_at(header.first, header.root, group->view.size());
    if (meant != *group->own_rank) {
        return stale("this is rank " + std::to_string(*group->own_rank) + ", not rank " +
                     std::to_string(meant));
    }
    return {};
}

void Engine::on_forward(Call call) {
    if (call.request().size() < sizeof(ForwardHeader)) {
        return call.fail(rejected(Code::invalid_argument, "a collective shorter than its header"));
    }
    const auto header = base::load<ForwardHeader>(call.request().data());
    const std::shared_ptr<GroupImpl> group = joined(header.view);
    Status refused = refusal(header, group.get());
    if (refused.ok()) {
        const Status malformed = decode_forward(call.request(), group->view.size()).status();
        if (!malformed.ok()) refused = rejected(malformed.code(), std::string(malformed.text()));
    }
    if (!refused.ok()) return call.fail(refused);

    const Interval interval{header.first, header.last};
    auto operation = std::make_shared<Operation>(group, header, interval);
    operation->until = share_of(context_.now(), call.deadline());
    const ByteView body = call.request().subspan(sizeof(ForwardHeader));
    // Children that are told to stop answer, and so complete the operation.
    call.on_cancel([weak = std::weak_ptr<Operation>(operation)] {
        const std::shared_ptr<Operation> cancelled = weak.lock();
        if (!cancelled) return;
        for (const auto& [channel, id] : cancelled->children) channel.cancel_call(id);
    });
    auto reply_to = std::make_shared<Call>(std::move(call));
    operation->done = [reply_to](std::vector<RankOutcome> all) {
        reply_to->reply(encode_outcomes(std::move(all), reply_to->reply_bytes_max()));
    };
    run(operation, {interval.first + 1, interval.last}, body);
    run_here(operation, body);
    progress(operation);
}

// ---- one node's part ---------------------------------------------------------------------------

void Engine::run(const std::shared_ptr<Operation>& operation, Interval below, ByteView body) {
    operation->engine = this;
    operation->self = operation;
    operation->fire = [](base::Timer& timer, TimePoint) {
        auto& expired = static_cast<Operation&>(timer);
        expired.engine->expire(expired);
    };
    context_.timers().arm(*operation, operation->until);
    for (const Interval child : split(below, operation->header.tree)) {
        forward(operation, child, body);
    }
}

void Engine::forward(const std::shared_ptr<Operation>& operation, Interval child, ByteView body) {
    GroupImpl& group = *operation->group;
    const std::uint32_t rank = rank_at(child.first, operation->header.root, group.view.size());
    Result<Channel> channel = group.channel(rank);
    if (!channel) return operation->gathering.fail_subtree(child, channel.status());

    struct Body {
        ForwardHeader header;
        ByteView body;
    } out{operation->header, body};
    out.header.first = child.first;
    out.header.last = child.last;
    const BodyWriter writer{
        forward_bytes(body.size()), &out, [](void* object, std::byte* to) {
            const Body& from = *static_cast<Body*>(object);
            encode_forward(from.header, from.body, {to, forward_bytes(from.body.size())});
        }};
    CallOptions options;
    options.detached = operation->detached;
    const TimePoint until = share_of(context_.now(), operation->until);
    options.timeout = until == never ? no_timeout : std::max(until - context_.now(), Duration(1));
    const OperationId id =
        channel->call_with(forward_method, writer, options,
                           [this, operation, child](const Status& status, ByteView reply) {
                               if (!status.ok()) {
                                   operation->gathering.fail_subtree(child, status);
                               } else if (auto outcomes = decode_outcomes(reply)) {
                                   operation->gathering.set_subtree(child, *std::move(outcomes));
                               } else {
                                   operation->gathering.fail_subtree(child, outcomes.status());
                               }
                               progress(operation);
                           });
    operation->children.emplace_back(*std::move(channel), id);
}

void Engine::run_here(const std::shared_ptr<Operation>& operation, ByteView body) {
    const std::uint32_t rank = *operation->group->own_rank;
    server_.dispatch_local(
        operation->header.method, body, operation->until,
        [this, operation, rank](const Status& status, ByteView reply) {
            operation->gathering.set({rank, status, {reply.begin(), reply.end()}});
            progress(operation);
        });
}

void Engine::progress(const std::shared_ptr<Operation>& operation) {
    if (!operation->gathering.complete() || !operation->done) return;
    context_.timers().cancel(*operation);
    operation->children.clear();
    auto done = std::move(operation->done);
    done(operation->gathering.take());
}

// The children's calls have ended before; what is missing is the handler here.
void Engine::expire(Operation& expired) {
    const std::shared_ptr<Operation> operation = expired.self.lock();
    const Interval whole{operation->header.first, operation->header.last};
    for (std::uint32_t position = whole.first; position < whole.last; ++position) {
        const std::uint32_t rank =
            rank_at(position, operation->header.root, operation->group->view.size());
        operation->gathering.set({rank,
                                  fail(Code::deadline_exceeded, "no outcome in time")
                                      .with_effect(Effect::unknown)
                                      .with_stage(Stage::executing),
                                  {}});
    }
    progress(operation);
}

std::vector<RankOutcome> GroupImpl::fail_all(const Status& why) const {
    std::vector<RankOutcome> all(view.size());
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) all[rank] = {rank, why, {}};
    return all;
}

Result<Channel> GroupImpl::channel(std::uint32_t rank) {
    if (rank >= view.size()) {
        return fail(Code::out_of_range, "group '" + view.name() + "' has ranks 0 to " +
                                            std::to_string(view.size() - 1));
    }
    if (channels_.size() <= rank) channels_.resize(rank + 1);
    if (!channels_[rank]) {
        Result<Channel> channel = engine.connect()(view.member(rank).uris);
        if (!channel) return channel;
        channels_[rank] = *std::move(channel);
    }
    return channels_[rank];
}

}  // namespace weft::coll

namespace weft {

const GroupView& Group::view() const { return impl_->view; }

void Group::collective(const MethodId& method, const BodyWriter& body, const CallOptions& options,
                       GroupCompletion done) const {
    coll::Engine& engine = impl_->engine;
    const Duration timeout =
        options.timeout == Duration::zero() ? engine.default_timeout : options.timeout;
    TimePoint deadline =
        timeout == no_timeout ? never : saturating_add(engine.context().clock().now(), timeout);
    if (!options.detached) deadline = std::min(deadline, core::Context::inherited_deadline());
    const bool hands_over = !engine.context().on_thread();
    const std::size_t bytes = body.bytes + core::Context::handed_over_bytes;
    core::Context::Admission admission;
    if (hands_over) admission = {engine.context(), bytes};
    if (hands_over && !admission) {
        const Status why = engine.context().why_not_admitted(bytes);
        return engine.context().post(
            [impl = impl_, why, done = std::move(done)]() mutable { done(impl->fail_all(why)); });
    }
    std::vector<std::byte> copy(body.bytes);
    body(copy.data());
    if (!hands_over) {
        return engine.start(impl_, method.hash, std::move(copy), deadline, options.detached,
                            std::move(done));
    }
    engine.context().post([impl = impl_, hash = method.hash, copy = std::move(copy),
                           admission = std::move(admission), deadline,
                           done = std::move(done)]() mutable {
        admission.release();
        // There it is in no scope.
        impl->engine.start(impl, hash, std::move(copy), deadline, false, std::move(done));
    });
}

bool Group::on_thread() const { return impl_->engine.context().on_thread(); }

Result<Channel> Group::channel(std::uint32_t rank) const {
    Result<Channel> channel = fail(Code::internal, "");
    impl_->engine.run_on_context([&] { channel = impl_->channel(rank); });
    return channel;
}

}  // namespace weft
