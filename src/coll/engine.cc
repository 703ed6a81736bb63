#include "coll/engine.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/operation.h"

namespace weft::coll {

// What is kept back at each hop, so that the rank that is late is named by its parent, and not its
// parent by the grandparent: enough for an answer and two timer ticks.
static Duration share(Duration left) {
    if (left < 8ms) return left / 2;
    return left - std::clamp<Duration>(left / 32, 3ms, 500ms);
}

static TimePoint share_of(TimePoint now, TimePoint deadline) {
    return deadline == never ? never : now + share(std::max(deadline - now, Duration(0)));
}

// A rank whose parent died is asked by somebody else within this: a silence is found in three
// seconds, and so is each further one of those above it that died together, one after the other.
constexpr Duration orphan_lasts = 15s;
// After a deadline others may still ask: each rank above keeps back a second at most.
constexpr Duration deadline_slack = 20s;
constexpr Duration sweep_every = 30s;
// Who adopts is above: no more than the tree is deep, and again after each death.
constexpr std::size_t askers_max = 64;

Engine::Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run)
    : context_(context),
      server_(server),
      connect_(std::move(connect)),
      run_on_context_(std::move(run)),
      origin_(context.random().next()),
      known_(context.random().next()) {
    sweeping_.engine = this;
    sweeping_.fire = [](base::Timer& timer, TimePoint now) {
        Engine& engine = *static_cast<Sweeping&>(timer).engine;
        engine.known_.sweep(now);
        if (!engine.known_.empty()) engine.context_.timers().arm(timer, now + sweep_every);
    };
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

void Engine::shutdown() {
    groups_.clear();
    context_.timers().cancel(sweeping_);
    known_.clear([this](Operation& operation) {
        context_.timers().cancel(operation.deadline);
        context_.timers().cancel(operation.orphaned);
    });
}

// ---- where it begins ---------------------------------------------------------------------------

void Engine::start(std::shared_ptr<GroupImpl> group, std::uint64_t method,
                   std::vector<std::byte> body, TimePoint deadline, bool detached,
                   GroupCompletion done) {
    context_.rouse();
    const std::uint32_t n = group->view.size();
    ForwardHeader header;
    header.view = group->view.digest();
    header.epoch = group->view.epoch();
    header.identity = {origin_, next_sequence_++};
    unsettled_.insert(header.identity.sequence);
    header.unsettled = header.identity.sequence - *unsettled_.begin();
    header.method = method;
    header.root = group->own_rank.value_or(0);
    header.last = n;
    const bool is_member = group->own_rank.has_value();
    auto operation = std::make_shared<Operation>(*this, std::move(group), header);
    operation->own_body = std::move(body);
    operation->body = operation->own_body;
    operation->until = deadline;
    operation->detached = detached;
    core::Scope* const scope = context_.in_turn() && !detached ? context_.scope() : nullptr;
    if (scope) scope->add(operation->made_in);
    operation->done = std::move(done);
    // An outside client stands in front of position 0 and forwards to whole subtrees.
    begin(operation, {is_member ? 1u : 0u, n});
    if (is_member) run_here(operation);
    progress(operation);
}

// Posted: a group of one may be complete inside start().
void Engine::tell(const std::shared_ptr<Operation>& operation, std::vector<RankOutcome> all) {
    std::sort(all.begin(), all.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    unsettled_.erase(operation->header.identity.sequence);
    context_.post([this, operation, all = std::move(all)]() mutable {
        const core::Context::Within within(context_, operation->made_in.scope);
        operation->made_in.leave();
        operation->done(std::move(all));
    });
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

    const TimePoint now = context_.now();
    switch (known_.look(header.identity, header.settled(), now)) {
        case Known<Operation>::Place::known: return ask_again(header, std::move(call));
        case Known<Operation>::Place::over:
            return call.fail(
                fail(Code::aborted, "a collective that has ended").with_effect(Effect::unknown));
        case Known<Operation>::Place::full:
            return call.fail(rejected(Code::resource_exhausted, "too many collectives"));
        case Known<Operation>::Place::fresh: break;
    }
    auto operation = std::make_shared<Operation>(*this, group, header);
    operation->until = share_of(now, call.deadline());
    operation->body = call.request().subspan(sizeof(ForwardHeader));
    if (header.last - header.first > 1) {  // Those below may be asked when the request is gone.
        operation->own_body.assign(operation->body.begin(), operation->body.end());
        operation->body = operation->own_body;
    }
    operation->detached = true;  // Who asked may die, and who adopts this rank waits for the rest.
    if (!sweeping_.is_linked()) context_.timers().arm(sweeping_, now + sweep_every);
    known_.add(header.identity, header.settled(), now, operation);
    watch(operation, std::move(call));
    begin(operation, {header.first + 1, header.last});
    run_here(operation);
    progress(operation);
}

void Engine::ask_again(const ForwardHeader& header, Call call) {
    const std::shared_ptr<Operation> operation = known_.find(header.identity);
    if (!operation->header.is_again(header)) {
        return call.fail(rejected(Code::invalid_argument, "another collective of that number"));
    }
    const auto refuse = [&](Code code, const char* why) {
        call.fail(fail(code, why).with_effect(Effect::unknown).with_stage(Stage::executing));
    };
    // Whoever asks then asks those below by himself.
    if (operation->stopped) return refuse(Code::aborted, "nobody asked in time what it came to");
    if (!operation->running) {
        if (operation->answer.empty()) return refuse(Code::aborted, "its outcomes were not kept");
        return call.reply(operation->answer);
    }
    if (operation->asked_by.size() == askers_max) {
        return refuse(Code::resource_exhausted, "too many ask for one collective");
    }
    watch(operation, std::move(call));
}

// When all who asked have gone and nobody else comes, nobody waits for it.
void Engine::watch(const std::shared_ptr<Operation>& operation, Call call) {
    context_.timers().cancel(operation->orphaned);
    call.on_cancel([this, weak = std::weak_ptr<Operation>(operation)] {
        const std::shared_ptr<Operation> left = weak.lock();
        if (!left || !left->running || ++left->gone < left->asked_by.size()) return;
        left->orphaned.fire = [](base::Timer& timer, TimePoint) {
            stop(*static_cast<Operation::Timer&>(timer).of);
        };
        context_.timers().arm(left->orphaned, context_.now() + orphan_lasts);
    });
    operation->asked_by.push_back(std::make_shared<Call>(std::move(call)));
}

// Children that are told to stop answer, and so complete the operation.
void Engine::stop(Operation& operation) {
    const std::shared_ptr<Operation> kept = operation.self.lock();
    operation.stopped = true;
    for (const auto& [channel, id] : std::exchange(operation.children, {})) channel.cancel_call(id);
}

// ---- one node's part ---------------------------------------------------------------------------

void Engine::begin(const std::shared_ptr<Operation>& operation, Interval below) {
    ++running_;
    operation->self = operation;
    operation->deadline.fire = [](base::Timer& timer, TimePoint) {
        Operation& expired = *static_cast<Operation::Timer&>(timer).of;
        expired.engine.expire(expired);
    };
    context_.timers().arm(operation->deadline, operation->until);
    forward_below(operation, below, false);
}

void Engine::forward_below(const std::shared_ptr<Operation>& operation, Interval below,
                           bool again) {
    for (const Interval child : split(below, operation->header.tree)) {
        forward(operation, child, again);
    }
}

// What `speaker` says of those below it, whom somebody else may have asked before it did.
static void doubt(std::vector<RankOutcome>& outcomes, std::uint32_t speaker) {
    for (RankOutcome& outcome : outcomes) {
        if (outcome.rank == speaker || outcome.status.effect() != Effect::none) continue;
        outcome.status = std::move(outcome.status).with_effect(Effect::unknown);
    }
}

void Engine::forward(const std::shared_ptr<Operation>& operation, Interval child, bool again) {
    Result<Channel> channel = operation->group->channel(operation->rank_of(child));
    if (!channel) return adopt(operation, child, again, channel.status());

    struct Body {
        ForwardHeader header;
        ByteView body;
    } out{operation->header, operation->body};
    out.header.first = child.first;
    out.header.last = child.last;
    const BodyWriter writer{
        forward_bytes(out.body.size()), &out, [](void* object, std::byte* to) {
            const Body& from = *static_cast<Body*>(object);
            encode_forward(from.header, from.body, {to, forward_bytes(from.body.size())});
        }};
    CallOptions options;
    options.detached = operation->detached;
    const TimePoint until = share_of(context_.now(), operation->until);
    options.timeout = until == never ? no_timeout : std::max(until - context_.now(), Duration(1));
    const OperationId id =
        channel->call_with(forward_method, writer, options,
                           [this, operation, child, again](const Status& status, ByteView reply) {
                               if (!operation->running) return;
                               if (!status.ok()) {
                                   adopt(operation, child, again, status);
                               } else if (auto outcomes = decode_outcomes(reply)) {
                                   if (again) doubt(*outcomes, operation->rank_of(child));
                                   operation->gathering.set_subtree(child, *std::move(outcomes));
                               } else {  // It ran, and can't say what came of it.
                                   adopt(operation, child, again,
                                         std::move(outcomes)
                                             .status()
                                             .with_effect(Effect::unknown)
                                             .with_stage(Stage::executing));
                               }
                               progress(operation);
                           });
    operation->children.emplace_back(*std::move(channel), id);
}

// The child's own outcome is that of asking it. Those below it are asked by us, whether it has done
// so or not, while there is time and anybody waits for them.
void Engine::adopt(const std::shared_ptr<Operation>& operation, Interval child, bool again,
                   Status why) {
    // That we did not reach it does not say that nobody did.
    if (again && why.effect() == Effect::none) why = std::move(why).with_effect(Effect::unknown);
    // These would be said by all of them.
    const bool is_everybodys = why.code() == Code::cancelled ||
                               why.code() == Code::failed_precondition ||
                               why.code() == Code::invalid_argument;
    const bool goes_on = !is_everybodys && !operation->stopped && !context_.is_closed() &&
                         context_.now() < operation->until;
    if (!goes_on) return operation->gathering.fail_subtree(child, why);
    again = why.effect() != Effect::none;
    operation->gathering.set({operation->rank_of(child), std::move(why), {}});
    forward_below(operation, {child.first + 1, child.last}, again);
}

void Engine::run_here(const std::shared_ptr<Operation>& operation) {
    const std::uint32_t rank = *operation->group->own_rank;
    server_.dispatch_local(
        operation->header.method, operation->body, operation->until,
        [this, operation, rank](Status status, ByteView reply) {
            if (!operation->running) return;
            // By the end of this runtime, in the middle of the handler.
            if (status.code() == Code::cancelled) {
                status = std::move(status).with_effect(Effect::unknown);
            }
            operation->gathering.set({rank, std::move(status), {reply.begin(), reply.end()}});
            progress(operation);
        });
}

void Engine::progress(const std::shared_ptr<Operation>& operation) {
    if (!operation->gathering.complete() || !operation->running) return;
    operation->running = false;
    --running_;
    context_.timers().cancel(operation->deadline);
    context_.timers().cancel(operation->orphaned);
    operation->children.clear();
    std::vector<RankOutcome> all = operation->gathering.take();
    if (operation->done) return tell(operation, std::move(all));
    const bool nothing_ran = all.size() == 1 && all[0].status.effect() == Effect::none;
    const std::size_t room = operation->asked_by.front()->reply_bytes_max();
    std::vector<std::byte> answer = encode_outcomes(std::move(all), room);
    for (const auto& call : std::exchange(operation->asked_by, {})) call->reply(answer);
    operation->keep_until = operation->until == never ? never : operation->until + deadline_slack;
    operation->body = {};
    operation->own_body = {};
    known_.finish(*operation, std::move(answer));
    if (nothing_ran) known_.drop(operation->header.identity);
}

// The children's calls have ended before; what is missing is the handler here.
void Engine::expire(Operation& expired) {
    const std::shared_ptr<Operation> operation = expired.self.lock();
    const ForwardHeader& header = operation->header;
    for (std::uint32_t position = header.first; position < header.last; ++position) {
        operation->gathering.set({operation->rank_of({position, position + 1}),
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
        return fail(Code::out_of_range,
                    "group '" + view.name() + "' has no rank " + std::to_string(rank));
    }
    if (channels_.size() <= rank) channels_.resize(rank + 1);
    if (!channels_[rank]) {
        Result<Channel> channel = engine.connect()(view.at(rank).uris);
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
