// The other queue pairs of a connection, for one side's puts and gets: an access that is refused
// ends a queue pair, and no message is to end with it. Both ends agree on them by messages, so they
// can be had by either side, also by one that does not listen, and again after each such end. The
// first transfer asks for one; who keeps that busy has a second one, which another unit of the card
// may serve. All peers together keep few that are idle.
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

void VerbsEndpoint::say_of_lane(PeerEntry& entry, const LaneWord& word) {
    std::byte words[lane_word_bytes];
    queue_control(entry, Kind::lane, {words, encode(word, words)});
}

static std::uint32_t number_of(const Asking& asking, std::uint32_t which) {
    return asking.attempts * lanes_most + which;
}

void VerbsEndpoint::ask_for_lane(PeerEntry& entry, std::uint32_t which) {
    Peer& peer = entry.value;
    Asking& asking = peer.asking[which];
    if (asking.lane || asking.refused) return;
    if (asking_count_ >= hot_lanes_max) close_coldest_lane();
    asking.lane = take_lane(entry);
    if (!asking.lane) return lane_failed(entry, which, "too many queue pairs");
    Lane& lane = asking.lane->value;
    lane.which = which;
    asking_lanes_.push_back(lane);
    ++asking_count_;
    auto pair = card_->make_queue_pair(LaneRole::asking);
    Status status = pair.status();
    if (pair) {
        lane.pair = *std::move(pair);
        status = prepare(*lane.pair, peer.route, 0);
    }
    if (!status.ok()) return lane_failed(entry, which, std::string(status.text()));
    asking.up = false;
    asking.sequence = static_cast<std::uint32_t>(parts_.random.next()) % packet_numbers;
    ++asking.attempts;
    LaneWord word;
    word.what = LaneWord::What::ask;
    word.number = number_of(asking, which);
    word.queue_pair = lane.pair->qp_num;
    word.sequence = asking.sequence;
    word.reads = card_->reads_max();
    say_of_lane(entry, word);
}

// Of those that nothing is under way on, the one that was used the longest ago.
void VerbsEndpoint::close_coldest_lane() {
    Lane* coldest = nullptr;
    asking_lanes_.for_each([&](Lane& lane) {
        if (!coldest && lane.posted != 0 && lane.posted == lane.completed) coldest = &lane;
    });
    PeerEntry* owner = coldest ? peers_.find(coldest->peer) : nullptr;
    if (!owner) return;  // All are busy: transfers are bounded, and so are these.
    const std::uint32_t which = coldest->which;
    drop_asking(*owner, which);
    LaneWord word;
    word.what = LaneWord::What::gone;
    word.number = number_of(owner->value.asking[which], which);
    say_of_lane(*owner, word);
}

void VerbsEndpoint::on_lane_word(PeerEntry& entry, ByteView body) {
    const auto word = decode_lane_word(body);
    if (!word || entry.value.state != PeerState::up) {
        return bring_down(entry, Code::data_loss, "a word about a lane that makes no sense");
    }
    switch (word->what) {
        case LaneWord::What::ask: return on_asked(entry, *word);
        case LaneWord::What::answer:
        case LaneWord::What::refuse: return on_answer(entry, *word);
        case LaneWord::What::gone: (void)destroy(entry.value.serving[word->number % lanes_most]);
    }
}

void VerbsEndpoint::on_asked(PeerEntry& entry, const LaneWord& word) {
    Peer& peer = entry.value;
    // For each lane there may be an answer, and a question and a farewell of ours.
    std::uint32_t words = 0;
    peer.backlog.for_each([&](SendSlot& slot) { words += slot.kind == Kind::lane ? 1 : 0; });
    if (words >= 3 * lanes_most) {
        return bring_down(entry, Code::data_loss, "asks for lanes and takes no answer");
    }
    Owned<ibv_qp>& serving = peer.serving[word.number % lanes_most];
    (void)destroy(serving);
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
        serving = *std::move(pair);
    } else {
        parts_.log.warning("verbs: no lane for " + peer.info.uri + ": " +
                           std::string(status.text()));
        answer = {};
        answer.what = LaneWord::What::refuse;
        answer.number = word.number;
        answer.aux = static_cast<std::uint32_t>(status.code());
    }
    say_of_lane(entry, answer);
}

void VerbsEndpoint::on_answer(PeerEntry& entry, const LaneWord& word) {
    Peer& peer = entry.value;
    const std::uint32_t which = word.number % lanes_most;
    Asking& asking = peer.asking[which];
    if (!asking.lane || asking.up || word.number != number_of(asking, which)) {
        return;  // Of one that is gone.
    }
    Status status = fail(code_of_refusal(word.aux), peer.info.uri + " has no lane for transfers");
    if (word.what == LaneWord::What::answer) {
        const std::uint32_t reads = std::clamp(word.reads, 1u, card_->reads_max());
        status = join(*asking.lane->value.pair, peer.route, word, asking.sequence, reads);
    }
    if (!status.ok()) return lane_failed(entry, which, std::string(status.text()));
    asking.up = true;
    serve_waiting(entry);
}

// Without a first one there are no transfers; a second one is not missed.
void VerbsEndpoint::lane_failed(PeerEntry& entry, std::uint32_t which, const std::string& why) {
    Peer& peer = entry.value;
    drop_asking(entry, which);
    peer.asking[which].refused = which != 0;
    const bool any = std::ranges::any_of(peer.asking, &Asking::up);
    if (!any) fail_waiting(entry, Code::unavailable, why);
}

void VerbsEndpoint::fail_waiting(PeerEntry& entry, Code code, const std::string& why) {
    while (Transfer* transfer = entry.value.waiting.pop_front()) finish(*transfer, code, why);
}

// What was under way on it waits for the next one, unless the card may still touch its memory.
void VerbsEndpoint::drop_asking(PeerEntry& entry, std::uint32_t which) {
    Peer& peer = entry.value;
    Asking& asking = peer.asking[which];
    asking.up = false;
    LaneEntry* const lane = std::exchange(asking.lane, nullptr);
    if (StuckPair* stuck = lane ? drop_lane(*lane) : nullptr) {
        stuck->transfers.splice_back(asking.under_way);
    }
    TransferQueue again;
    while (Transfer* transfer = asking.under_way.pop_front()) {
        drop_memory(*transfer);
        again.push_back(*transfer);
    }
    again.splice_back(peer.waiting);
    peer.waiting.splice_back(again);
}

}  // namespace weft::na::verbs
