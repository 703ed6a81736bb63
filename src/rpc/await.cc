#include <weft/await.h>

#include <atomic>
#include <cstring>

#include <weft/home_context.h>
#include <weft/posting.h>

#include "base/assert.h"
#include "base/manual_clock.h"
#include "core/context.h"
#include "rpc/body.h"
#include "rpc/channel_impl.h"

namespace weft::detail {

// An operation between two contexts: the awaiter runs in its home context, the call in the
// channel's. Deadline and cancel also end it in the home context, because a blocked channel thread
// ends nothing.
struct AwaitableOperation::Relay : std::enable_shared_from_this<Relay> {
    Relay(Channel through, AwaitableOperation* from, TimePoint by)
        : channel(std::move(through)),
          channel_context(rpc::ChannelImpl::of(channel)->context()),
          home([this](Status why) { finish_at_home(std::move(why)); }),
          awaiter(from),
          deadline(by) {
        home.limit(by);
    }

    // Home's thread. The scope in which the operation is made also ends it.
    Status enter_scope() {
        WEFT_DCHECK(is_at_home());
        has_scope = static_cast<core::Context&>(home.executor()).scope() != nullptr;
        return home.join_call([this] {
            channel_context.post([relay = shared_from_this()] {
                relay->remote_scope.cancelled = true;
                relay->remote_scope.cancel_operations();
            });
        });
    }
    // The channel's thread. False: no awaiter is left, and the operation must not begin.
    bool begin() {
        WEFT_DCHECK(!channel_context.is_on_other_thread());
        return !is_claimed.exchange(true);
    }
    void deliver_home() {
        home.deliver([relay = shared_from_this()] {
            if (AwaitableOperation* const waiter = relay->detach_awaiter()) {
                waiter->on_complete(relay->status, relay->body);
            }
        });
    }
    // Home's thread. The awaiter, once; nullptr afterwards.
    AwaitableOperation* detach_awaiter() {
        home.detach();
        WEFT_DCHECK(is_at_home());
        return std::exchange(awaiter, nullptr);
    }
    // Home's thread. False: the operation has not begun, and never will.
    bool abandon(Kind kind) {
        if (!is_claimed.exchange(true)) return false;
        channel_context.post([relay = shared_from_this(), kind] {
            if (kind == Kind::call) {
                relay->channel.abandon_call(relay->id);
            } else {
                relay->channel.abandon_transfer(relay->id);
            }
        });
        return true;
    }
    // Home's thread.
    void finish_at_home(Status why) {
        const auto self = shared_from_this();
        AwaitableOperation* const waiter = detach_awaiter();
        WEFT_ASSERT(waiter);
        const bool has_begun = abandon(waiter->kind_);
        waiter->on_complete(std::move(why)
                                .with_peer(channel.uri())
                                .with_effect(has_begun ? Effect::unknown : Effect::none),
                            {});
    }
    bool is_at_home() const {
        return !static_cast<core::Context&>(home.executor()).is_on_other_thread();
    }
    core::CallScope* channel_scope() { return has_scope ? &remote_scope : nullptr; }

    const Channel channel;
    core::Context& channel_context;  // Where the operation begins and ends.
    HomeContext home;
    AwaitableOperation* awaiter;  // Home's thread only; nullptr: detached.
    const TimePoint deadline;
    std::atomic<bool> is_claimed{false};  // Begun at the channel, or ended before.

