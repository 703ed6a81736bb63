// One turn of an endpoint: completions become events, and what is due by time is served.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "na/ofi/endpoint.h"
#include "na/own_stall.h"

namespace weft::na::ofi {

static constexpr Duration retry_spacing_min = 50us;
static constexpr Duration retry_spacing_max = 10ms;
static constexpr std::uint32_t retries_free = 10;

std::size_t OfiEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    clock_.now = now;
    peers_.begin_poll();
    const Duration unseen = now - std::exchange(clock_.polled_at, now);
    const bool has_opened = clock_.opened_at < now;
    const Duration stall = has_opened ? unseen : own_stall(unseen);
    if (stall > Duration::zero()) extend_deadlines(stall);
    if (has_opened) clock_.opened_at = never;
    received_.free_handed_out();
    if (received_.buffers().has_idle()) post_receives();

    events_.begin(events);
    if (!events_.is_over()) {
        if (now >= schedule_.next()) serve_scheduled();
        if (fabric_) read_completions();
        if (av_.reading) serve_av_entries();
        backlog_.wake_writers(
            [this](const Connection& peer) { return has_room(peer); },
            [this](const Connection& peer) { events_.push(writable_event(peer.id)); });
    }
    const std::size_t count = events_.end();
    for (const Event& event : events.first(count)) {
        if (event.kind == EventKind::message) received_.hand_out(event.bytes.data());
    }
    peers_.note_reported(events.first(count));
    return count;
}

void OfiEndpoint::post_receives() {
    while (fabric_) {
        ReceiveBuffer* buffer = received_.buffers().take_idle();
        if (!buffer) return;
        if (fi_recv(fabric_->ep(), buffer->message, received_.buffers().bytes(), nullptr,
                    FI_ADDR_UNSPEC, static_cast<OperationContext*>(buffer)) != 0) {
            received_.buffers().give_back(*buffer);  // The next poll tries again.
            return;
        }
    }
}

// Each read makes libfabric take in up to 32 more completions from all peers. If fewer were taken
// out, its queue would grow without bound, and a message would wait behind all earlier ones. So a
// read takes them all, however few events the caller wants, and the next one waits until those are
// handed out.
void OfiEndpoint::read_completions() {
    fi_cq_msg_entry entries[completions_per_read];
    while (events_.has_room()) {
        const ssize_t count = fi_cq_read(fabric_->cq(), entries, completions_per_read);
        if (count == -FI_EAVAIL) {
            on_error();
            continue;
        }
        if (count <= 0) return;
        for (ssize_t i = 0; i < count; ++i) {
            // Completions without a context are libfabric's own.
            if (!entries[i].op_context) continue;
            on_completion(*static_cast<OperationContext*>(entries[i].op_context), entries[i].len);
        }
        // Another read of an empty queue would cost a system call.
        if (static_cast<std::size_t>(count) < completions_per_read) return;
    }
}

void OfiEndpoint::on_completion(OperationContext& operation, std::size_t bytes) {
    switch (operation.kind) {
        case OperationContext::Kind::receive:
            on_message(static_cast<ReceiveBuffer&>(operation), bytes);
            return;
        case OperationContext::Kind::send: on_sent(static_cast<SendSlot&>(operation)); return;
        case OperationContext::Kind::transfer:
            finish(static_cast<RmaOperation&>(operation), Code::ok, {});
            return;
    }
}

void OfiEndpoint::on_error() {
    fi_cq_err_entry entry{};
    std::byte data[64];  // Local, so that nothing points into libfabric.
    entry.err_data = data;
    entry.err_data_size = sizeof data;
    if (fi_cq_readerr(fabric_->cq(), &entry, 0) < 0 || !entry.op_context) return;
    const std::string why = "the connection broke: " + describe(entry.err);
    auto& operation = *static_cast<OperationContext*>(entry.op_context);
    PeerId gone;
    switch (operation.kind) {
        case OperationContext::Kind::receive:
            // A message cut short by the end of its connection; its sender is unknown.
            received_.buffers().give_back(static_cast<ReceiveBuffer&>(operation));
            return;
        case OperationContext::Kind::send: {
            auto& slot = static_cast<SendSlot&>(operation);
            gone = slot.peer;
            on_sent(slot);
            break;
        }
        case OperationContext::Kind::transfer: {
            auto& transfer = static_cast<RmaOperation&>(operation);
            gone = transfer.item.peer;
            finish(transfer, Code::unavailable, why);
            break;
        }
    }
    // All peers that share the connection have lost it too.
    if (Connection* peer = peers_.find(gone)) cut(*peer->av_entry, why);
}

void OfiEndpoint::on_message(ReceiveBuffer& buffer, std::size_t bytes) {
    const ByteView message(buffer.message, std::min(bytes, received_.buffers().bytes()));
    if (const auto prefix = decode_prefix(message)) {
        const ByteView body = message.subspan(sizeof(Prefix));
        Connection* peer = peers_.at(prefix->index);
        if (prefix->index == no_index && prefix->tag == wire_magic && prefix->kind == Kind::hello) {
            on_hello(body);
        } else if (peer && peer->ours.tag == prefix->tag) {
            if (prefix->kind == Kind::data && peer->phase == PeerPhase::up &&
                prefix->sequence == peer->sequence_in + 1 && !body.empty() && !peer->part)
                [[likely]] {
                peer->sequence_in = prefix->sequence;
                events_.push(message_event(peer->id, body));
                return;  // The buffer returns after the event was handed out.
            }
            on_peer_message(*peer, *prefix, body);
        }
    }
    received_.buffers().give_back(buffer);
}

