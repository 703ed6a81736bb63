// Connect requests: each is admitted, or passed to the context that it is for.
#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/random.h"
#include "na/common/no_room.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr Duration evictable_after = 50ms;  // For an incoming peer without a hello.

void VerbsEndpoint::poll_listener() {
    while (const std::optional<CmEvent> event = cm_.door->next_event(parts_.context))
        on_cm_event(*event);
}

void VerbsEndpoint::on_request(const CmEvent& event) {
    ConnectRequest request;
    request.cm_id.reset(event.id);
    const Result<ConnectData> data = decode_connect_data(event.data());
    if (!data) return reject(*request.cm_id, data.status());
    request.data = *data;
    Result<Placement::Place> place = cm_.door->placement().place(
        {data->incarnation, data->context, data->wanted}, now_, parts_.random);
    if (!place) return reject(*request.cm_id, place.status());
    request.place = *std::move(place);
    if (request.place.context() == parts_.context) return admit(std::move(request));
    pass_on(std::move(request));
}

// The event of the request has been acknowledged, and this context reads no other one of it.
void VerbsEndpoint::pass_on(ConnectRequest request) {
    const std::uint16_t context = request.place.context();
    const std::shared_ptr<ConnectRequest> passed = share_part(request);
    if (!passed) return reject(*request.cm_id, listener_without_memory(busy_code));
    const bool is_passed =
        ::rdma_migrate_id(passed->cm_id.get(), &cm_.door->channel(context)) == 0 &&
        cm_.door->pass(context, now_, [passed](Endpoint* to) {
            if (to) static_cast<VerbsEndpoint*>(to)->admit(std::move(*passed));
        });
    if (is_passed) return;
    reject(*passed->cm_id, fail(busy_code, "context " + std::to_string(context) +
                                               " of the listener takes no more connections now"));
}

// The request is at its context.
void VerbsEndpoint::admit(ConnectRequest request) {
    rdma_cm_id& cm_id = *request.cm_id;
    if (!device_error_.empty()) return reject(cm_id, fail(Code::unavailable, device_error_));
    if (!device_->is_behind(cm_id.verbs)) {
        return reject(cm_id,
                      fail(Code::unavailable,
                           "the connection is not over the device that this endpoint has open"));
    }
    const std::size_t places = cm_.door->accepting_share(pending_peers_max);
    if (handshakes_.incoming >= places && !drop_oldest_pending()) {
        return reject(cm_id, fail(busy_code, "the listener has too many unfinished handshakes"));
    }
    if (!has_slot()) return reject(cm_id, listener_at_peers_max(limits_.peers_max));
    Connection* const added = add_peer();
    if (!added) return reject(cm_id, listener_without_memory());
    Connection& peer = *added;
    peer.incoming = true;
    ++handshakes_.incoming;
    peer.message_queue_pair = take_queue_pair(peer);
    if (!peer.message_queue_pair) {
        reject(cm_id, fail(Code::resource_exhausted, "the endpoint has too many queue pairs"));
        return remove(peer, Code::unavailable, false);
    }
    set_queue_pair(cm_id, peer.message_queue_pair->id());
    peer.message_queue_pair->value.cm_id = std::move(request.cm_id);
    peer.place = std::move(request.place);
    schedule_.add(peer, now_ + handshake_max);
    if (const Status status = accept(peer, request.data); !status.ok()) {
        reject(cm_id, status);
        remove(peer, Code::unavailable, false);
    }
}

Status VerbsEndpoint::accept(Connection& peer, const ConnectData& connect_data) {
    QueuePair& queue_pair = peer.message_queue_pair->value;
    auto qp = device_->make_queue_pair(QueuePairRole::messages);
    if (!qp) return std::move(qp).status();
    queue_pair.qp = *std::move(qp);
    apply_connect_data(peer, connect_data);
    if (Status status = connect_queue_pair(queue_pair, peer.route); !status.ok()) {
        return status;
    }
    peer.credits.grant(window_for_next_peer());
    std::byte words[connect_data_bytes];
    const std::size_t bytes = encode(own_connect_data(peer), words);
    rdma_conn_param param = offer(queue_pair, {words, bytes});

    if (::rdma_accept(queue_pair.cm_id.get(), &param) != 0) {
        return fail(Code::unavailable, "rdma_accept: " + describe(errno));
    }
    peer.phase.move_to(PeerPhase::handshaking);
    return {};
}

// Drops the oldest incoming peer without a hello. False: all of them are too recent.
bool VerbsEndpoint::drop_oldest_pending() {
    Connection* oldest = nullptr;
    peers_.for_each([&](Connection& peer) {
        if (!peer.incoming || peer.phase == PeerPhase::up) return;
        if (!oldest || peer.started < oldest->started) oldest = &peer;
    });
    if (!oldest || now_ - oldest->started < evictable_after) return false;
    take_down(*oldest, Code::resource_exhausted, "the listener has too many unfinished handshakes");
    return true;
}

}  // namespace weft::na::verbs
