#include <weft/await.h>

#include <atomic>
#include <cstring>

#include <weft/home.h>

#include "base/manual_clock.h"
#include "core/context.h"
#include "rpc/body.h"
#include "rpc/channel_impl.h"

namespace weft::detail {

// An operation between two contexts: its awaiter lives at home, its call on the channel's. It ends
// at home, too, by the same deadline and cancel, since a thread that is blocked ends nothing.
struct Operation::Relay : std::enable_shared_from_this<Relay> {
    Relay(Channel through, Operation* from, TimePoint by)
        : channel(std::move(through)),
          home([this](Status why) { end_at_home(std::move(why)); }),
          awaiter(from),
          deadline(by) {
        home.limit(by);
    }

    // Home's thread: the scope that the operation is made in is also the one it ends with.
    Status enter_scope() {
        has_scope = static_cast<core::Context&>(home.executor()).scope() != nullptr;
        return home.join_call([this] {
            there().post([relay = shared_from_this()] {
                relay->away.cancelled = true;
                relay->away.cancel_operations();
            });
        });
    }
    // The channel's thread. False: nothing waits for it any more, and it must not begin.
    bool begin() { return !is_claimed.exchange(true); }
    void bring_home() {
        home.bring([relay = shared_from_this()] {
            if (Operation* const waits = relay->let_go()) {
                waits->arrive(relay->status, relay->body);
            }
        });
    }
    // Home's thread: what waits, once.
    Operation* let_go() {
        home.leave();
        return std::exchange(awaiter, nullptr);
    }
    // Home's thread. False: it has not begun, and never will.
    bool abandon(Kind kind) {
        if (!is_claimed.exchange(true)) return false;
        there().post([relay = shared_from_this(), kind] {
            if (kind == Kind::call) {
                relay->channel.abandon_call(relay->id);
            } else {
                relay->channel.abandon_transfer(relay->id);
            }
        });
        return true;
    }
    // Home's thread.
    void end_at_home(Status why) {
        const auto self = shared_from_this();
        Operation* const waits = let_go();
        const bool has_begun = abandon(waits->kind_);
        waits->arrive(std::move(why)
                          .with_peer(channel.uri())
                          .with_effect(has_begun ? Effect::unknown : Effect::none),
                      {});
    }
    core::Scope* scope_there() { return has_scope ? &away : nullptr; }
    core::Context& there() const { return static_cast<core::Context&>(channel.executor()); }

