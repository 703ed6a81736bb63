// One turn of an endpoint: completions become events, and what time has brought is done.
#include <arpa/inet.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/own_descriptor.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::size_t batch = 16;
static constexpr Duration look_every = 2ms;          // While messages flow.
static constexpr std::uint32_t polls_per_look = 64;  // While none do.
static constexpr Duration look_every_idle = 10ms;
static constexpr int events_per_look = 4;

// A work request's number: what it is, its lane, and how many the lane had posted with it.
static constexpr int sequence_bits = 14;
static constexpr int slot_bits = 16;

std::uint64_t number_of(Work work, base::SlotId lane, std::uint32_t sequence) {
    return static_cast<std::uint64_t>(work) << 62 |
           static_cast<std::uint64_t>(lane.slot) << (62 - slot_bits) |
           static_cast<std::uint64_t>(lane.generation) << sequence_bits |
           (sequence & ((1u << sequence_bits) - 1));
}

static Work work_of(std::uint64_t number) { return static_cast<Work>(number >> 62); }

static base::SlotId lane_of(std::uint64_t number) {
    return {static_cast<std::uint32_t>(number >> (62 - slot_bits) & ((1u << slot_bits) - 1)),
            static_cast<std::uint32_t>(number >> sequence_bits)};
}

std::uint32_t sequence_of(std::uint64_t number, const Lane& lane) {
    const std::uint32_t behind =
        (lane.posted - static_cast<std::uint32_t>(number)) & ((1u << sequence_bits) - 1);
    return lane.posted - behind;
}

std::size_t VerbsEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    for (const std::uint32_t slot : handed_out_) receives_idle_.push_back(slot);
    handed_out_.clear();
    if (!receives_idle_.empty()) give_receives();

    events_.begin(events);
    const bool is_busy = read_completions();
    if (is_time_to_look(is_busy)) look();
    if (now >= attention_at_) serve_attention();
    while (Peer* peer = unflushed_.pop_front()) drain(PeerTable::entry_of(*peer));
    if (!want_writable_.empty()) wake_writers();
    const std::size_t count = events_.end();
    for (std::size_t i = 0; i < count; ++i) {
        if (events[i].kind != EventKind::message) continue;
        handed_out_.push_back(card_->receives().slot_of(events[i].bytes.data()));
    }
    return count;
}

// True: there were some. `all`: also those for whose events this poll has no room.
bool VerbsEndpoint::read_completions(bool all) {
    ibv_wc completions[batch];
    for (bool any = false;; any = true) {
        const std::size_t count = card_->poll(completions);
        for (std::size_t i = 0; i < count; ++i) on_completion(completions[i]);
        if (count < batch) return any || count != 0;
        if (!all && !events_.has_room()) return true;
    }
}

void VerbsEndpoint::on_completion(const ibv_wc& completion) {
    const Work work = work_of(completion.wr_id);
    if (work == Work::receive) return on_message(completion);
    LaneEntry* lane = lanes_.find(lane_of(completion.wr_id));
    if (!lane) return;  // Gone meanwhile, with all that was on it.
    if (completion.status != IBV_WC_SUCCESS) {
        return work == Work::message ? on_lane_error(*lane, completion)
                                     : on_transfer_error(*lane, completion);
    }
    const std::uint32_t sequence = sequence_of(completion.wr_id, lane->value);
    if (work == Work::message) {
        on_sent(*lane, sequence);
    } else {
        on_transferred(*lane, sequence);
    }
}

// Everything up to `sequence` has arrived.
void VerbsEndpoint::on_sent(LaneEntry& entry, std::uint32_t sequence) {
    Lane& lane = entry.value;
    lane.completed = sequence;
    PeerEntry* owner = lane.leaving ? nullptr : peers_.find(lane.peer);
    while (SendSlot* slot = lane.in_flight.front()) {
        if (static_cast<std::int32_t>(slot->sequence - sequence) > 0) break;
        slot->unlink();
        release(owner ? &owner->value : nullptr, *slot);
    }
    if (lane.leaving && !lane.ended && lane.completed == lane.posted) return end_talk(entry);
    if (!owner || owner->value.FlushNode::is_linked()) return;
    const Peer& peer = owner->value;
    if (!peer.backlog.empty() || peer.owed * 2 >= peer.granted) unflushed_.push_back(owner->value);
}

