// One turn of an endpoint: completions become events, and what is due by time is served.
#include <arpa/inet.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/duration_text.h"
#include "base/log.h"
#include "base/own_descriptor.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::size_t batch = 16;
static constexpr int events_per_poll = 8;

// A work request's number: its kind, its queue pair, and the queue pair's count at that request.
static constexpr int sequence_bits = 14;
static constexpr int slot_bits = 16;

std::uint64_t number_of(Work work, base::SlotId queue_pair, std::uint32_t sequence) {
    return static_cast<std::uint64_t>(work) << 62 |
           static_cast<std::uint64_t>(queue_pair.slot) << (62 - slot_bits) |
           static_cast<std::uint64_t>(queue_pair.generation) << sequence_bits |
           (sequence & ((1u << sequence_bits) - 1));
}

static Work work_of(std::uint64_t number) { return static_cast<Work>(number >> 62); }

static base::SlotId queue_pair_of(std::uint64_t number) {
    return {static_cast<std::uint32_t>(number >> (62 - slot_bits) & ((1u << slot_bits) - 1)),
            static_cast<std::uint32_t>(number >> sequence_bits)};
}

std::uint32_t sequence_of(std::uint64_t number, const QueuePair& queue_pair) {
    const std::uint32_t behind =
        (queue_pair.posted - static_cast<std::uint32_t>(number)) & ((1u << sequence_bits) - 1);
    return queue_pair.posted - behind;
}

std::size_t VerbsEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    peers_.begin_poll();
    for (const std::uint32_t slot : receives_.handed_out) receives_.idle.push_back(slot);
    receives_.handed_out.clear();
    if (!receives_.idle.empty()) post_idle_receives();

    events_.begin(events);
    const bool is_busy = read_completions();
    if (descriptor_polls_.is_due(is_busy, now)) poll_descriptors();
    if (now >= schedule_.next()) serve_scheduled();
    backlog_.flush([this](Connection& peer) { drain(peer); });
    backlog_.wake_writers(
        [this](const Connection& peer) { return has_room(peer); },
        [this](const Connection& peer) { events_.push(writable_event(peer.id)); });
    const std::size_t count = events_.end();
    for (std::size_t i = 0; i < count; ++i) {
        if (events[i].kind != EventKind::message) continue;
        receives_.handed_out.push_back(device_->receives().slot_of(events[i].bytes.data()));
    }
    peers_.note_reported(events.first(count));
    return count;
}

// True: there were completions. `all`: also those for which this poll has no room.
bool VerbsEndpoint::read_completions(bool all) {
    ibv_wc completions[batch];
    for (bool any = false;; any = true) {
        const std::size_t count = device_->poll(completions);
        for (std::size_t i = 0; i < count; ++i) on_completion(completions[i]);
        if (count < batch) return any || count != 0;
        if (!all && !events_.has_room()) return true;
    }
}

void VerbsEndpoint::on_completion(const ibv_wc& completion) {
    const Work work = work_of(completion.wr_id);
    if (work == Work::receive) return on_message(completion);
    QueuePairEntry* queue_pair = queue_pairs_.table.find(queue_pair_of(completion.wr_id));
    if (!queue_pair) return;  // Destroyed meanwhile, with all its operations.
    if (completion.status != IBV_WC_SUCCESS) {
        return work == Work::message ? on_queue_pair_error(*queue_pair, completion)
                                     : on_transfer_error(*queue_pair, completion);
    }
    const std::uint32_t sequence = sequence_of(completion.wr_id, queue_pair->value);
    if (work == Work::message) {
        on_sent(*queue_pair, sequence);
    } else {
        on_transferred(*queue_pair, sequence);
    }
}

// Everything up to `sequence` has arrived.
void VerbsEndpoint::on_sent(QueuePairEntry& entry, std::uint32_t sequence) {
    QueuePair& queue_pair = entry.value;
    WEFT_DCHECK(entry.is_taken());
    queue_pair.completed = sequence;
    Connection* owner = queue_pair.draining ? nullptr : peers_.find(queue_pair.peer);
    while (SendSlot* slot = queue_pair.in_flight.front()) {
        if (static_cast<std::int32_t>(slot->sequence - sequence) > 0) break;
        slot->unlink();
        release(owner, *slot);
    }
    if (queue_pair.draining && !queue_pair.ended && queue_pair.completed == queue_pair.posted)
        return flush_queue_pair(entry);
    if (!owner) return;
    if (!owner->backlog.empty() || owner->credits.must_return()) backlog_.flush_later(*owner);
}