    // ---- of the channel's thread, until they are posted
    OperationId id;
    std::vector<std::byte> body;  // The request, then the reply.
    RegionRef inline_bulk;        // A copy of *CallOptions::inline_bulk, if that is set.
    Status status;
    const std::uint32_t always = 1;
    core::CallScope remote_scope{always};  // Represents the home scope in the channel's context,
    bool has_scope = false;                // if that scope exists.
};

// nullptr: the operation has ended.
std::shared_ptr<AwaitableOperation::Relay> AwaitableOperation::make_relay(
    const CallOptions& options) {
    auto relay =
        std::make_shared<Relay>(channel_, this, detail::Posting::deadline(channel_, options));
    if (Status why = options.detached ? Status() : relay->enter_scope(); !why.ok()) {
        relay->detach_awaiter();
        refuse(std::move(why));
        return nullptr;
    }
    awaiter_slot_.set_home(&relay->home.executor());
    return relay_ = std::move(relay);
}

// True: `start` ran, and its completion runs in the context that awaits. If there is no current
// executor on the right thread, the program turns the runtime by itself and is between two turns,
// or waits for the first turn.
template <class Start>
inline bool AwaitableOperation::start_at_home(const Channel& channel, const Start& start) {
    if (!channel) [[unlikely]]
        return false;
    core::Context& context = rpc::ChannelImpl::of(channel)->context();
    Executor* const here = Executor::current();
    if (here && here != &context) return false;
    if (context.on_thread()) [[likely]] {
        awaiter_slot_.set_home(&context);
        start();
        return true;
    }
    const core::ThreadOwnership::UseGuard before_turns(context);
    if (!before_turns) return false;
    awaiter_slot_.set_home(&context);
    start();
    return true;
}

// nullptr: real time.
static base::ManualClock* virtual_time(core::Context& context) {
    return dynamic_cast<base::ManualClock*>(&context.clock());
}

Status why_not_awaitable_here(Executor& there) {
    auto& other = static_cast<core::Context&>(there);
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (Status forked = other.why_forked(); !forked.ok()) return forked;
    if (!here) return no_context_status();
    if (virtual_time(*here) != virtual_time(other)) {
        return fail(Code::failed_precondition,
                    "the awaiting runtime has another clock than the awaited one: hosts of a "
                    "simulation await only channels and groups of each other");
    }
    return here->is_closed() ? home_ending_status() : Status();
}

void AwaitableOperation::start_call(const Channel& channel, const MethodId& method,
                                    const BodyWriter& body, const CallOptions& options,
                                    ReplyReader reader) {
    WEFT_DCHECK(kind_ == Kind::none);
    kind_ = Kind::call;
    channel_ = channel;
    reader_ = reader;
    const auto start = [&] {
        id_ = channel.call_with(
            method, body, options,
            [this](const Status& status, ByteView reply) { on_complete(status, reply); });
    };
    if (start_at_home(channel, start)) [[likely]]
        return;
    if (!channel) return refuse(empty_channel());
    if (rpc::ChannelImpl::of(channel)->is_in_relative()) {
        Result<std::shared_ptr<rpc::ChannelImpl>> leg = rpc::ChannelImpl::of(channel)->leg_here();
        if (!leg) return refuse(std::move(leg).status());
        kind_ = Kind::none;
        return start_call(rpc::ChannelImpl::handle(*std::move(leg)), method, body, options, reader);
    }
    if (Status why = why_not_awaitable_here(channel.executor()); !why.ok()) {
        return refuse(std::move(why).with_peer(channel.uri()));
    }
    const std::size_t bytes = core::submission_bytes(body.bytes);
    core::Context::Admission admission(rpc::ChannelImpl::of(channel)->context(), bytes);
    if (!admission) return refuse(rpc::ChannelImpl::of(channel)->why_not_admitted(bytes));
    const auto relay = make_relay(options);
    if (!relay) return;
    relay->body.resize(body.bytes);
    rpc::copy_body(body, relay->body.data());
    if (options.inline_bulk) relay->inline_bulk = *options.inline_bulk;
    relay->channel_context.post([relay, admission = std::move(admission), method,
                                 options]() mutable {
        admission.release();
        if (!relay->begin()) return;
        const core::Context::ScopeGuard scope_guard(relay->channel_context, relay->channel_scope());
        CallOptions here = detail::Posting::until(relay->channel, relay->deadline, options);
        if (here.inline_bulk) here.inline_bulk = &relay->inline_bulk;
        relay->id = relay->channel.call(method, relay->body, here,
                                        [relay](const Status& status, ByteView reply) {
                                            relay->status = status;
                                            relay->body.assign(reply.begin(), reply.end());
                                            relay->deliver_home();
                                        });
    });
}

void AwaitableOperation::start_transfer(Kind kind, const Channel& channel, const RegionRef& remote,
                                        std::uint64_t offset, Buffer local,
                                        const CallOptions& options) {
    WEFT_DCHECK(kind_ == Kind::none && kind > Kind::call);
    kind_ = kind;
    channel_ = channel;
    const auto move = kind == Kind::get ? &Channel::get : &Channel::put;
    const auto start = [&] {
        id_ = (channel.*move)(remote, offset, std::move(local), options,
                              [this](const Status& status) { on_complete(status, {}); });
    };
    if (start_at_home(channel, start)) [[likely]]
        return;
    if (!channel) return refuse(empty_channel());
    if (rpc::ChannelImpl::of(channel)->is_in_relative()) {
        Result<std::shared_ptr<rpc::ChannelImpl>> leg = rpc::ChannelImpl::of(channel)->leg_here();
        if (!leg) return refuse(std::move(leg).status());
        kind_ = Kind::none;
        return start_transfer(kind, rpc::ChannelImpl::handle(*std::move(leg)), remote, offset,
                              std::move(local), options);
    }
    if (Status why = why_not_awaitable_here(channel.executor()); !why.ok()) {
        return refuse(std::move(why).with_peer(channel.uri()));
    }
    const std::size_t bytes = core::Context::submission_overhead_bytes;
    core::Context::Admission admission(rpc::ChannelImpl::of(channel)->context(), bytes);
    if (!admission) return refuse(rpc::ChannelImpl::of(channel)->why_not_admitted(bytes));
    const auto relay = make_relay(options);
    if (!relay) return;
    relay->channel_context.post([relay, admission = std::move(admission), move, remote, offset,
                                 local = std::move(local), options]() mutable {
        admission.release();
        if (!relay->begin()) return;
        const core::Context::ScopeGuard scope_guard(relay->channel_context, relay->channel_scope());
        relay->id =
            (relay->channel.*move)(remote, offset, std::move(local),
                                   detail::Posting::until(relay->channel, relay->deadline, options),
                                   [relay](const Status& status) {
                                       relay->status = status;
                                       relay->deliver_home();
                                   });
    });
}

void AwaitableOperation::start_transfer(Kind kind, const Call& call, const RegionRef& remote,
                                        std::uint64_t offset, Buffer local) {
    WEFT_DCHECK(kind_ == Kind::none && kind > Kind::call);
    kind_ = kind;
    call_.server_ = call.server_;
    awaiter_slot_.set_home(Executor::current());
    const auto start = kind == Kind::get ? &Call::get : &Call::put;
    id_ = (call.*start)(remote, offset, std::move(local),
                        [this](const Status& status) { on_complete(status, {}); });
}

void AwaitableOperation::on_complete(const Status& status, ByteView reply) {
    WEFT_DCHECK(!done_);
    status_ = status;
    if (status_.ok() && reader_.read) [[likely]] {
        status_ = reader_.read(reader_.object, reply);
        if (!status_.ok()) status_ = std::move(status_).with_peer(channel_.uri());
    }
    done_ = true;
    if (!awaiter_slot_.is_suspended()) return;
    if (!status_.ok()) return awaiter_slot_.resume_or_end();  // May destroy this.
    awaiter_slot_.resume();                                   // So may this.
}

void AwaitableOperation::refuse(Status why) {
    awaiter_slot_.set_home(Executor::current());
    later_.run([this, why = std::move(why)] { on_complete(why, {}); });
}

void AwaitableOperation::abandon() {
    WEFT_DCHECK(!done_);
    if (later_) return later_.drop();
    if (channel_ && rpc::ChannelImpl::of(channel_)->context().is_forked()) return;
    if (relay_) {
        relay_->detach_awaiter();
        relay_->abandon(kind_);
    } else if (call_.server_) {
        call_.abandon_transfer(id_);
    } else if (kind_ == Kind::call) {
        channel_.abandon_call(id_);
    } else if (kind_ != Kind::none) {
        channel_.abandon_transfer(id_);
    }
}

}  // namespace weft::detail

