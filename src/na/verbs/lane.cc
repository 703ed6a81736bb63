// The second queue pair of a connection, for one side's puts and gets: an access that is refused
// ends a queue pair, and no message is to end with it. Both ends agree on it by messages, so it
// can be had by either side, also by one that does not listen, and again after each such end.
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

// To the state in which a queue pair of another end can be named.
static Status prepare(ibv_qp& pair, const Route& route, unsigned access) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = route.partition;
    attr.port_num = route.port;
    attr.qp_access_flags = access;
    const int error = ::ibv_modify_qp(
        &pair, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error == 0) return {};
    return fail(Code::resource_exhausted, "a queue pair for transfers: " + describe(error));
}

// Towards the other end, which may name it, too, from now on.
static Status join(ibv_qp& pair, const Route& route, const LaneWord& theirs,
                   std::uint32_t own_sequence, std::uint32_t reads) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = route.way;
    attr.path_mtu = route.mtu;
    attr.dest_qp_num = theirs.queue_pair;
    attr.rq_psn = theirs.sequence;
    attr.max_dest_rd_atomic = static_cast<std::uint8_t>(reads);
    attr.min_rnr_timer = rnr_pause;
    int error =
        ::ibv_modify_qp(&pair, &attr,
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
        error = ::ibv_modify_qp(&pair, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    if (error == 0) return {};
    return fail(Code::unavailable, "a queue pair for transfers: " + describe(error));
}

void VerbsEndpoint::ask_for_lane(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (peer.asking || peer.waiting.empty()) return;
    peer.asking = take_lane(entry);
    if (!peer.asking) return fail_waiting(entry, Code::unavailable, "too many queue pairs");
    Lane& lane = peer.asking->value;
    Status status;
    auto pair = card_->make_queue_pair(LaneRole::asking);
    if (pair) {
        lane.pair = *std::move(pair);
        status = prepare(*lane.pair, peer.route, 0);
    } else {
        status = pair.status();
    }
    if (!status.ok()) {
        drop_asking(entry);
        return fail_waiting(entry, Code::unavailable, std::string(status.text()));
    }
    peer.asking_up = false;
    peer.asking_sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    LaneWord word;
    word.what = LaneWord::What::ask;
    word.number = ++peer.asked;
    word.queue_pair = lane.pair->qp_num;
    word.sequence = peer.asking_sequence;
    word.reads = card_->reads_max();
    std::byte words[lane_word_bytes];
    queue_control(entry, Kind::lane, {words, encode(word, words)});
}

void VerbsEndpoint::on_lane_word(PeerEntry& entry, ByteView body) {
    const auto word = decode_lane_word(body);
    if (!word || entry.value.state != PeerState::up) {
        return bring_down(entry, Code::data_loss, "a word about a lane that makes no sense");
    }
    if (word->what == LaneWord::What::ask) return on_asked(entry, *word);
    on_answer(entry, *word);
}

void VerbsEndpoint::on_asked(PeerEntry& entry, const LaneWord& word) {
    Peer& peer = entry.value;
    // Who asks has one question under way, and there may be one of ours.
    int words = 0;
    peer.backlog.for_each([&](SendSlot& slot) { words += slot.kind == Kind::lane ? 1 : 0; });
    if (words >= 2) {
        return bring_down(entry, Code::data_loss, "asks for lanes and takes no answer");
    }
    peer.serving.reset();
    LaneWord answer;
    answer.what = LaneWord::What::answer;
    answer.number = word.number;
    answer.sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    answer.reads = std::min(word.reads, card_->reads_max());
    auto pair = card_->make_queue_pair(LaneRole::serving);
    Status status = pair.status();
    if (pair) {
        answer.queue_pair = (*pair)->qp_num;
        status = prepare(**pair, peer.route, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        if (status.ok()) status = join(**pair, peer.route, word, answer.sequence, answer.reads);
    }
    if (status.ok()) {
        peer.serving = *std::move(pair);
    } else {
        parts_.log.warning("verbs: no lane for " + peer.info.uri + ": " +
                           std::string(status.text()));
        answer = {};
        answer.what = LaneWord::What::refuse;
        answer.number = word.number;
        answer.aux = static_cast<std::uint32_t>(status.code());
    }
    std::byte words_out[lane_word_bytes];
    queue_control(entry, Kind::lane, {words_out, encode(answer, words_out)});
}

void VerbsEndpoint::on_answer(PeerEntry& entry, const LaneWord& word) {
    Peer& peer = entry.value;
    if (!peer.asking || peer.asking_up || word.number != peer.asked)
        return;  // Of one that is gone.
    Status status = fail(code_of_refusal(word.aux), peer.info.uri + " has no lane for transfers");
    if (word.what == LaneWord::What::answer) {
        const std::uint32_t reads = std::clamp(word.reads, 1u, card_->reads_max());
        status = join(*peer.asking->value.pair, peer.route, word, peer.asking_sequence, reads);
    }
    if (!status.ok()) {
        drop_asking(entry);
        return fail_waiting(entry, Code::unavailable, std::string(status.text()));
    }
    peer.asking_up = true;
    start_transfers(entry);
}

void VerbsEndpoint::fail_waiting(PeerEntry& entry, Code code, const std::string& why) {
    while (Transfer* transfer = entry.value.waiting.pop_front()) finish(*transfer, code, why);
}

// What was under way on it waits for the next one.
void VerbsEndpoint::drop_asking(PeerEntry& entry) {
    Peer& peer = entry.value;
    peer.asking_up = false;
    if (LaneEntry* lane = std::exchange(peer.asking, nullptr)) drop_lane(*lane);
    TransferQueue again;
    while (Transfer* transfer = peer.under_way.pop_front()) {
        transfer->memory.reset();
        again.push_back(*transfer);
    }
    again.splice_back(peer.waiting);
    peer.waiting.splice_back(again);
}

}  // namespace weft::na::verbs