void VerbsEndpoint::on_lane_error(LaneEntry& entry, const ibv_wc& completion) {
    if (entry.value.leaving) {
        if (!entry.value.ended) end_talk(entry);
        return;
    }
    if (PeerEntry* owner = peers_.find(entry.value.peer)) {
        bring_down(*owner, Code::unavailable,
                   "the connection broke: " + describe_status(completion.status));
    }
}

void VerbsEndpoint::take_back(std::uint32_t slot) { receives_idle_.push_back(slot); }

void VerbsEndpoint::give_receives() {
    card_->post_receives(receives_idle_);
    receives_idle_.clear();
}

static bool is_over(std::uint32_t pair, const Peer& peer) {
    return peer.talk && peer.talk->value.pair && peer.talk->value.pair->qp_num == pair;
}

// Whoever is behind a queue pair, if he is not gone.
void VerbsEndpoint::blame(std::uint32_t pair, const std::string& why) {
    peers_.for_each([&](PeerEntry& entry) {
        if (is_over(pair, entry.value)) bring_down(entry, Code::data_loss, why);
    });
}

void VerbsEndpoint::on_message(const ibv_wc& completion) {
    const auto slot = static_cast<std::uint32_t>(completion.wr_id);
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        take_back(slot);
        return blame(completion.qp_num, "it sent what the card refused");
    }
    ++card_->ledger.messages_in;
    if (completion.byte_len != 0) card_->count_message(slot);
    const auto word = (completion.wc_flags & IBV_WC_WITH_IMM)
                          ? decode_immediate(ntohl(completion.imm_data))
                          : std::nullopt;
    PeerEntry* entry = word && word->index < by_index_.size() ? by_index_[word->index] : nullptr;
    if (!entry || !is_over(completion.qp_num, entry->value)) [[unlikely]] {
        take_back(slot);
        return blame(completion.qp_num, "it sent a message of no known kind, or of another peer");
    }
    const ByteView body(card_->receives().at(slot), completion.byte_len);
    if (!take_credits(*entry, *word)) return take_back(slot);
    switch (word->kind) {
        case Kind::data: {
            if (entry->value.state != PeerState::up || body.empty()) {
                take_back(slot);
                return bring_down(*entry, Code::data_loss, "a message out of place");
            }
            Event event;
            event.kind = EventKind::message;
            event.peer = id_of(*entry);
            event.bytes = body;
            events_.give(event);
            return;
        }
        case Kind::hello: on_hello(*entry, body); break;
        case Kind::credit:
            if (word->credits == 0 || !body.empty()) {
                bring_down(*entry, Code::data_loss, "a message without credits or content");
            }
            break;
        case Kind::bye:
            bring_down(*entry, Code::unavailable, "the peer closed the connection");
            break;
        case Kind::lane: on_lane_word(*entry, body); break;
    }
    take_back(slot);
}

// What the message says of ours, and what it costs of the peer's window. False: the peer is gone.
bool VerbsEndpoint::take_credits(PeerEntry& entry, const Immediate& word) {
    Peer& peer = entry.value;
    if (word.credits != 0) {
        if (word.credits > peer.credits_full - peer.credits) {
            bring_down(entry, Code::data_loss, "more credits than it ever gave");
            return false;
        }
        peer.credits += word.credits;
        if (!peer.backlog.empty() && !peer.FlushNode::is_linked()) unflushed_.push_back(peer);
    }
    if (word.kind != Kind::data && word.kind != Kind::lane) return true;
    if (++peer.owed > peer.granted) {
        bring_down(entry, Code::data_loss, "more messages than it was granted");
        return false;
    }
    // Otherwise they ride on what is sent anyway.
    if (peer.owed * 2 >= peer.granted && !peer.FlushNode::is_linked()) unflushed_.push_back(peer);
    return true;
}

bool VerbsEndpoint::is_time_to_look(bool busy) {
    if (look_now_) return true;
    if (busy) return now_ - looked_at_ >= look_every;
    return ++polls_unlooked_ >= polls_per_look || now_ - looked_at_ >= look_every_idle;
}

void VerbsEndpoint::look() {
    // A handshake goes on as soon as it can.
    look_now_ = handshakes_ > strangers_;
    polls_unlooked_ = 0;
    const Duration stall = own_stall(now_ - std::exchange(looked_at_, now_));
    if (stall > Duration::zero()) forgive(stall);
    epoll_event ready[events_per_look];
    const int found = base::check_open(::epoll_wait(epoll_.get(), ready, events_per_look, 0));
    for (int i = 0; i < found; ++i) {
        const int fd = ready[i].data.fd;
        if (fd == channel_->fd) {
            look_at_connections();
        } else if (fd == card_->trouble_fd()) {
            while (const auto trouble = card_->trouble()) on_trouble(*trouble);
        } else {
            card_->take_wakes();
        }
    }
}

