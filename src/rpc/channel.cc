#include <weft/channel.h>

#include <bit>

#include <weft/posting.h>

#include "base/assert.h"
#include "base/range.h"
#include "rpc/body.h"
#include "rpc/channel_impl.h"
#include "rpc/channel_legs.h"
#include "rpc/inline_bulk.h"

namespace weft::rpc {

ChannelImpl::~ChannelImpl() {
    if (context_.is_forked()) return;
    // Posted: this may run inside a completion of this very peer.
    context_.post([owner = owner_, &context = context_, &client = client_, target = target()] {
        if (!target.spread) return end_peer(context, client, target.peer);
        for (const core::PeerRef peer : target.spread->all()) end_peer(context, client, peer);
    });
}

// ---- legs ---------------------------------------------------------------------------------------

void ChannelImpl::set_legs(std::unique_ptr<LegSource> legs, std::size_t contexts) {
    WEFT_ASSERT(legs && !legs_);
    legs_ = std::move(legs);
    direct_legs_ = std::make_unique<DirectLeg[]>(contexts);
    family_ = context_.family();
}

void ChannelImpl::set_spread(std::shared_ptr<const ServerFacts> facts) {
    WEFT_ASSERT(!spread_);
    if (facts->spread == 1) return;
    spread_ = std::make_shared<SpreadPeers>(context_, std::move(facts), peer_);
    direct_ = this;  // No context.
}

void ChannelImpl::add_peer_later(std::shared_ptr<const ServerFacts> facts, std::uint16_t wanted) {
    WEFT_ASSERT(!spread_);
    spread_ = std::make_shared<SpreadPeers>(context_, std::move(facts), peer_, wanted);
    direct_ = this;  // No context.
}

Result<std::shared_ptr<ChannelImpl>> ChannelImpl::leg_here() {
    const std::optional<std::uint16_t> context =
        legs_ ? context_.relative_here() : std::optional<std::uint16_t>();
    if (!context) return std::shared_ptr<ChannelImpl>();
    Result<ChannelImpl*> leg = legs_->leg(*context, *this);
    if (!leg) return std::move(leg).status().with_peer(uri_);
    return std::shared_ptr<ChannelImpl>(shared_from_this(), *leg);
}

core::Context& ChannelImpl::context_here() {
    return is_in_relative() ? static_cast<core::Context&>(*Executor::current()) : context_;
}

static void post_refusal(Status why, Completion done) {
    Executor::current()->post(
        [why = std::move(why), done = std::move(done)]() mutable { done(why, {}); });
}
static void post_refusal(Status why, TransferCompletion done) {
    Executor::current()->post(
        [why = std::move(why), done = std::move(done)]() mutable { done(why); });
}

inline ChannelImpl* ChannelImpl::direct_leg(const core::Context* here) const {
    return here && here->family() == family_ ? direct_legs_[here->member()].leg : nullptr;
}

ChannelImpl* ChannelImpl::owner_of(OperationId id) {
    if (id.generation == 0) return nullptr;  // None: it was posted to the thread of a context.
    const std::uint16_t member = core::OperationTag::member(id.slot);
    if (member == context_.member()) return this;
    if (home_) return member == home_->context_.member() ? home_ : home_->owner_of(id);
    return legs_ ? legs_->made(member) : nullptr;
}

// nullopt: the operation is refused. nullptr: this channel has it.
template <class Done>
std::optional<ChannelImpl*> ChannelImpl::leg_for(Done& done) {
    const std::optional<std::uint16_t> context =
        legs_ ? context_.relative_here() : std::optional<std::uint16_t>();
    if (!context) return nullptr;
    Result<ChannelImpl*> leg = legs_->leg(*context, *this);
    if (leg) return *leg;
    post_refusal(std::move(leg).status().with_peer(uri_), std::move(done));
    return std::nullopt;
}

static TimePoint after(TimePoint now, Duration timeout) {
    // One comparison for the usual case: a negative timeout is a huge one here.
    constexpr Duration longest = 24h * 36500;  // Longer is no_timeout.
    const auto ns = static_cast<std::uint64_t>(timeout.count());
    if (ns < static_cast<std::uint64_t>(longest.count())) [[likely]] {
        return now + timeout;
    }
    return timeout < Duration::zero() ? now : never;
}

// An explicit timeout may be short, and the turn may have lasted long already.
TimePoint ChannelImpl::explicit_deadline(Duration timeout) const {
    return after(context_.clock().now(), timeout);
}

inline TimePoint ChannelImpl::deadline_of(const CallOptions& options, TimePoint now) const {
    if (options.timeout != Duration::zero()) [[unlikely]] {
        return explicit_deadline(options.timeout);
    }
    return after(now, default_timeout_);
}

// A negative timeout is the rest of an explicit time that has passed.
static bool is_expired(const CallOptions& options) { return options.timeout < Duration::zero(); }

[[gnu::always_inline]] inline OperationId ChannelImpl::call(const MethodId& method, BodyWriter body,
                                                            const CallOptions& options,
                                                            Completion&& done) {
    // One test for inline bulk and for the sign of the timeout.
    const std::uint64_t unusual = std::bit_cast<std::uintptr_t>(options.inline_bulk) |
                                  static_cast<std::uint64_t>(options.timeout.count()) >> 63;
    if ((unusual != 0) | (options.priority > priority_max)) [[unlikely]] {
        return call_unusual(method, BodyWriter(body), options, std::move(done));
    }
    ChannelImpl* at = this;
    core::Context* const here = core::Context::innermost();
    if (here != direct_) [[unlikely]] {
        at = direct_leg(here);
        if (!at) return call_out_of_turn(method, BodyWriter(body), options, std::move(done));
    }
    WEFT_DCHECK(here == &at->context_);
    if (here->may_have_scope()) [[unlikely]] {
        return at->call_nested(method, BodyWriter(body), options, std::move(done));
    }
    return std::bit_cast<OperationId>(at->client_.submit(at->peer_, method, body,
                                                         at->deadline_of(options, here->now()),
                                                         traits_of(options), std::move(done)));
}

// In a turn of another context, in no turn, on another thread, or with several connections.
OperationId ChannelImpl::call_out_of_turn(const MethodId& method, const BodyWriter& body,
                                          const CallOptions& options, Completion&& done) {
    if (context_.in_turn()) return call_nested(method, body, options, std::move(done));
    if (const auto leg = leg_for(done); !leg || *leg) {
        if (!leg) return {};
        return (*leg)->call(method, BodyWriter(body), options, std::move(done));
    }
    if (const core::ThreadOwnership::UseGuard here(context_); here) {
        const TimePoint deadline = effective_deadline(options, context_.refresh_time());
        return std::bit_cast<OperationId>(client_.submit_to(target().pick(), method,
                                                            BodyWriter(body), deadline,
                                                            traits_of(options), std::move(done)));
    }
    post_call(method, body, options, std::move(done));
    return {};
}

// In a handler, in a completion that belongs to it, or with several connections.
OperationId ChannelImpl::call_nested(const MethodId& method, const BodyWriter& body,
                                     const CallOptions& options, Completion&& done) {
    const TimePoint deadline = deadline_of(options, context_.now());
    const CallTraits traits = traits_of(options);
    core::CallScope* const scope = options.detached ? nullptr : context_.scope();
    const core::PeerRef peer = target().pick();
    const CallId id =
        scope
            ? client_.submit_nested(*scope, peer, method, body, deadline, traits, std::move(done))
            : client_.submit_to(peer, method, BodyWriter(body), deadline, traits, std::move(done));
    return std::bit_cast<OperationId>(id);
}

TimePoint ChannelImpl::effective_deadline(const CallOptions& options) const {
    return effective_deadline(options, context_.clock().now());
}

TimePoint ChannelImpl::effective_deadline(const CallOptions& options, TimePoint now) const {
    const TimePoint own = deadline_of(options, now);
    return options.detached ? own : std::min(own, core::Context::inherited_deadline());
}

static Status already_expired() {
    return fail(Code::deadline_exceeded,
                "the time of the operation was over before it began (a negative timeout)")
        .with_stage(Stage::queued);
}

OperationId ChannelImpl::call_unusual(const MethodId& method, const BodyWriter& body,
                                      const CallOptions& options, Completion&& done) {
    if (!done) detail::refuse_empty(empty_completion);
    if (const auto leg = leg_for(done); !leg || *leg) {
        if (!leg) return {};
        return (*leg)->call_unusual(method, body, options, std::move(done));
    }
    Status why;
    if (options.priority > priority_max) {
        why =
            base::out_of_range("CallOptions", "priority", options.priority, {.max = priority_max});
    } else if (is_expired(options)) {
        why = already_expired();
    } else {
        return call_with_inline_bulk(method, body, options, std::move(done));
    }
    why = std::move(why).with_peer(uri_);
    if (const core::ThreadOwnership::UseGuard here(context_); here) {
        if (!context_.in_turn()) context_.refresh_time();
        core::CallScope* const scope = options.detached ? nullptr : context_.scope();
        return std::bit_cast<OperationId>(client_.submit_refused(scope, std::move(done), why));
    }
    if (context_.is_forked()) {
        done(why_forked(), {});
        return {};
    }
    context_.post([owner = owner_, why, done = std::move(done)]() mutable { done(why, {}); });
    return {};
}

// From another thread: the request is copied. The channel may be destroyed before the posted call
// begins.
void ChannelImpl::post_call(const MethodId& method, const BodyWriter& body,
                            const CallOptions& options, Completion&& done) {
    if (!done) detail::refuse_empty(empty_completion);
    if (context_.is_forked()) return done(why_forked(), {});
    const std::size_t bytes = core::submission_bytes(body.bytes);
    core::Context::Admission admission(context_, bytes);
    if (!admission) return refuse(bytes, std::move(done));
    std::vector<std::byte> copy(body.bytes);
    copy_body(body, copy.data());
    context_.post([owner = owner_, admission = std::move(admission), &client = client_,
                   target = target(), method, copy = std::move(copy),
                   deadline = effective_deadline(options), traits = traits_of(options),
                   done = std::move(done)]() mutable {
        admission.release();
        client.submit_to(target.pick(), method, BodyWriter::of(copy), deadline, traits,
                         std::move(done));
    });
}

void ChannelImpl::cancel_call(OperationId id) {
    if (context_.is_forked()) return;  // The parent's.
    if (ChannelImpl* const owner = owner_of(id); owner != this) {
        return owner ? owner->cancel_call(id) : void();
    }
    const core::ThreadOwnership::UseGuard here(context_);
    if (here || context_.is_unowned()) return client_.cancel({id.slot, id.generation});
    context_.post([owner = owner_, &client = client_, id] {
        client.cancel({id.slot, id.generation});
    });
}

void ChannelImpl::cancel_transfer(OperationId id) {
    if (context_.is_forked()) return;  // The parent's.
    if (ChannelImpl* const owner = owner_of(id); owner != this) {
        return owner ? owner->cancel_transfer(id) : void();
    }
    const core::ThreadOwnership::UseGuard here(context_);
    if (here || context_.is_unowned()) return bulk_.transfers.cancel({id.slot, id.generation});
    context_.post([owner = owner_, &bulk = bulk_, id] {
        bulk.transfers.cancel({id.slot, id.generation});
    });
}

void ChannelImpl::abandon_call(OperationId id) {
    if (ChannelImpl* const owner = owner_of(id); owner != this) {
        return owner ? owner->abandon_call(id) : void();
    }
    const auto here =
        context_.require_end_on_thread("a call (CallOperation, a stub's, Channel::abandon_call())");
    client_.abandon({id.slot, id.generation});
}

void ChannelImpl::abandon_transfer(OperationId id) {
    if (ChannelImpl* const owner = owner_of(id); owner != this) {
        return owner ? owner->abandon_transfer(id) : void();
    }
    const auto here = context_.require_end_on_thread(
        "a transfer (TransferOperation, Channel::abandon_transfer())");
    bulk_.transfers.abandon({id.slot, id.generation});
}

Status ChannelImpl::why_forked() const { return context_.why_forked().with_peer(uri_); }

Status ChannelImpl::why_not_admitted(std::size_t bytes) const {
    return context_.why_not_admitted(bytes).with_peer(uri_);
}

// Called before anything is copied: the request exceeds every transport, or too much waits to be
// posted already.
void ChannelImpl::refuse(std::size_t bytes, Completion done) {
    context_.post([owner = owner_, why = why_not_admitted(bytes),
                   done = std::move(done)]() mutable { done(why, {}); });
}

OperationId ChannelImpl::transfer(na::RmaKind kind, const RegionRef& remote, std::uint64_t offset,
                                  Buffer local, const CallOptions& options,
                                  TransferCompletion done) {
    if (const auto leg = leg_for(done); !leg || *leg) {
        if (!leg) return {};
        return (*leg)->transfer(kind, remote, offset, std::move(local), options, std::move(done));
    }
    bulk::TransferSpec spec{kind, remote, offset, std::move(local), effective_deadline(options)};
    if (const core::ThreadOwnership::UseGuard here(context_); here) {
        context_.request_turn();
        core::CallScope* const scope =
            context_.in_turn() && !options.detached ? context_.scope() : nullptr;
        if (is_expired(options)) {
            Status why = already_expired().with_peer(uri_);
            return std::bit_cast<OperationId>(
                scope ? bulk_.transfers.conclude_nested(*scope, std::move(done), std::move(why))
                      : bulk_.transfers.conclude(std::move(done), std::move(why)));
        }
        if (scope) {
            return std::bit_cast<OperationId>(bulk_.transfers.start_nested(
                *scope, target().pick(), std::move(spec), std::move(done)));
        }
        const bulk::TransferId id =
            bulk_.transfers.start(target().pick(), std::move(spec), std::move(done));
        return {id.slot, id.generation};
    }
    if (context_.is_forked()) {
        done(why_forked());
        return {};
    }
    core::Context::Admission admission(context_, core::Context::submission_overhead_bytes);
    if (!admission) {
        context_.post([owner = owner_,
                       why = why_not_admitted(core::Context::submission_overhead_bytes),
                       done = std::move(done)]() mutable { done(why); });
        return {};
    }
    context_.post(
        [owner = owner_, admission = std::move(admission), &bulk = bulk_, target = target(),
         spec = std::move(spec), done = std::move(done),
         why = is_expired(options) ? already_expired().with_peer(uri_) : Status()]() mutable {
            admission.release();
            if (!why.ok()) return done(why);
            bulk.transfers.start(target.pick(), std::move(spec), std::move(done));
        });
    return {};
}

}  // namespace weft::rpc

