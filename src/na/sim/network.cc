#include "na/sim/network.h"

#include <algorithm>
#include <cstring>

#include "base/codec.h"

namespace weft::na::sim {

Network::Network(base::Random& random, WorldOptions options, TimePoint start)
    : options_(options),
      now_(start),
      links_(options.link, random.next()),
      coins_(random.next()),
      refusals_(random.next()),
      resource_faults_seed_(random.next()),
      poison_(random.next()) {
    // A message that exceeds the room of a connection would be refused for ever.
    options_.connection_bytes_max =
        std::max(options_.connection_bytes_max, options_.message_bytes_max);
    options_.connection_messages_max = std::max(options_.connection_messages_max, 1u);
}

constinit thread_local ResourceFaults* ResourceFaults::current_ = nullptr;

ResourceFaults& Network::resource_faults(HostId host) {
    // Seeds that differ by little give unrelated sequences.
    return resource_faults_of_host_.try_emplace(host, resource_faults_seed_ + host).first->second;
}

void Network::transmit(Packet packet) {
    packet.since = now_;
    attempt(std::move(packet));
}

void Network::attempt(Packet packet) {
    const Links::Transit transit =
        links_.pass(packet.from_host, packet.to_host, packet.payload.size, now_);
    if (transit.is_lost) return resend(std::move(packet));
    packet.delivery = transit.is_damaged ? Delivery::arrives_damaged : Delivery::arrives;
    // The first message of the connecting side: the other side's first packet is its accept.
    const bool is_first = packet.kind == Kind::message && packet.sequence == 1;
    if (is_first && links_.hangs_up(packet.from_host, packet.to_host))
        packet.delivery = Delivery::hangs_up;
    const TimePoint at = saturating_add(now_, transit.takes);
    if (transit.is_repeated && packet.sequence != 0) {
        Packet again;
        again.kind = Kind::repeated;
        again.from = packet.from;
        again.to = packet.to;
        again.to_peer = packet.to_peer;
        again.sequence = packet.sequence;
        again.stream = packet.stream;
        again.from_host = packet.from_host;
        again.to_host = packet.to_host;
        send(saturating_add(at, transit.takes), std::move(again));
    }
    send(at, std::move(packet));
}

// Retries the packet, later each time.
void Network::resend(Packet packet) {
    const weft::sim::Link& link = links_.of(packet.from_host, packet.to_host);
    Duration wait = link.resend_after * (1 << std::min<int>(packet.attempts, 16));
    wait = std::clamp(wait, Duration(1us), std::max(link.resend_after_max, Duration(1us)));
    ++packet.attempts;
    ++faults_.resent;
    packet.delivery = Delivery::is_resent;
    send(saturating_add(now_, wait), std::move(packet));
}

void Network::fail_connection(const Packet& packet) {
    Node* sender = find(packet.from);
    if (!sender) return;
    ++faults_.given_up;
    sender->take_down(packet.from_peer, Code::unavailable, "the peer's host does not answer");
}

void Network::reset(const Packet& packet, std::string_view why) {
    Packet answer;
    answer.kind = Kind::down;
    answer.code = Code::unavailable;
    answer.to = packet.from;
    answer.to_peer = packet.from_peer;
    answer.from_host = packet.to_host;
    answer.to_host = packet.from_host;
    answer.text = why;
    transmit(std::move(answer));
}

void Network::send(TimePoint at, Packet packet) {
    WEFT_DCHECK(at >= now_);
    std::uint32_t index = 0;
    if (packets_free_.empty()) {
        index = static_cast<std::uint32_t>(packets_.size());
        packets_.push_back(std::move(packet));
    } else {
        index = packets_free_.back();
        packets_free_.pop_back();
        packets_[index] = std::move(packet);
    }
    heap_.push_back({at, sequence_++, index});
    std::push_heap(heap_.begin(), heap_.end());
}

void Network::advance(TimePoint now) {
    while (!heap_.empty() && heap_.front().at <= now) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Key key = heap_.back();
        WEFT_ASSERT(key.index < packets_.size());
        heap_.pop_back();
        Packet packet = std::move(packets_[key.index]);
        packets_free_.push_back(key.index);
        now_ = std::max(now_, key.at);
        record(key.at, packet);
        deliver(packet);
    }
    now_ = std::max(now_, now);
}

void Network::record(TimePoint at, const Packet& packet) {
    ++events_;
    if (!is_local(packet.kind)) packet_log_.note(at, packet);
    trace_.mix(static_cast<std::uint64_t>(at.time_since_epoch().count()));
    trace_.mix(static_cast<std::uint64_t>(packet.kind) << 8 |
               static_cast<std::uint64_t>(packet.code));
    trace_.mix(std::uint64_t{packet.from.slot} << 32 | packet.to.slot);
    trace_.mix(std::uint64_t{packet.to_peer.index} << 32 | packet.to_peer.generation);
    trace_.mix(packet.payload.size);
    // The head of a message: enough to distinguish two runs without reading every payload.
    base::Reader head(packet.payload.view().first(std::min<std::size_t>(packet.payload.size, 64)));
    while (head.remaining() >= 8) trace_.mix(head.take<std::uint64_t>());
}

