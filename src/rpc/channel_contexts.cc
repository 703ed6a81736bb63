// Channels to contexts of the server, and of the context here.
#include <weft/channel.h>
#include <weft/context.h>

#include "base/assert.h"
#include "na/hello.h"
#include "rpc/channel_impl.h"

namespace weft {

static rpc::ChannelImpl& own(const std::shared_ptr<rpc::ChannelImpl>& impl, const char* call) {
    if (!impl)
        base::abort_misused(call,
                            "of an empty channel: Runtime::connect() returns one to a server");
    return *impl;
}

unsigned Channel::contexts() const {
    const rpc::LegSource* const legs = own(impl_, "Channel::contexts()").home().legs();
    return legs ? legs->contexts() : 0;
}

// A handle of one of the channels that the impl owns keeps all of them.
Channel Channel::on(unsigned context) const {
    static constexpr const char* call = "Channel::on()";
    rpc::ChannelImpl& home = own(impl_, call).home();
    if (context >= na::contexts_max)
        base::abort_misused(call, "of a context that no server has: their numbers are below 64");
    rpc::ChannelImpl& pinned = home.legs()->pinned(static_cast<std::uint16_t>(context));
    return Channel(std::shared_ptr<rpc::ChannelImpl>(impl_, &pinned));
}

Channel Channel::by(std::uint64_t hash) const {
    const unsigned count = contexts();
    return count < 2 ? *this : on(place(hash, count));
}

Channel Channel::here() const {
    rpc::ChannelImpl& home = own(impl_, "Channel::here()").home();
    if (!home.is_in_relative()) return Channel(std::shared_ptr<rpc::ChannelImpl>(impl_, &home));
    const Result<std::shared_ptr<rpc::ChannelImpl>> leg = home.leg_here();
    return leg ? Channel(std::shared_ptr<rpc::ChannelImpl>(impl_, leg->get())) : *this;
}

}  // namespace weft
