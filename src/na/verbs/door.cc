#include "na/verbs/door.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "na/resolution.h"

namespace weft::na::verbs {

static constexpr int backlog = 1024;

Result<std::shared_ptr<VerbsDoor>> VerbsDoor::open(const Address& at, DoorParts parts) {
    if (Status why = why_no_device(); !why.ok()) return why;
    auto door = std::make_shared<VerbsDoor>(std::move(parts));
    if (Status status = door->listen(at); !status.ok()) return status;
    return door;
}

Status VerbsDoor::listen(const Address& at) {
    if (at.scheme != "verbs") {
        return fail(Code::invalid_argument,
                    "verbs can't listen at " + at.uri() + "; use verbs://host:port");
    }
    for (std::uint16_t i = 0; i < contexts(); ++i) {
        Result<Owned<rdma_event_channel>> channel = make_event_channel();
        if (!channel) return std::move(channel).status();
        channels_.push_back(*std::move(channel));
    }
    rdma_event_channel* channel = channels_.front().get();
    if (contexts() != 1) {
        Result<Owned<rdma_event_channel>> own = make_event_channel();
        if (!own) return std::move(own).status();
        of_listener_ = *std::move(own);
        channel = of_listener_.get();
    }
    const Result<SocketName> name = resolve_blocking(at);
    if (!name) return name.status();
    listener_.reset(make_cm_id(channel, {}));
    if (!listener_) {
        return fail(Code::resource_exhausted, "verbs: no listener: " + describe(errno));
    }
    sockaddr_storage bytes{};
    std::memcpy(&bytes, name->get(), name->size());
    if (::rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&bytes)) != 0 ||
        ::rdma_listen(listener_.get(), backlog) != 0) {
        const int error = errno;
        if (error == EADDRINUSE) {
            return fail(Code::already_exists, at.uri() + " is in use: " + describe(error));
        }
        return fail(Code::unavailable, "can't listen at " + at.uri() + ": " + describe(error) +
                                           "; it has to be an address of a network device that an "
                                           "RDMA device is on (`rdma link`)");
    }
    name_ = name->with_port(ntohs(::rdma_get_src_port(listener_.get())));
    return {};
}

std::optional<CmEvent> VerbsDoor::next_event(std::uint16_t context) {
    WEFT_ASSERT(of_listener_);
    const base::MutexLock lock(mutex_);
    while (std::optional<CmEvent> event = take_cm_event(*of_listener_)) {
        if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) return event;
        // The kernel moves its events, too. Its client connects again if that fails.
        if (::rdma_migrate_id(event->id, &channel(context)) == 0) return event;
        const Owned<rdma_cm_id> refused(event->id);
    }
    return std::nullopt;
}

void VerbsDoor::abandon() {
    (void)listener_.release();
    (void)of_listener_.release();
    for (Owned<rdma_event_channel>& channel : channels_) (void)channel.release();
}

}  // namespace weft::na::verbs
