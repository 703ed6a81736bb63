// The second queue pair of a connection, for one side's puts and gets: an access that is refused
// ends a queue pair, and no message is to end with it. Both ends agree on it by messages, so it
// can be had by either side, also by one that does not listen, and again after each such end.
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::uint32_t packet_numbers = 1u << 24;
static constexpr std::uint8_t tries = 7;
static constexpr std::uint8_t rnr_pause = 12;

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

Status VerbsEndpoint::join(Lane& lane, const Route& route, const LaneWord& theirs,
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
        ::ibv_modify_qp(lane.pair.get(), &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = route.timeout;
        attr.retry_cnt = tries;
        attr.rnr_retry = tries;
        attr.sq_psn = own_sequence;
        attr.max_rd_atomic = static_cast<std::uint8_t>(reads);
        error = ::ibv_modify_qp(lane.pair.get(), &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    if (error == 0) return {};
    return fail(Code::unavailable, "a queue pair for transfers: " + describe(error));
}

void VerbsEndpoint::ask_for_lane(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (stale_completions_) read_completions();
    if (peer.asking || peer.waiting.empty()) return;
    const auto give_up = [&](const Status& why) {
        if (peer.asking) drop_lane(*peer.asking);
        peer.asking = nullptr;
        while (Transfer* transfer = peer.waiting.pop_front()) {
            finish(*transfer, Code::unavailable, std::string(why.text()));
        }
    };
    peer.asking = take_lane(LaneRole::asking, entry);
    if (!peer.asking) return give_up(fail(Code::resource_exhausted, "too many queue pairs"));
    auto pair = card_->make_queue_pair(LaneRole::asking);
    if (!pair) return give_up(pair.status());
    Lane& lane = peer.asking->value;
    lane.pair = *std::move(pair);
    if (Status status = prepare(*lane.pair, peer.route, 0); !status.ok()) return give_up(status);
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
    if (LaneEntry* before = std::exchange(peer.serving, nullptr)) drop_lane(*before);
    LaneWord answer;
    answer.what = LaneWord::What::answer;
    answer.number = word.number;
    answer.sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    answer.reads = std::min(word.reads, card_->reads_max());
    const auto serve = [&]() -> Status {
        peer.serving = take_lane(LaneRole::serving, entry);
        if (!peer.serving) return fail(Code::resource_exhausted, "too many queue pairs");
        Lane& lane = peer.serving->value;
        auto pair = card_->make_queue_pair(LaneRole::serving);
        if (!pair) return std::move(pair).status();
        lane.pair = *std::move(pair);
        answer.queue_pair = lane.pair->qp_num;
        Status status =
            prepare(*lane.pair, peer.route, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        return status.ok() ? join(lane, peer.route, word, answer.sequence, answer.reads) : status;
    };
    if (const Status status = serve(); !status.ok()) {
        parts_.log.warning("verbs: no lane for " + peer.info.uri + ": " +
                           std::string(status.text()));
        if (LaneEntry* lane = std::exchange(peer.serving, nullptr)) drop_lane(*lane);
        answer = {};
        answer.what = LaneWord::What::refuse;
        answer.number = word.number;
        answer.aux = static_cast<std::uint32_t>(status.code());
    }
    std::byte words[lane_word_bytes];
    queue_control(entry, Kind::lane, {words, encode(answer, words)});
}

void VerbsEndpoint::on_answer(PeerEntry& entry, const LaneWord& word) {
    Peer& peer = entry.value;
    if (!peer.asking || peer.asking_up || word.number != peer.asked)
        return;  // Of one that is gone.
    Status status = fail(code_of_refusal(word.aux), peer.info.uri + " has no lane for transfers");
    if (word.what == LaneWord::What::answer) {
        const std::uint32_t reads = std::clamp(word.reads, 1u, card_->reads_max());
        status = join(peer.asking->value, peer.route, word, peer.asking_sequence, reads);
    }
    if (!status.ok()) {
        drop_asking(entry);
        while (Transfer* transfer = peer.waiting.pop_front()) {
            finish(*transfer, Code::unavailable, std::string(status.text()));
        }
        return;
    }
    peer.asking_up = true;
    (void)start_transfers(entry);
}

// What was under way on it waits for the next one.
void VerbsEndpoint::drop_asking(PeerEntry& entry) {
    Peer& peer = entry.value;
    peer.asking_up = false;
    if (LaneEntry* lane = std::exchange(peer.asking, nullptr)) drop_lane(*lane);
    TransferQueue again;
    while (Transfer* transfer = peer.under_way.pop_front()) {
        transfer->posted = false;
        transfer->memory.reset();
        again.push_back(*transfer);
    }
    again.splice_back(peer.waiting);
    peer.waiting.splice_back(again);
}

}  // namespace weft::na::verbs
