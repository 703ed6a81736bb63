// The other queue pairs of a connection, for one side's puts and gets: a refused access ends its
// queue pair, and no message must end with it. Both ends agree on them by messages, so either side
// can have them, also one that does not listen, and again after each such end. The first transfer
// requests one. A side that keeps it busy gets a second one, which another unit of the device may
// serve. All peers together keep few idle ones.
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

// Moves a queue pair to the state in which its other end can be named.
static Status prepare(ibv_qp& qp, const Route& route, unsigned access) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = route.partition;
    attr.port_num = route.port;
    attr.qp_access_flags = access;
    const int error = ::ibv_modify_qp(
        &qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error == 0) return {};
    return fail(Code::resource_exhausted, "a queue pair for transfers: " + describe(error));
}

// Connects a queue pair to its other end, which may then do the same.
static Status join(ibv_qp& qp, const Route& route, const QueuePairMessage& theirs,
                   std::uint32_t own_sequence, std::uint32_t reads) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = route.ah_attr;
    attr.path_mtu = route.mtu;
    attr.dest_qp_num = theirs.qp_number;
    attr.rq_psn = theirs.sequence;
    attr.max_dest_rd_atomic = static_cast<std::uint8_t>(reads);
    attr.min_rnr_timer = rnr_pause;
    int error =
        ::ibv_modify_qp(&qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = route.timeout;
        attr.retry_cnt = tries;
        attr.rnr_retry = rnr_tries;
        attr.sq_psn = own_sequence;
        attr.max_rd_atomic = static_cast<std::uint8_t>(reads);
        error = ::ibv_modify_qp(&qp, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    if (error == 0) return {};
    return fail(Code::unavailable, "a queue pair for transfers: " + describe(error));
}

void VerbsEndpoint::send_queue_pair_message(Connection& peer, const QueuePairMessage& word) {
    std::byte words[queue_pair_message_bytes];
    queue_control(peer, Kind::queue_pair, {words, encode(word, words)});
}

static std::uint32_t number_of(const InitiatorQueuePair& initiator, std::uint32_t which) {
    WEFT_ASSERT(which < queue_pairs_max);
    return initiator.attempts * queue_pairs_max + which;
}

void VerbsEndpoint::request_queue_pair(Connection& peer, std::uint32_t which) {
    InitiatorQueuePair& initiator = peer.initiators[which];
    if (initiator.queue_pair || initiator.refused) return;
    const std::uint32_t kept =
        std::max(initiator_queue_pairs_max / parts_.contexts, initiator_queue_pairs_min);
    if (queue_pairs_.initiator_count >= kept) close_idlest_queue_pair();
    initiator.queue_pair = take_queue_pair(peer);
    if (!initiator.queue_pair)
        return on_queue_pair_failed(peer, which, "the endpoint has too many queue pairs");
    QueuePair& queue_pair = initiator.queue_pair->value;
    queue_pair.which = which;
    WEFT_ASSERT(!queue_pair.is_linked());
    queue_pairs_.initiators.push_back(queue_pair);
    ++queue_pairs_.initiator_count;
    auto qp = device_->make_queue_pair(QueuePairRole::initiator);
    Status status = qp.status();
    if (qp) {
        queue_pair.qp = *std::move(qp);
        status = prepare(*queue_pair.qp, peer.route, 0);
    }
    if (!status.ok()) return on_queue_pair_failed(peer, which, std::string(status.text()));
    initiator.up = false;
    initiator.sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    ++initiator.attempts;
    QueuePairMessage word;
    word.type = QueuePairMessage::Type::request;
    word.number = number_of(initiator, which);
    word.qp_number = queue_pair.qp->qp_num;
    word.sequence = initiator.sequence;
    word.reads = device_->reads_max();
    send_queue_pair_message(peer, word);
}

// Closes the longest unused queue pair without operations in flight.
void VerbsEndpoint::close_idlest_queue_pair() {
    QueuePair* idlest = nullptr;
    queue_pairs_.initiators.for_each([&](QueuePair& queue_pair) {
        if (!idlest && queue_pair.posted != 0 && queue_pair.posted == queue_pair.completed)
            idlest = &queue_pair;
    });
    Connection* owner = idlest ? peers_.find(idlest->peer) : nullptr;
    if (!owner) return;  // All are busy: transfers are bounded, and so are these.
    const std::uint32_t which = idlest->which;
    drop_initiator(*owner, which);
    QueuePairMessage word;
    word.type = QueuePairMessage::Type::destroyed;
    word.number = number_of(owner->initiators[which], which);
    send_queue_pair_message(*owner, word);
}

void VerbsEndpoint::on_queue_pair_message(Connection& peer, ByteView body) {
    const auto word = decode_queue_pair_message(body);
    if (!word || peer.phase != PeerPhase::up) {
        return take_down(peer, Code::data_loss, "the peer sent an invalid queue pair message");
    }
    switch (word->type) {
        case QueuePairMessage::Type::request: return on_queue_pair_request(peer, *word);
        case QueuePairMessage::Type::reply:
        case QueuePairMessage::Type::refusal: return on_queue_pair_reply(peer, *word);
        case QueuePairMessage::Type::destroyed:
            (void)destroy(peer.targets[word->number % queue_pairs_max]);
    }
}

void VerbsEndpoint::on_queue_pair_request(Connection& peer, const QueuePairMessage& word) {
    // Per queue pair there may be one reply, one request and one `destroyed` in the backlog.
    std::uint32_t words = 0;
    peer.backlog.for_each([&](SendSlot& slot) { words += slot.kind == Kind::queue_pair ? 1 : 0; });
    if (words >= 3 * queue_pairs_max) {
        return take_down(peer, Code::data_loss, "the peer requests queue pairs and reads no reply");
    }
    Owned<ibv_qp>& target = peer.targets[word.number % queue_pairs_max];
    (void)destroy(target);
    QueuePairMessage answer;
    answer.type = QueuePairMessage::Type::reply;
    answer.number = word.number;
    answer.sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    answer.reads = std::min(word.reads, device_->reads_max());
    auto qp = device_->make_queue_pair(QueuePairRole::target);
    Status status = qp.status();
    if (qp) {
        answer.qp_number = (*qp)->qp_num;
        status = prepare(**qp, peer.route, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        if (status.ok()) status = join(**qp, peer.route, word, answer.sequence, answer.reads);
    }
    if (status.ok()) {
        target = *std::move(qp);
    } else {
        parts_.log.warning("verbs: no queue pair for transfers of " + peer.info.uri + ": " +
                           std::string(status.text()));
        answer = {};
        answer.type = QueuePairMessage::Type::refusal;
        answer.number = word.number;
        answer.aux = static_cast<std::uint32_t>(status.code());
    }
    send_queue_pair_message(peer, answer);
}

void VerbsEndpoint::on_queue_pair_reply(Connection& peer, const QueuePairMessage& word) {
    const std::uint32_t which = word.number % queue_pairs_max;
    InitiatorQueuePair& initiator = peer.initiators[which];
    if (!initiator.queue_pair || initiator.up || word.number != number_of(initiator, which)) {
        return;  // A reply to an earlier request.
    }
    Status status =
        fail(code_of_refusal(word.aux), peer.info.uri + " has no queue pair for transfers");
    if (word.type == QueuePairMessage::Type::reply) {
        const std::uint32_t reads = std::clamp(word.reads, 1u, device_->reads_max());
        status = join(*initiator.queue_pair->value.qp, peer.route, word, initiator.sequence, reads);
    }
    if (!status.ok()) return on_queue_pair_failed(peer, which, std::string(status.text()));
    initiator.up = true;
    serve_waiting(peer);
}

// Without the first queue pair all transfers fail; the second one is optional.
void VerbsEndpoint::on_queue_pair_failed(Connection& peer, std::uint32_t which,
                                         const std::string& why) {
    drop_initiator(peer, which);
    peer.initiators[which].refused = which != 0;
    const bool any = std::ranges::any_of(peer.initiators, &InitiatorQueuePair::up);
    if (!any) fail_waiting(peer, Code::unavailable, why);
}

void VerbsEndpoint::fail_waiting(Connection& peer, Code code, const std::string& why) {
    while (RmaOperation* transfer = peer.waiting.pop_front()) finish(*transfer, code, why);
}

// Its transfers in flight wait for the next one, unless the device may still access their memory.
void VerbsEndpoint::drop_initiator(Connection& peer, std::uint32_t which) {
    InitiatorQueuePair& initiator = peer.initiators[which];
    initiator.up = false;
    QueuePairEntry* const queue_pair = std::exchange(initiator.queue_pair, nullptr);
    if (StuckQueuePair* stuck = queue_pair ? drop_queue_pair(*queue_pair) : nullptr) {
        stuck->transfers.splice_back(initiator.under_way);
    }
    RmaList again;
    while (RmaOperation* transfer = initiator.under_way.pop_front()) {
        release_local(*transfer);
        again.push_back(*transfer);
    }
    again.splice_back(peer.waiting);
    peer.waiting.splice_back(again);
}

}  // namespace weft::na::verbs