namespace weft {

Status detail::empty_channel() {
    return fail(Code::failed_precondition,
                "an empty weft::Channel, default-made or moved from, has no peer; "
                "Runtime::connect() returns one that does");
}

// For an empty channel or an empty completion.
[[gnu::noinline]] static OperationId refuse_empty(Completion&& done) {
    if (!done) detail::refuse_empty(rpc::empty_completion);
    done(detail::empty_channel(), {});
    return {};
}

[[gnu::noinline]] static OperationId refuse_empty(TransferCompletion&& done) {
    if (!done) detail::refuse_empty("Channel::get() or put(), as its completion");
    done(detail::empty_channel());
    return {};
}

OperationId Channel::call_with(const MethodId& method, const BodyWriter& body,
                               const CallOptions& options, Completion&& done) const {
    if (!impl_) [[unlikely]]
        return refuse_empty(std::move(done));
    return impl_->call(method, body, options, std::move(done));
}

OperationId Channel::call(const MethodId& method, ByteView body, const CallOptions& options,
                          Completion&& done) const {
    if (!impl_) [[unlikely]]
        return refuse_empty(std::move(done));
    return impl_->call(method, BodyWriter::of(body), options, std::move(done));
}

OperationId Channel::get(const RegionRef& from, std::uint64_t offset, Buffer local,
                         const CallOptions& options, TransferCompletion done) const {
    if (!impl_ || !done) return refuse_empty(std::move(done));
    return impl_->transfer(na::RmaKind::get, from, offset, std::move(local), options,
                           std::move(done));
}

OperationId Channel::put(const RegionRef& to, std::uint64_t offset, Buffer local,
                         const CallOptions& options, TransferCompletion done) const {
    if (!impl_ || !done) return refuse_empty(std::move(done));
    return impl_->transfer(na::RmaKind::put, to, offset, std::move(local), options,
                           std::move(done));
}

void Channel::cancel_call(OperationId id) const {
    if (impl_) impl_->cancel_call(id);
}
void Channel::cancel_transfer(OperationId id) const {
    if (impl_) impl_->cancel_transfer(id);
}
void Channel::abandon_call(OperationId id) const {
    if (impl_) impl_->abandon_call(id);
}
void Channel::abandon_transfer(OperationId id) const {
    if (impl_) impl_->abandon_transfer(id);
}

Executor& Channel::executor() const {
    if (!impl_)
        base::abort_misused("Channel::executor()",
                            "of an empty channel, which has none: Runtime::connect() returns one");
    return impl_->context_here();
}
bool Channel::on_thread() const {
    return impl_ && (impl_->context().on_thread() || impl_->is_in_relative());
}
std::string Channel::uri() const { return impl_ ? impl_->uri() : ""; }

Status detail::Posting::admit(const Channel& channel, std::size_t bytes) {
    const auto& impl = rpc::ChannelImpl::of(channel);
    if (!impl) return detail::empty_channel();
    core::Context& context = impl->context();
    const std::size_t all = core::submission_bytes(bytes);
    if (context.is_forked()) return impl->why_forked();
    return context.admit(all) ? Status() : context.why_not_admitted(all).with_peer(impl->uri());
}

void detail::Posting::release(const Channel& channel, std::size_t bytes) {
    const auto& impl = rpc::ChannelImpl::of(channel);
    if (impl) impl->context().release(core::submission_bytes(bytes));
}

TimePoint detail::Posting::deadline(const Channel& channel, const CallOptions& options) {
    const auto& impl = rpc::ChannelImpl::of(channel);
    return impl ? impl->effective_deadline(options) : never;
}

CallOptions detail::Posting::until(const Channel& channel, TimePoint deadline,
                                   CallOptions options) {
    const auto& impl = rpc::ChannelImpl::of(channel);
    if (!impl) return options;
    // No time is left; zero would mean the default.
    constexpr Duration over{-1};
    const Duration left = deadline - impl->context().clock().now();
    options.timeout = deadline == never ? no_timeout : left > Duration::zero() ? left : over;
    return options;
}

}  // namespace weft