void VerbsEndpoint::on_queue_pair_error(QueuePairEntry& entry, const ibv_wc& completion) {
    if (entry.value.draining) {
        if (!entry.value.ended) flush_queue_pair(entry);
        return;
    }
    if (Connection* owner = peers_.find(entry.value.peer)) {
        take_down(*owner, Code::unavailable,
                  "the connection broke: " + describe_status(completion.status));
    }
}

void VerbsEndpoint::recycle(std::uint32_t slot) { receives_.idle.push_back(slot); }

void VerbsEndpoint::post_idle_receives() {
    device_->post_receives(receives_.idle);
    receives_.idle.clear();
}

static bool is_over(std::uint32_t qp, const Connection& peer) {
    return peer.message_queue_pair && peer.message_queue_pair->value.qp &&
           peer.message_queue_pair->value.qp->qp_num == qp;
}

// Takes down the peer of a queue pair, if it is still connected.
void VerbsEndpoint::fail_sender(std::uint32_t qp, const std::string& why) {
    peers_.for_each([&](Connection& peer) {
        if (is_over(qp, peer)) take_down(peer, Code::data_loss, why);
    });
}

void VerbsEndpoint::on_message(const ibv_wc& completion) {
    const auto slot = static_cast<std::uint32_t>(completion.wr_id);
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        recycle(slot);
        return fail_sender(completion.qp_num, "the peer sent a message that the device refused");
    }
    ++device_->counters.messages_in;
    if (completion.byte_len != 0) device_->count_message(slot);
    const auto word = (completion.wc_flags & IBV_WC_WITH_IMM)
                          ? decode_immediate(ntohl(completion.imm_data))
                          : std::nullopt;
    Connection* peer = word ? peers_.at(word->index) : nullptr;
    if (!peer || !is_over(completion.qp_num, *peer)) [[unlikely]] {
        recycle(slot);
        return fail_sender(completion.qp_num,
                           "the peer sent a message of unknown kind, or of another peer");
    }
    const ByteView body(device_->receives().at(slot), completion.byte_len);
    if (!take_credits(*peer, *word)) return recycle(slot);
    switch (word->kind) {
        case Kind::data: {
            if (peer->phase != PeerPhase::up || body.empty()) {
                recycle(slot);
                return take_down(*peer, Code::data_loss, "the peer sent a message out of place");
            }
            return events_.push(message_event(peer->id, body));
        }
        case Kind::hello: on_hello(*peer, body); break;
        case Kind::credit:
            if (word->credits == 0 || !body.empty()) {
                take_down(*peer, Code::data_loss,
                          "the peer sent a message without credits or content");
            }
            break;
        case Kind::bye:
            take_down(*peer, Code::unavailable, "the peer closed the connection");
            break;
        case Kind::queue_pair: on_queue_pair_message(*peer, body); break;
    }
    recycle(slot);
}

// Applies the credits in the message, and its cost to the peer's window. False: the peer is down.
bool VerbsEndpoint::take_credits(Connection& peer, const Immediate& word) {
    if (word.credits != 0) {
        if (!peer.credits.on_returned(word.credits)) {
            take_down(peer, Code::data_loss, "the peer returned more credits than were used");
            return false;
        }
        if (!peer.backlog.empty()) backlog_.flush_later(peer);
    }
    if (word.kind != Kind::data && word.kind != Kind::queue_pair) return true;
    if (!peer.credits.on_received()) {
        take_down(peer, Code::data_loss, "the peer sent more messages than it was granted");
        return false;
    }
    // Otherwise the credits return with other messages.
    if (peer.credits.must_return()) backlog_.flush_later(peer);
    return true;
}

