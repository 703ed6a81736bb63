// A listening address of verbs, which the endpoints of a runtime's contexts share: one listener of
// rdma_cm, and one channel of events for each context.
//
// A connect request arrives at the listener. The context that reads it moves the request to its own
// channel, and from there to that of the context that the connection is for.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/thread_annotations.h"
#include "na/door.h"
#include "na/socket_name.h"
#include "na/verbs/cm.h"

namespace weft::na::verbs {

class VerbsDoor final : public Door {
  public:
    // Errors: as Provider::open().
    static Result<std::shared_ptr<VerbsDoor>> open(const Address& at, DoorParts parts);
    explicit VerbsDoor(DoorParts parts) : Door(std::move(parts)) {}

    const SocketName& name() const { return name_; }  // Its address, with the port that it got.
    // The device that the address is on; nullptr: it is on all of them.
    ibv_device* device() const { return listener_->verbs ? listener_->verbs->device : nullptr; }
    bool is_listener(const rdma_cm_id* id) const { return id == listener_.get(); }
    // Of the connections of a context, and with one context of the listener, too.
    rdma_event_channel& channel(std::uint16_t context) const { return *channels_.at(context); }
    // Readable while the listener has events; -1: they are in the channel of the only context.
    int listener_fd() const { return of_listener_ ? of_listener_->fd : -1; }
    // The next event of the listener. A request is in the channel of `context` then. Thread: that
    // of the context.
    std::optional<CmEvent> next_event(std::uint16_t context) WEFT_EXCLUDES(mutex_);
    // In a forked child: leaves everything to the parent.
    void abandon();

  private:
    Status listen(const Address& at);

    // An id is in one channel at a time; nothing may read the channel that it is moved from.
    base::Mutex mutex_;
    std::vector<Owned<rdma_event_channel>> channels_;
    Owned<rdma_event_channel> of_listener_;
    Owned<rdma_cm_id> listener_;  // Declared behind its channel: it ends first.
    SocketName name_;
};

// A connect request on its way to the context that it is for.
struct ConnectRequest {
    Owned<rdma_cm_id> cm_id;
    ConnectData data;
    Placement::Place place;
};

}  // namespace weft::na::verbs