// Handles all but the common case of on_message().
void OfiEndpoint::on_peer_message(Connection& peer, const Prefix& prefix, ByteView body) {
    switch (prefix.kind) {
        case Kind::welcome:
            // Without an address entry no hello was sent.
            if (peer.phase == PeerPhase::connecting && peer.av_entry) on_welcome(peer, body);
            return;
        case Kind::refusal:
            if (peer.phase == PeerPhase::connecting) on_refusal(peer, body);
            return;
        case Kind::bye:
        case Kind::piece:
        case Kind::data: break;
        case Kind::hello: return;
    }
    if (peer.phase != PeerPhase::up) return;
    if (prefix.sequence != peer.sequence_in + 1) {
        take_down(peer, Code::data_loss, "messages of the peer were lost on the way");
    } else if (prefix.kind == Kind::bye) {
        peer.received_bye = true;
        take_down(peer, Code::unavailable, "the peer closed the connection");
    } else if (body.empty()) {
        take_down(peer, Code::data_loss, "the peer sent an empty message");
    } else {
        on_piece(peer, prefix, body);
    }
}

// Appends a piece of a message; the last one has kind `data`.
void OfiEndpoint::on_piece(Connection& peer, const Prefix& prefix, ByteView body) {
    WEFT_ASSERT(peer.part_bytes <= limits_.message_bytes_max);
    if (body.size() > limits_.message_bytes_max - peer.part_bytes) {
        take_down(peer, Code::data_loss, "the peer sent a message longer than it may");
        return;
    }
    if (!peer.part) peer.part = received_.take_joined();
    if (!peer.part) {
        take_down(peer, Code::resource_exhausted,
                  "this process has no memory for a message of the peer");
        return;
    }
    std::memcpy(peer.part.get() + peer.part_bytes, body.data(), body.size());
    peer.part_bytes += static_cast<std::uint32_t>(body.size());
    peer.sequence_in = prefix.sequence;
    if (prefix.kind == Kind::piece) return;

    const ByteView message(peer.part.get(), std::exchange(peer.part_bytes, 0));
    received_.on_joined(std::move(peer.part));
    events_.push(message_event(peer.id, message));
}

bool OfiEndpoint::arm() {
    if (!events_.empty()) return false;
    if (received_.buffers().has_idle()) post_receives();
    // Since the poll, for example by a connection that ended.
    const bool writable = backlog_.can_wake([this](Connection& peer) { return has_room(peer); });
    return !writable && parts_.sleeps && (!fabric_ || fabric_->may_sleep());
}

void OfiEndpoint::serve_scheduled() {
    schedule_.serve_due(clock_.now, [this](Connection& peer) { serve(peer); });
    if (av_.check_at <= clock_.now) serve_av_entries();
    if (close_on_exec_.at <= clock_.now) set_close_on_exec();
    schedule_.note(std::min(av_.check_at, close_on_exec_.at));
}

// A thread that did not poll for so long has not seen answers that may have arrived: libfabric
// takes time to start, and again with its first messages, seconds on a busy machine. That time does
// not count against the peers.
void OfiEndpoint::extend_deadlines(Duration stall) {
    peers_.for_each(
        [&](Connection& peer) { peer.started = std::min(peer.started + stall, clock_.now); });
}

void OfiEndpoint::serve(Connection& peer) {
    switch (peer.phase) {
        case PeerPhase::resolving: return serve_resolving(peer);
        case PeerPhase::connecting: return serve_connecting(peer);
        case PeerPhase::handshaking: return serve_accepting(peer);
        case PeerPhase::up: return serve_up(peer);
        default: WEFT_ASSERT(false);  // No other phase is scheduled.
    }
}

void OfiEndpoint::serve_up(Connection& peer) {
    if (drain(peer) && peer.backlog.empty()) start_waiting_transfers(peer);
}

// Whether operations that libfabric accepted are in flight: if the connection had broken, all of
// them would have failed. Over TCP libfabric may keep operations of a broken one, so they prove
// nothing.
bool OfiEndpoint::is_busy(AvEntry& av_entry) {
    if (traits_.probes_by_socket) return false;
    bool busy = transfers_.any_posted(
        [&](const RmaOperation& transfer) { return transfer.av_entry == &av_entry; });
    av_entry.members.for_each([&](Connection& peer) {
        std::uint32_t waiting = 0;
        peer.backlog.for_each([&](SendSlot& slot) { waiting += slot.under_way == 0; });
        busy = busy || peer.slots > waiting;
    });
    return busy;
}

// Records one more "try again" from libfabric. False: it lasted too long, and the peer was taken
// down.
bool OfiEndpoint::blocked(Connection& peer) {
    Retry& retry = peer.retry;
    if (retry.attempts++ == 0) retry.since = clock_.now;
    // The endpoint's own depth limits are below libfabric's, so an established connection accepts
    // more sooner or later. This one is being made anew, and messages on the old one may be lost.
    if (retry.attempts > retries_free && clock_.now - retry.since > lost_after) {
        if (is_busy(*peer.av_entry)) retry.since = clock_.now;
    }
    if (retry.attempts > retries_free && clock_.now - retry.since > lost_after) {
        const std::string why = "the connection was lost";
        cut(*peer.av_entry, why);
        return false;
    }
    const std::uint32_t doublings =
        std::min(8u, retry.attempts > retries_free ? retry.attempts - retries_free : 0u);
    schedule_.add(peer,
                  clock_.now + std::min(retry_spacing_max, retry_spacing_min * (1 << doublings)));
    return true;
}

}  // namespace weft::na::ofi