// What concerns one lane is told by its completions, and is a peer's to bring about.
void VerbsEndpoint::on_trouble(const Trouble& trouble) {
    if (trouble.about == Trouble::About::one_lane) return;
    if (trouble.about == Trouble::About::everything) return give_up(trouble.words);
    parts_.log.warning("verbs: " + trouble.words);
}

// A device that is broken, or gone, does not come back to those who have it open.
void VerbsEndpoint::give_up(const std::string& why) {
    if (!dead_.empty()) return;
    dead_ = "the RDMA device is of no use to this process any more: " + why;
    parts_.log.error("verbs: " + dead_ + "; restart it");
    peers_.for_each([&](PeerEntry& entry) { bring_down(entry, Code::unavailable, dead_); });
}

void VerbsEndpoint::attend(PeerEntry& entry, TimePoint at) {
    WEFT_ASSERT(entry.is_taken());
    Peer& peer = entry.value;
    peer.due = at;
    attention_at_ = std::min(attention_at_, at);
    if (!peer.AttentionNode::is_linked()) attention_.push_back(peer);
}

// Our own thread did not look for so long: the answers may be there.
void VerbsEndpoint::forgive(Duration stall) {
    if (handshakes_ == 0) return;
    peers_.for_each([&](PeerEntry& entry) {
        Peer& peer = entry.value;
        if (peer.state == PeerState::up) return;
        peer.started = std::min(peer.started + stall, now_);
        peer.hang_ups.postpone(stall, now_);
        const bool has_deadline = peer.state != PeerState::resolving && peer.broken.empty();
        if (has_deadline) peer.due = postponed(peer.due, stall, now_ + handshake_max);
    });
}

// Not at once: whoever is about to do something with the peer must find it.
void VerbsEndpoint::break_off(PeerEntry& entry, std::string why) {
    if (!entry.value.broken.empty()) return;
    entry.value.broken = std::move(why);
    attend(entry, now_);
}

void VerbsEndpoint::serve_attention() {
    base::IntrusiveList<Peer, AttentionNode> now_due;
    now_due.splice_back(attention_);
    attention_at_ = never;
    while (Peer* peer = now_due.pop_front()) {
        PeerEntry& entry = PeerTable::entry_of(*peer);
        if (peer->due > now_) {
            attend(entry, peer->due);
        } else if (!peer->broken.empty()) {
            bring_down(entry, Code::unavailable, peer->broken);
        } else if (peer->state == PeerState::resolving) {
            serve_resolving(entry);
        } else {
            bring_down(entry, Code::unavailable,
                       "no answer from " + peer->info.uri + " within 2.5 s");
        }
    }
    if (!leaving_.empty()) serve_leaving();
    if (stuck_due_ <= now_) serve_stuck();
    attention_at_ = std::min(attention_at_, stuck_due_);
}

void VerbsEndpoint::serve_leaving() {
    const auto is_flushed = [this](const LaneEntry* lane) {
        return lane->value.ended && lane->value.due <= now_;
    };
    if (std::ranges::any_of(leaving_, is_flushed)) (void)read_completions(true);
    for (LaneEntry* lane : std::vector(leaving_)) {
        if (is_flushed(lane)) {
            (void)drop_lane(*lane);
        } else if (lane->value.due <= now_) {
            end_talk(*lane);
        } else {
            attention_at_ = std::min(attention_at_, lane->value.due);
        }
    }
}

void VerbsEndpoint::wake_writers() {
    want_writable_.for_each([this](Peer& peer) {
        if (!has_room(peer)) return;
        peer.WritableNode::unlink();
        Event event;
        event.kind = EventKind::writable;
        event.peer = id_of(PeerTable::entry_of(peer));
        events_.give(event);
    });
}

bool VerbsEndpoint::arm() {
    look_now_ = true;
    if (!parts_.sleeps || !events_.empty() || !unflushed_.empty()) return false;
    // Those of a poll that had no event to give.
    if (!receives_idle_.empty()) give_receives();
    bool writable = false;
    want_writable_.for_each([&](Peer& peer) { writable |= has_room(peer); });
    return !writable && card_->arm();
}

}  // namespace weft::na::verbs
