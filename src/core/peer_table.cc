#include "core/peer_table.h"

#include <algorithm>

#include "base/assert.h"
#include "na/hello.h"

namespace weft::core {

PeerTable::PeerTable(const ContextOptions& options, TurnLoop& loop, FrameRouter& router,
                     base::FlightRecorder& recorder, base::Log& log)
    : loop_(loop),
      router_(router),
      recorder_(recorder),
      log_(log),
      peers_(options.peers_max),
      queues_(options),
      liveness_(options, loop.timers()),
      lingering_(loop.timers()) {
    trim_timer_.table = this;
    trim_timer_.fire = [](base::Timer& timer, TimePoint) {
        static_cast<TrimTimer&>(timer).table->trim_shares();
    };
}

void PeerTable::clear() {
    loop_.timers().cancel(trim_timer_);
    for_each([&](Peer& peer) {
        liveness_.stop(peer);
        queues_.drop_all(peer);
    });
}

Peer& PeerTable::begin_life(base::SlotTable<Peer>::Entry& entry, bool incoming) {
    Peer& peer = entry.value;
    WEFT_ASSERT(peer.state == PeerState::idle && peer.queue.frames == 0);
    WEFT_ASSERT(!peer.endpoint && !peer.na_id && !peer.attempt.kept.id);
    WEFT_ASSERT(!peer.client && !peer.server);
    WEFT_ASSERT(peer.traffic.transfers.empty() && peer.traffic.posted == 0);
    WEFT_ASSERT(peer.traffic.fetches.empty() && peer.traffic.waiting == 0);
    WEFT_ASSERT(peer.traffic.grants.empty() && peer.traffic.granted == 0);
    WEFT_ASSERT(!peer.traffic.pending_closes.is_linked());
    peer.traffic.blocks = {};
    peer.ref = {&peer, entry.generation};
    peer.incoming = incoming;
    peer.owner = this;
    peer.interest = 0;
    peer.is_removed = false;
    peer.remote = {};
    peer.heartbeat.peer = &peer;
    peer.heartbeat.fire = [](base::Timer& timer, TimePoint) {
        Peer& beating = *static_cast<Peer::Heartbeat&>(timer).peer;
        beating.owner->on_heartbeat(beating);
    };
    return peer;
}

Status PeerTable::why_full() const {
    return fail(Code::resource_exhausted,
                "this context has " + std::to_string(peers_.taken()) +
                    " peers, as many as it may: drop channels that are not needed");
}

Result<PeerRef> PeerTable::add(std::vector<na::Address> addresses, WantedContext wanted) {
    if (addresses.empty())
        return fail(Code::invalid_argument, "the channel has no address to connect to");
    if (closed_) return fail(Code::unavailable, "the runtime is shutting down");
    auto* entry = peers_.take();
    if (!entry) return why_full();
    Peer& peer = begin_life(*entry, false);
    peer.attempt.selector = std::make_unique<AddressSelector>(std::move(addresses));
    peer.attempt.failed_at = TimePoint::min();
    peer.uri = peer.attempt.selector->address().uri();
    peer.remote.chosen = peer.remote.wanted = wanted;
    return peer.ref;
}

void PeerTable::connect(Peer& peer) {
    WEFT_ASSERT(!peer.incoming && peer.attempt.selector);
    WEFT_ASSERT(find(peer.ref) == &peer);
    peer.state.move_to(PeerState::connecting);
    peer.deferred_connect.peer = &peer;
    peer.deferred_connect.run = [](Deferred& work) {
        Peer& connecting = *static_cast<Peer::DeferredConnect&>(work).peer;
        connecting.owner->start_connecting(connecting);
    };
}

void PeerTable::start_connecting(Peer& peer) {
    WEFT_ASSERT(peer.state == PeerState::connecting && !peer.na_id);
    if (closed_)
        return on_connection_lost(peer, fail(Code::unavailable, "the runtime is shutting down"));
    peer.attempt.contexts = 0;
    advance_connection(peer, peer.attempt.selector->start(), {});
}

// A peer has one bound connection at a time: only the events and messages of that connection reach
// it.
void PeerTable::bind(Peer& peer, const PeerConnection& connection) {
    WEFT_ASSERT(connection.endpoint && connection.id && !peer.na_id);
    EndpointSlot& slot = *connection.endpoint;
    peer.endpoint = &slot;
    peer.na_id = connection.id;
    slot.announce(connection.id);
    WEFT_ASSERT(!slot.peers[connection.id.index]);
    slot.peers[connection.id.index] = &peer;
    slot.idle_polls = 0;
}

PeerConnection PeerTable::unbind(Peer& peer) {
    if (!peer.na_id) return {};
    Peer*& owner = peer.endpoint->peers[peer.na_id.index];
    WEFT_ASSERT(owner == &peer);
    owner = nullptr;
    return {std::exchange(peer.endpoint, nullptr), std::exchange(peer.na_id, {})};
}

const na::PeerInfo* PeerConnection::info() const {
    return id ? endpoint->endpoint->info(id) : nullptr;
}

void PeerConnection::close() {
    if (id) endpoint->endpoint->close(id);
    *this = {};
}

// Follows the selector until an attempt is in progress, or the peer is up or lost. `why`: the
// status of the last attempt.
void PeerTable::advance_connection(Peer& peer, AddressSelector::Step step, Status why) {
    WEFT_ASSERT(peer.attempt.selector && peer.state == PeerState::connecting);
    while (true) {
        if (step.action == AddressSelector::Action::use_kept) {
            unbind(peer).close();  // With another process.
            PeerConnection& kept = peer.attempt.kept;
            const na::PeerInfo* const info = kept.info();
            why = info ? why_elsewhere(peer, *info)
                       : fail(Code::unavailable, "the connection was lost");
            if (why.ok()) {
                bind(peer, std::exchange(kept, {}));
                break;
            }
            kept.close();
            step = peer.attempt.selector->failed(why);
            continue;
        }
        if (step.action != AddressSelector::Action::connect) break;
        PeerConnection before = unbind(peer);
        if (step.keep_current) {
            peer.attempt.kept = before;
        } else {
            before.close();
        }
        peer.attempt.next_endpoint = 0;
        peer.attempt.endpoint_opened = false;
        why = fail(Code::unimplemented,
                   "no transport here speaks " + peer.attempt.selector->address().scheme);
        if (try_endpoints(peer, why)) return;
        step = peer.attempt.selector->failed(why);
    }
    if (step.action == AddressSelector::Action::give_up) {
        report_contexts(peer, peer.attempt.contexts);
        return on_connection_lost(peer, peer.attempt.selector->failure_status(why));
    }
    peer.attempt.kept.close();
    peer.uri = peer.attempt.selector->address().uri();
    if (!activate(peer))
        on_connection_lost(peer, fail(Code::unavailable, "the connection was lost again at once"));
}

// Tries each endpoint of the address's scheme, and at last a new one if there is none, or if `why`
// (UNIMPLEMENTED) permits that another one reaches the address. False: no attempt is in progress.
bool PeerTable::try_endpoints(Peer& peer, Status& why) {
    WEFT_ASSERT(peer.attempt.selector && !peer.na_id);
    na::Address address = peer.attempt.selector->address();
    peer.remote.returns = peer.remote.has_to_return();
    address.wanted = na::encode_wanted(peer.remote.wanted.number,
                                       peer.remote.returns ? &peer.incarnation : nullptr);
    while (true) {
        while (peer.attempt.next_endpoint < loop_.endpoints().size()) {
            EndpointSlot& slot = *loop_.endpoints()[peer.attempt.next_endpoint++];
            if (slot.endpoint->scheme() != address.scheme) continue;
            Result<na::PeerId> id = slot.endpoint->connect(address, loop_.now());
            if (!id) {
                why = std::move(id).status();
                continue;
            }
            peer.uri = address.uri();
            peer.pulse.missed_heartbeats = 0;
            bind(peer, {&slot, *id});
            return true;
        }
        if (why.code() != Code::unimplemented || !opener_ ||
            std::exchange(peer.attempt.endpoint_opened, true)) {
            return false;
        }
        if (Status opened = opener_(address); !opened.ok()) {
            why = std::move(opened);
            return false;
        }
    }
}

// Why a connection can't be used: it is with another context than the one that is wanted, of a
// server that has started again with fewer of them, or over a transport that reaches only one.
Status PeerTable::why_elsewhere(Peer& peer, const na::PeerInfo& info) {
    const Peer::Remote& remote = peer.remote;
    const WantedContext& wanted = remote.wanted;
    if (wanted.number == 0 || info.context + 1 == wanted.number) return {};
    const std::uint16_t required = remote.chosen.is_required ? remote.chosen.number : 0;
    if (required != 0) peer.attempt.contexts = std::max(peer.attempt.contexts, info.contexts);
    if (required > info.contexts && info.contexts != 1) {
        return fail(Code::out_of_range, "the server has " + std::to_string(info.contexts) +
                                            " contexts, and none with the number " +
                                            std::to_string(required - 1));
    }
    const bool is_needed =
        required != 0 || (wanted.is_required && info.incarnation == peer.incarnation);
    if (!is_needed) return {};
    return fail(required == 0 ? Code::unavailable : Code::out_of_range,
                "this address reaches context " + std::to_string(info.context) +
                    " of the server, and not " + std::to_string(wanted.number - 1) +
                    (info.contexts == 1 ? ": the server has one context, or the transport can't "
                                          "reach the others"
                                        : ""));
}

void PeerTable::on_up(EndpointSlot& slot, const na::Event& event) {
    slot.announce(event.peer);  // Before any return.
    const na::PeerInfo* info = slot.endpoint->info(event.peer);
    if (!info) return;  // Down already: its peer_down is in the same batch.
    if (!event.incoming) {
        Peer* peer = slot.peer_of(event.peer);
        WEFT_ASSERT(!peer || peer->attempt.selector);
        if (!peer) return;
        AddressSelector::Step step = peer->attempt.selector->up(info->incarnation);
        // One that only shows which process it is may be with any of its contexts.
        Status why;
        if (step.action == AddressSelector::Action::use) why = why_elsewhere(*peer, *info);
        if (!why.ok()) {
            unbind(*peer).close();
            step = peer->attempt.selector->failed(why);
        }
        return advance_connection(*peer, step, std::move(why));
    }
    auto* entry = closed_ ? nullptr : peers_.take();
    if (!entry) {
        slot.endpoint->close(event.peer);
        return;
    }
    Peer& peer = begin_life(*entry, true);
    peer.attempt.selector = nullptr;
    peer.uri = info->uri.empty() ? std::string(slot.endpoint->scheme()) + " peer" : info->uri;
    bind(peer, {&slot, event.peer});
    activate(peer);
}

// 0: none was seen.
void PeerTable::report_contexts(const Peer& peer, std::uint16_t contexts) {
    std::atomic<std::uint16_t>* const report = peer.remote.report.get();
    if (report && contexts != 0) report->store(contexts, std::memory_order_relaxed);
}

// Starts to use the peer's bound connection. False: it is lost already.
bool PeerTable::activate(Peer& peer) {
    WEFT_ASSERT(peer.endpoint && peer.na_id);
    const na::PeerInfo* info = peer.endpoint->endpoint->info(peer.na_id);
    if (!info) return false;
    peer.state.move_to(PeerState::up);
    connections_.fetch_add(1, std::memory_order_relaxed);
    if (!peer.incoming) ++connects_;
    peer.incarnation = info->incarnation;
    peer.remote.contexts = info->contexts;
    peer.remote.context = info->context;
    report_contexts(peer, info->contexts);
    peer.message_bytes_max = info->message_bytes_max;
    peer.eager_bytes_max = info->eager_bytes_max;
    SendQueues::update_direct(peer);
    liveness_.on_up(peer);
    // For calls that outlived the previous connection.
    if (peer.interest != 0 && !peer.heartbeat.is_linked()) liveness_.start(peer, loop_.now());
    if (peer.attempt.selector && log_.enabled(LogLevel::info)) {
        if (const std::string reason = peer.attempt.selector->reason(); !reason.empty()) {
            log_.info("using " + peer.uri + ": " + reason);
        }
    }
    if (log_.enabled(LogLevel::debug)) log_.debug("connected to " + peer.uri);
    recorder_.record(loop_.now(), "connected", peer.uri);
    const PeerRef ref = peer.ref;
    for (FrameSink* sink : router_.watchers()) {
        sink->on_peer_up(peer);
        if (peer.state != PeerState::up || peer.ref != ref) return true;
    }
    on_room(peer);
    return true;
}

void PeerTable::on_down(EndpointSlot& slot, Peer& peer, Status why) {
    WEFT_ASSERT(peer.endpoint == &slot && slot.peer_of(peer.na_id) == &peer);
    if (peer.state != PeerState::connecting) return on_connection_lost(peer, std::move(why));
    slot.peers[peer.na_id.index] = nullptr;
    peer.na_id = {};
    if (why.code() == Code::unimplemented && try_endpoints(peer, why)) return;
    advance_connection(peer, peer.attempt.selector->failed(why), why);
}

void PeerTable::disconnect(Peer& peer) {
    unbind(peer);
    peer.endpoint = nullptr;
    peer.attempt.kept.close();
    if (peer.state == PeerState::up) connections_.fetch_sub(1, std::memory_order_relaxed);
    if (peer.state != PeerState::idle) peer.state.move_to(PeerState::idle);
    SendQueues::update_direct(peer);
    liveness_.stop(peer);
    peer.deferred_connect.undefer();
    queues_.drop_all(peer);
}

// Requires: the connection is lost, or the caller has closed it.
void PeerTable::on_connection_lost(Peer& peer, Status why) {
    // UNIMPLEMENTED means that one endpoint can't reach the address; here no endpoint can.
    if (why.code() == Code::unimplemented) why = fail(Code::unavailable, std::string(why.text()));
    WEFT_ASSERT(find(peer.ref) == &peer && !why.ok());
    const PeerRef ref = peer.ref;
    if (peer.state == PeerState::connecting) peer.attempt.failed_at = loop_.now();
    liveness_.record_silence(peer);
    disconnect(peer);
    if (log_.enabled(LogLevel::debug)) log_.debug("lost " + peer.uri + ": " + why.to_string());
    recorder_.record(loop_.now(), "lost", peer.uri, static_cast<std::uint64_t>(why.code()));
    const bool forget = peer.incoming;
    for (FrameSink* sink : router_.watchers()) {
        sink->on_peer_down(peer, why);
        if (peer.ref != ref) return;  // A callback removed it.
    }
    trim_later();
    if (forget) {
        WEFT_ASSERT(peer.queue.waiting.empty() && !peer.deferred_connect.is_linked());
        peer.ref = {};
        if (find(ref)) peers_.release(base::SlotTable<Peer>::entry_of(peer));
    }
}

// Closes the connection: at once if no frames are in flight, else when these have left, within
// peer_timeout(). With transfers in flight it does not wait: the close cancels them. Nor does it
// wait where only an answer proves that all has left: over libfabric, later connections lost
// operations when it waited.
void PeerTable::close_gracefully(Peer& peer) {
    if (!peer.na_id) return;
    na::Endpoint& endpoint = *peer.endpoint->endpoint;
    const bool is_up = peer.state == PeerState::up && peer.traffic.posted == 0;
    if (is_up) peer.endpoint->flush();
    const bool can_wait = is_up && peer.endpoint->caps.sent_survives;
    if (!can_wait || (peer.queue.waiting.empty() && endpoint.has_left(peer.na_id))) {
        return endpoint.close(peer.na_id);
    }
    PeerConnection connection = unbind(peer);
    const TimePoint close_by = loop_.now() + liveness_.peer_timeout();
    if (!lingering_.add(connection, peer.queue.waiting, loop_.now(), close_by)) {
        return connection.close();
    }
    queues_.on_taken(peer);
}

void PeerTable::shutdown(const Status& why) noexcept {
    closed_ = true;
    loop_.begin_end();
    loop_.flush_all();
    for_each([&](Peer& peer) {
        peer.is_removed = true;
        if (peer.state == PeerState::idle) return;
        close_gracefully(peer);
        on_connection_lost(peer, why);
    });
    loop_.flush_all();
}

void PeerTable::drop_connection(Peer& peer, const Status& why) {
    if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
    on_connection_lost(peer, why);
}

void PeerTable::remove(Peer& peer, const Status& why) {
    WEFT_ASSERT(find(peer.ref) == &peer);
    const PeerRef ref = peer.ref;
    peer.is_removed = true;
    close_gracefully(peer);
    const bool incoming = peer.incoming;
    on_connection_lost(peer, why);
    if (incoming || peer.ref != ref) return;  // on_connection_lost() removed it.
    if (peer.state != PeerState::idle) {
        // A callback of on_connection_lost() used the peer again.
        if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
        disconnect(peer);
    }
    peer.ref = {};
    peers_.release(base::SlotTable<Peer>::entry_of(peer));
}

void PeerTable::on_room(Peer& peer) {
    // Pong and ping are sent before the queue: liveness does not depend on its length.
    Liveness::on_room(peer);
    if (!queues_.flush(peer)) return;
    trim_later();
    const PeerRef ref = peer.ref;
    for (FrameSink* sink : router_.watchers()) {
        if (peer.state != PeerState::up || peer.ref != ref) return;
        sink->on_room(peer);
    }
}

// The provider waits long for a listener that does not answer: too long if there are other
// addresses.
void PeerTable::check_attempt(Peer& peer) {
    const bool has_others = peer.attempt.selector && peer.attempt.selector->addresses().size() > 1;
    if (!has_others || !peer.na_id || !liveness_.has_waited(peer)) return;
    PeerConnection attempt = unbind(peer);
    attempt.close();
    advance_connection(peer, peer.attempt.selector->timed_out(),
                       fail(Code::unavailable, "the listener does not answer yet"));
}

void PeerTable::trim_later() {
    if (closed_ || !queues_.has_common_limit() || trim_timer_.is_linked()) return;
    loop_.timers().arm(trim_timer_, saturating_add(loop_.now(), liveness_.interval()));
}

void PeerTable::trim_shares() {
    bool has_extra = queues_.trim_shares();
    for (FrameSink* sink : router_.watchers()) has_extra |= sink->trim_shares();
    if (has_extra) trim_later();
}

void PeerTable::on_heartbeat(Peer& peer) {
    WEFT_ASSERT(find(peer.ref) == &peer && !peer.heartbeat.is_linked());
    trim_shares();
    if (!liveness_.is_needed(peer)) return;  // The next interest starts it again.
    liveness_.arm(peer, loop_.now());
    if (peer.state == PeerState::connecting) return check_attempt(peer);
    if (peer.state != PeerState::up) return;
    for (FrameSink* sink : router_.watchers()) sink->on_heartbeat(peer);
    if (liveness_.beat(peer)) return;
    log_.write_rate_limited(LogLevel::warning, loop_.now(), "closing " + peer.uri + ": silent");
    peer.endpoint->endpoint->close(peer.na_id);
    on_connection_lost(
        peer, fail(Code::unavailable, "the peer has been silent for " +
                                          std::to_string(liveness_.silence(peer) / 1ms) + " ms"));
}

}  // namespace weft::core