void VerbsEndpoint::poll_descriptors() {
    const Duration stall = descriptor_polls_.begin(now_);
    // A handshake proceeds as soon as it can.
    if (handshakes_.all > handshakes_.incoming) descriptor_polls_.request();
    if (stall > Duration::zero()) extend_deadlines(stall);
    epoll_event ready[events_per_poll];
    const int found = base::check_open(::epoll_wait(epoll_.get(), ready, events_per_poll, 0));
    for (int i = 0; i < found; ++i) {
        const int fd = ready[i].data.fd;
        if (fd == cm_.channel->fd) {
            poll_cm_events();
        } else if (fd == cm_.listener_fd) {
            poll_listener();
        } else if (fd == device_->async_fd()) {
            while (const auto event = device_->next_async_event()) on_async_event(*event);
            check_failure();
        } else if (fd == device_->failure_fd()) {
            check_failure();
        } else {
            device_->consume_wakeups();
        }
    }
}

// Events that are missed meanwhile keep the descriptor readable.
void VerbsEndpoint::watch_listener() {
    epoll_event event{};
    if (cm_.duty.is_on()) event.events = EPOLLIN;
    event.data.fd = cm_.listener_fd;
    (void)base::check_open(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, cm_.listener_fd, &event));
}

// Completions report an event of one queue pair, too, and a peer can cause it: it is not logged.
void VerbsEndpoint::on_async_event(const AsyncEvent& event) {
    if (event.affects == AsyncEvent::Affects::other) parts_.log.warning("verbs: " + event.text);
}

// A device that is broken or removed does not recover for processes that have it open.
void VerbsEndpoint::check_failure() {
    const std::optional<std::string> why = device_->take_failure();
    if (!why || !device_error_.empty()) return;
    device_error_ = "the RDMA device is unusable in this process: " + *why;
    parts_.log.error("verbs: " + device_error_ + "; restart the process");
    peers_.for_each([&](Connection& peer) { take_down(peer, Code::unavailable, device_error_); });
}

// This thread did not poll for so long: the answers may have arrived.
void VerbsEndpoint::extend_deadlines(Duration stall) {
    if (handshakes_.all == 0) return;
    peers_.for_each([&](Connection& peer) {
        if (peer.phase == PeerPhase::up) return;
        peer.started = std::min(peer.started + stall, now_);
        peer.hang_ups.postpone(stall, now_);
        const bool has_deadline = peer.phase > PeerPhase::waiting && peer.broken.empty();
        if (has_deadline) peer.due = postponed(peer.due, stall, now_ + handshake_max);
    });
}

// Takes the peer down with the next poll, as the caller still uses it.
void VerbsEndpoint::take_down_later(Connection& peer, std::string why) {
    if (!peer.broken.empty()) return;
    peer.broken = std::move(why);
    schedule_.add(peer, now_);
}

void VerbsEndpoint::serve_scheduled() {
    schedule_.serve_due(now_, [this](Connection& peer) {
        if (!peer.broken.empty()) return take_down(peer, Code::unavailable, peer.broken);
        const bool has_time =
            peer.phase == PeerPhase::resolving || peer.phase == PeerPhase::waiting;
        if (has_time) return serve_resolving(peer);
        take_down(
            peer, Code::unavailable,
            "no answer from " + peer.info.uri + " within " + base::duration_text(handshake_max));
    });
    if (!queue_pairs_.draining.empty()) serve_draining();
    if (queue_pairs_.stuck_due <= now_) serve_stuck();
    schedule_.note(queue_pairs_.stuck_due);
    if (cm_.duty.serve(now_)) watch_listener();
    schedule_.note(cm_.duty.next_deadline());
}

void VerbsEndpoint::serve_draining() {
    const auto is_flushed = [this](const QueuePairEntry* queue_pair) {
        return queue_pair->value.ended && queue_pair->value.due <= now_;
    };
    if (std::ranges::any_of(queue_pairs_.draining, is_flushed)) (void)read_completions(true);
    for (QueuePairEntry* queue_pair : std::vector(queue_pairs_.draining)) {
        if (is_flushed(queue_pair)) {
            (void)drop_queue_pair(*queue_pair);
        } else if (queue_pair->value.due <= now_) {
            flush_queue_pair(*queue_pair);
        } else {
            schedule_.note(queue_pair->value.due);
        }
    }
}

bool VerbsEndpoint::arm() {
    descriptor_polls_.request();
    if (!parts_.sleeps || !events_.empty() || backlog_.has_unflushed()) return false;
    // Buffers of messages that gave no event.
    if (!receives_.idle.empty()) post_idle_receives();
    const bool writable = backlog_.can_wake([this](Connection& peer) { return has_room(peer); });
    return !writable && device_->arm();
}

}  // namespace weft::na::verbs