    const Channel channel;
    Home home;
    Operation* awaiter;  // Home's thread only; nullptr: gone.
    const TimePoint deadline;
    std::atomic<bool> is_claimed{false};  // It has begun there, or has ended here before that.
    OperationId id;  // The channel's thread only, like all below until they are posted.
    std::vector<std::byte> body;  // The request on its way out, the reply on its way back.
    RegionRef rides;              // As CallOptions::rides, if that names one.
    Status status;
    const std::uint32_t always = 1;
    core::Scope away{always};  // Stands there for the scope at home,
    bool has_scope = false;    // if there is one.
};

// nullptr: it has ended.
std::shared_ptr<Operation::Relay> Operation::make_relay(const CallOptions& options) {
    auto relay = std::make_shared<Relay>(channel_, this, channel_.deadline(options));
    if (Status why = options.detached ? Status() : relay->enter_scope(); !why.ok()) {
        relay->let_go();
        refuse(std::move(why));
        return nullptr;
    }
    return relay_ = std::move(relay);
}

// True: `start` ran, and what completes the operation runs where it is awaited. No executor at all
// but the right thread is a program that turns by itself, between two turns, or that waits for the
// first one.
template <class Start>
inline bool Operation::start_at_home(const Channel& channel, const Start& start) {
    if (!channel) [[unlikely]]
        return false;
    core::Context& context = channel.impl()->context();
    Executor* const here = Executor::current();
    if (here && here != &context) return false;
    if (context.on_thread()) [[likely]] {
        start();
        return true;
    }
    const core::OwnThread::Here before_turns(context);
    if (before_turns) start();
    return static_cast<bool>(before_turns);
}

// nullptr: real time.
static base::ManualClock* virtual_time(core::Context& context) {
    return dynamic_cast<base::ManualClock*>(&context.clock());
}

Status why_not_here(Executor& there) {
    auto& other = static_cast<core::Context&>(there);
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (Status forked = other.why_forked(); !forked.ok()) return forked;
    if (!here) return nowhere();
    if (virtual_time(*here) != virtual_time(other)) {
        return fail(Code::failed_precondition,
                    "it is awaited through a runtime in another time: hosts of a simulation await "
                    "channels and groups of each other alone");
    }
    return here->is_closed() ? home_ends() : Status();
}

void Operation::start_call(const Channel& channel, const MethodId& method, const BodyWriter& body,
                           const CallOptions& options, ReplyReader reader) {
    kind_ = Kind::call;
    channel_ = channel;
    reader_ = reader;
    const auto start = [&] {
        id_ = channel.call_with(
            method, body, options,
            [this](const Status& status, ByteView reply) { arrive(status, reply); });
    };
    if (start_at_home(channel, start)) [[likely]]
        return;
    if (!channel) return refuse(empty_channel());
    if (Status why = why_not_here(channel.executor()); !why.ok()) {
        return refuse(std::move(why).with_peer(channel.uri()));
    }
    const std::size_t bytes = core::handed_over(body.bytes);
    core::Context::Admission admission(channel.impl()->context(), bytes);
    if (!admission) return refuse(channel.impl()->why_not_admitted(bytes));
    const auto relay = make_relay(options);
    if (!relay) return;
    relay->body.resize(body.bytes);
    rpc::copy_body(body, relay->body.data());
    if (options.rides) relay->rides = *options.rides;
    channel.executor().post([relay, admission = std::move(admission), method, options]() mutable {
        admission.release();
        if (!relay->begin()) return;
        const core::Context::Within within(relay->there(), relay->scope_there());
        CallOptions here = relay->channel.until(relay->deadline, options);
        if (here.rides) here.rides = &relay->rides;
        relay->id = relay->channel.call(method, relay->body, here,
                                        [relay](const Status& status, ByteView reply) {
                                            relay->status = status;
                                            relay->body.assign(reply.begin(), reply.end());
                                            relay->bring_home();
                                        });
    });
}

void Operation::start_transfer(Kind kind, const Channel& channel, const RegionRef& remote,
                               std::uint64_t offset, Buffer local, const CallOptions& options) {
    kind_ = kind;
    channel_ = channel;
    const auto move = kind == Kind::get ? &Channel::get : &Channel::put;
    const auto start = [&] {
        id_ = (channel.*move)(remote, offset, std::move(local), options,
                              [this](const Status& status) { arrive(status, {}); });
    };
    if (start_at_home(channel, start)) [[likely]]
        return;
    if (!channel) return refuse(empty_channel());
    if (Status why = why_not_here(channel.executor()); !why.ok()) {
        return refuse(std::move(why).with_peer(channel.uri()));
    }
    const std::size_t bytes = core::Context::handed_over_bytes;
    core::Context::Admission admission(channel.impl()->context(), bytes);
    if (!admission) return refuse(channel.impl()->why_not_admitted(bytes));
    const auto relay = make_relay(options);
    if (!relay) return;
    channel.executor().post([relay, admission = std::move(admission), move, remote, offset,
                             local = std::move(local), options]() mutable {
        admission.release();
        if (!relay->begin()) return;
        const core::Context::Within within(relay->there(), relay->scope_there());
        relay->id = (relay->channel.*move)(remote, offset, std::move(local),
                                           relay->channel.until(relay->deadline, options),
                                           [relay](const Status& status) {
                                               relay->status = status;
                                               relay->bring_home();
                                           });
    });
}

void Operation::start_transfer(Kind kind, const Call& call, const RegionRef& remote,
                               std::uint64_t offset, Buffer local) {
    kind_ = kind;
    call_.server_ = call.server_;
    const auto start = kind == Kind::get ? &Call::get : &Call::put;
    id_ = (call.*start)(remote, offset, std::move(local),
                        [this](const Status& status) { arrive(status, {}); });
}

void Operation::arrive(const Status& status, ByteView reply) {
    status_ = status;
    if (status_.ok() && reader_.read) [[likely]] {
        status_ = reader_.read(reader_.object, reply);
        if (!status_.ok()) status_ = std::move(status_).with_peer(channel_.uri());
    }
    done_ = true;
    if (!awaiting_.is_suspended()) return;
    if (!status_.ok()) return awaiting_.resume_or_end();  // May destroy this.
    awaiting_.resume();                                   // So may this.
}

void Operation::refuse(Status why) {
    later_.run([this, why = std::move(why)] { arrive(why, {}); });
}

void Operation::abandon() {
    if (later_) return later_.drop();
    if (channel_ && channel_.impl()->context().is_forked()) return;
    if (relay_) {
        relay_->let_go();
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