namespace weft {

TransferOperation get(const Channel& channel, const RegionRef& from, std::uint64_t offset,
                      Buffer local, CallOptions options) {
    return {TransferOperation::Kind::get, channel, from, offset, std::move(local), options};
}

TransferOperation put(const Channel& channel, const RegionRef& to, std::uint64_t offset,
                      Buffer local, CallOptions options) {
    return {TransferOperation::Kind::put, channel, to, offset, std::move(local), options};
}

TransferOperation get(const Call& call, const RegionRef& from, std::uint64_t offset, Buffer local) {
    return {TransferOperation::Kind::get, call, from, offset, std::move(local)};
}

TransferOperation put(const Call& call, const RegionRef& to, std::uint64_t offset, Buffer local) {
    return {TransferOperation::Kind::put, call, to, offset, std::move(local)};
}

CallOperation::CallOperation(const Channel& channel, const MethodId& method, ByteView body,
                             const CallOptions& options) {
    start_call(channel, method, BodyWriter::of(body), options,
               {&reply_, [](void* object, ByteView reply) {
                    static_cast<std::vector<std::byte>*>(object)->assign(reply.begin(),
                                                                         reply.end());
                    return Status();
                }});
}

Result<std::vector<std::byte>> CallOperation::await_resume() {
    if (Status status = take_status(); !status.ok()) return status;
    return std::move(reply_);
}

CallOperation call(const Channel& channel, const MethodId& method, ByteView body,
                   CallOptions options) {
    return {channel, method, body, options};
}

}  // namespace weft