void Network::deliver(Packet& packet) {
    if (!is_local(packet.kind) && (packet.delivery == Delivery::is_resent ||
                                   links_.is_cut(packet.from_host, packet.to_host))) {
        if (packet.kind == Kind::repeated || links_.is_unreachable(packet.from_host)) return;
        const weft::sim::Link& link = links_.of(packet.from_host, packet.to_host);
        if (now_ - packet.since >= link.give_up_after) return fail_connection(packet);
        return packet.delivery == Delivery::is_resent ? attempt(std::move(packet))
                                                      : resend(std::move(packet));
    }
    if (packet.kind == Kind::connect) {
        if (packet.delivery == Delivery::arrives_damaged) return resend(std::move(packet));
        return deliver_connect(packet);
    }
    Node* to = find(packet.to);
    if (!to) {
        // A packet that expects an answer is reset; a last packet is lost.
        const bool is_last = is_local(packet.kind) || packet.kind == Kind::down ||
                             packet.kind == Kind::repeated || packet.kind == Kind::rma_reply;
        if (!is_last) reset(packet, "the peer has ended");
        return;
    }
    if (packet.delivery == Delivery::hangs_up) {
        ++faults_.hung_up;
        return to->on_lost(packet, Code::unavailable, "the connection was reset");
    }
    if (packet.delivery == Delivery::arrives_damaged) {
        ++faults_.damaged;
        return to->on_lost(packet, Code::data_loss, "a packet was damaged on the way");
    }
    if (packet.sequence != 0) return to->deliver_in_order(packet);
    dispatch(*to, packet);
}

void Network::dispatch(Node& to, Packet& packet) {
    if (!is_local(packet.kind)) heard_[{packet.to_host, packet.from_host}] = now_;
    to.receive(packet);
}

TimePoint Network::last_received(HostId by, HostId from) const {
    const auto found = heard_.find({by, from});
    return found == heard_.end() ? TimePoint::min() : found->second;
}

void Network::deliver_connect(Packet& packet) {
    Listener* const listener = find_listener(packet.text);
    const Status taken = listener
                             ? listener->enqueue(packet)
                             : fail(Code::unavailable, "nothing listens at sim://" + packet.text);
    if (!taken.ok()) refuse(packet, taken);
}

void Network::refuse(const Packet& packet, const Status& why) {
    Packet answer;
    answer.kind = Kind::down;
    answer.code = why.code();
    answer.to = packet.from;
    answer.to_peer = packet.from_peer;
    answer.from_host = packet.to_host;
    answer.to_host = packet.from_host;
    answer.text = why.text();
    transmit(std::move(answer));
}

Result<NodeId> Network::join(Node& node, HostId host) {
    auto* entry = nodes_.take();
    if (!entry) return fail(Code::resource_exhausted, "the simulated world is full");
    entry->value = &node;
    links_.set_reachable(host);
    return entry->id();
}

Status Network::add(Listener& listener) {
    const std::string& name = listener.name();
    if (!listeners_.try_emplace(name, &listener).second)
        return fail(Code::already_exists, "sim://" + name + " is taken by a live endpoint");
    hosts_[name] = listener.host();
    return {};
}

HostId Network::host_of(std::string_view name) {
    const auto found = hosts_.find(name);
    return found == hosts_.end() ? links_.host(name) : found->second;
}

void Network::leave(NodeId node) {
    if (auto* entry = nodes_.find(node)) nodes_.release(*entry);
}

Node* Network::find(NodeId node) {
    auto* entry = nodes_.find(node);
    return entry ? entry->value : nullptr;
}

Listener* Network::find_listener(std::string_view name) {
    const auto found = listeners_.find(name);
    return found == listeners_.end() ? nullptr : found->second;
}

bool Network::stop_host(HostId host, bool notify_peers) {
    std::vector<Node*> on;
    nodes_.for_each([&](auto& entry) {
        if (entry.value->host() == host) on.push_back(entry.value);
    });
    if (!notify_peers && !on.empty()) links_.set_unreachable(host);
    for (Node* node : on) node->end_process(notify_peers);
    return !on.empty();
}

bool Network::is_queued(std::string_view name, NodeId from, HostId from_host, PeerId peer) {
    const Listener* const listener = find_listener(name);
    return listener && listener->has_queued(from, peer) &&
           !links_.is_cut(from_host, listener->host()) &&
           !links_.is_cut(listener->host(), from_host);
}

std::vector<Node*> Network::find_by_name(std::string_view name) {
    if (const Listener* const listener = find_listener(name)) return listener->nodes();
    std::vector<Node*> called;
    const std::string uri = "sim://" + std::string(name);
    nodes_.for_each([&](auto& entry) {
        if (called.empty() && entry.value->public_uri() == uri) called.push_back(entry.value);
    });
    return called;
}

}  // namespace weft::na::sim
