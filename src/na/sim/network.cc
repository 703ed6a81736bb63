#include "na/sim/network.h"

#include <algorithm>
#include <cstring>

#include "base/codec.h"
#include "base/mutant.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

Network::Network(base::Random& random, WorldOptions options, TimePoint start)
    : options_(options),
      now_(start),
      links_(options.link, random.next()),
      coins_(random.next()),
      refusals_(random.next()),
      scarcity_seed_(random.next()),
      poison_(random.next()) {
    // A message that fits no link would be refused for ever.
    options_.link_bytes_max = std::max(options_.link_bytes_max, options_.message_bytes_max);
    options_.link_messages_max = std::max(options_.link_messages_max, 1u);
}

constinit thread_local Scarcity* Scarcity::current_ = nullptr;

Scarcity& Network::scarcity(HostId host) {
    // Of chances that differ in their seed by little nothing is alike.
    return scarcities_.try_emplace(host, scarcity_seed_ + host).first->second;
}

void Network::transmit(Cargo cargo) {
    cargo.since = now_;
    attempt(std::move(cargo));
}

void Network::attempt(Cargo cargo) {
    const Links::Passage passage =
        links_.pass(cargo.from_host, cargo.to_host, cargo.parcel.size, now_);
    if (passage.is_lost) return resend(std::move(cargo));
    cargo.fate = passage.is_damaged ? Fate::arrives_damaged : Fate::arrives;
    // Of the side that connected: the other one has said hello before.
    const bool is_first = cargo.kind == Kind::message && cargo.sequence == 1;
    if (is_first && links_.hangs_up(cargo.from_host, cargo.to_host)) cargo.fate = Fate::hangs_up;
    const TimePoint at = saturating_add(now_, passage.takes);
    if (passage.is_repeated && cargo.sequence != 0) {
        Cargo again;
        again.kind = Kind::repeated;
        again.from = cargo.from;
        again.to = cargo.to;
        again.to_peer = cargo.to_peer;
        again.sequence = cargo.sequence;
        again.lane = cargo.lane;
        again.from_host = cargo.from_host;
        again.to_host = cargo.to_host;
        if (base::is_mutated(base::Mutant::repeat_accepted) && cargo.kind == Kind::message) {
            again.kind = Kind::message;
            again.from_peer = cargo.from_peer;
            again.sequence = 0;
            again.parcel = Parcel::make(cargo.parcel.size);
            std::memcpy(again.parcel.bytes.get(), cargo.parcel.bytes.get(), cargo.parcel.size);
        }
        send(saturating_add(at, passage.takes), std::move(again));
    }
    send(at, std::move(cargo));
}

// It is tried again, later each time.
void Network::resend(Cargo cargo) {
    const weft::sim::Link& link = links_.of(cargo.from_host, cargo.to_host);
    Duration wait = link.resend_after * (1 << std::min<int>(cargo.attempts, 16));
    wait = std::clamp(wait, Duration(1us), std::max(link.resend_after_max, Duration(1us)));
    ++cargo.attempts;
    ++faults_.resent;
    cargo.fate = Fate::is_resent;
    send(saturating_add(now_, wait), std::move(cargo));
}

void Network::give_up(const Cargo& cargo) {
    SimEndpoint* sender = find(cargo.from);
    if (!sender) return;
    ++faults_.given_up;
    sender->end_link(cargo.from_peer, Code::unavailable, "the peer's host does not answer");
}

void Network::reset(const Cargo& cargo, std::string_view why) {
    Cargo answer;
    answer.kind = Kind::down;
    answer.code = Code::unavailable;
    answer.to = cargo.from;
    answer.to_peer = cargo.from_peer;
    answer.from_host = cargo.to_host;
    answer.to_host = cargo.from_host;
    answer.text = why;
    transmit(std::move(answer));
}

void Network::send(TimePoint at, Cargo cargo) {
    std::uint32_t index = 0;
    if (cargo_free_.empty()) {
        index = static_cast<std::uint32_t>(cargo_.size());
        cargo_.push_back(std::move(cargo));
    } else {
        index = cargo_free_.back();
        cargo_free_.pop_back();
        cargo_[index] = std::move(cargo);
    }
    heap_.push_back({at, sequence_++, index});
    std::push_heap(heap_.begin(), heap_.end());
}

void Network::advance(TimePoint now) {
    while (!heap_.empty() && heap_.front().at <= now) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Key key = heap_.back();
        heap_.pop_back();
        Cargo cargo = std::move(cargo_[key.index]);
        cargo_free_.push_back(key.index);
        now_ = std::max(now_, key.at);
        record(key.at, cargo);
        deliver(cargo);
    }
    now_ = std::max(now_, now);
}

void Network::record(TimePoint at, const Cargo& cargo) {
    ++events_;
    if (!is_local(cargo.kind)) flight_.note(at, cargo);
    trace_.mix(static_cast<std::uint64_t>(at.time_since_epoch().count()));
    trace_.mix(static_cast<std::uint64_t>(cargo.kind) << 8 |
               static_cast<std::uint64_t>(cargo.code));
    trace_.mix(std::uint64_t{cargo.from.slot} << 32 | cargo.to.slot);
    trace_.mix(std::uint64_t{cargo.to_peer.index} << 32 | cargo.to_peer.generation);
    trace_.mix(cargo.parcel.size);
    // The head of a message: enough to see two runs part, without reading every payload.
    base::Reader head(cargo.parcel.view().first(std::min<std::size_t>(cargo.parcel.size, 64)));
    while (head.left() >= 8) trace_.mix(head.take<std::uint64_t>());
}

void Network::deliver(Cargo& cargo) {
    if (!is_local(cargo.kind) &&
        (cargo.fate == Fate::is_resent || links_.is_cut(cargo.from_host, cargo.to_host))) {
        if (cargo.kind == Kind::repeated || links_.is_dark(cargo.from_host)) return;
        const weft::sim::Link& link = links_.of(cargo.from_host, cargo.to_host);
        if (now_ - cargo.since >= link.give_up_after) return give_up(cargo);
        return cargo.fate == Fate::is_resent ? attempt(std::move(cargo)) : resend(std::move(cargo));
    }
    if (cargo.kind == Kind::connect) {
        if (cargo.fate == Fate::arrives_damaged) return resend(std::move(cargo));
        return deliver_connect(cargo);
    }
    SimEndpoint* to = find(cargo.to);
    if (!to) {
        // Who talks is told; a last word is lost.
        const bool is_last = is_local(cargo.kind) || cargo.kind == Kind::down ||
                             cargo.kind == Kind::repeated || cargo.kind == Kind::rma_answer;
        if (!is_last) reset(cargo, "the peer is gone");
        return;
    }
    if (cargo.fate == Fate::hangs_up) {
        ++faults_.hung_up;
        return to->on_lost(cargo, Code::unavailable, "the connection was reset");
    }
    if (cargo.fate == Fate::arrives_damaged) {
        ++faults_.damaged;
        if (base::is_mutated(base::Mutant::damage_unseen) && cargo.kind == Kind::message) {
            cargo.parcel.bytes[cargo.parcel.size - 1] ^= std::byte{1};
            return to->arrange(cargo);
        }
        return to->on_lost(cargo, Code::data_loss, "a packet was damaged on the way");
    }
    if (cargo.sequence != 0) return to->arrange(cargo);
    hand_over(*to, cargo);
}

void Network::hand_over(SimEndpoint& endpoint, Cargo& cargo) {
    SimEndpoint* to = &endpoint;
    if (!is_local(cargo.kind)) heard_[{cargo.to_host, cargo.from_host}] = now_;
    switch (cargo.kind) {
        case Kind::connect:
        case Kind::repeated: break;
        case Kind::no_answer: to->on_no_answer(cargo); break;
        case Kind::accept: to->on_accept(cargo); break;
        case Kind::message: to->on_message(cargo); break;
        case Kind::down: to->on_down(cargo); break;
        case Kind::writable: to->on_writable(cargo); break;
        case Kind::rma_put: to->on_rma_put(cargo); break;
        case Kind::rma_request: to->on_rma_request(cargo); break;
        case Kind::rma_data: to->on_rma_data(cargo); break;
        case Kind::rma_answer: to->on_rma_answer(cargo); break;
        case Kind::rma_next: to->on_rma_next(cargo); break;
        case Kind::rma_more: to->on_rma_more(cargo); break;
        case Kind::fence_over: to->on_fence_over(cargo); break;
    }
}

TimePoint Network::last_heard(HostId by, HostId from) const {
    const auto found = heard_.find({by, from});
    return found == heard_.end() ? TimePoint::min() : found->second;
}

void Network::deliver_connect(Cargo& cargo) {
    SimEndpoint* listener = find_listening(cargo.text);
    const Status taken = listener
                             ? listener->on_connect(cargo)
                             : fail(Code::unavailable, "nothing listens at sim://" + cargo.text);
    if (!taken.ok()) refuse(cargo, taken);
}

void Network::refuse(const Cargo& cargo, const Status& why) {
    Cargo answer;
    answer.kind = Kind::down;
    answer.code = why.code();
    answer.to = cargo.from;
    answer.to_peer = cargo.from_peer;
    answer.from_host = cargo.to_host;
    answer.to_host = cargo.from_host;
    answer.text = why.text();
    transmit(std::move(answer));
}

Result<NodeId> Network::join(SimEndpoint& endpoint, const std::string& name, HostId host) {
    if (!name.empty() && names_.contains(name)) {
        return fail(Code::already_exists, "sim://" + name + " is taken by a live endpoint");
    }
    auto* entry = nodes_.take();
    if (!entry) return fail(Code::resource_exhausted, "the simulated world is full");
    entry->value = &endpoint;
    if (!name.empty()) {
        names_[name] = entry->id();
        hosts_[name] = host;
    }
    links_.lighten(host);
    return entry->id();
}

HostId Network::host_of(std::string_view name) {
    const auto found = hosts_.find(name);
    return found == hosts_.end() ? links_.host(name) : found->second;
}

void Network::leave(NodeId node, const std::string& name) {
    auto* entry = nodes_.find(node);
    if (!entry) return;
    if (!name.empty()) names_.erase(name);
    nodes_.give_back(*entry);
}

SimEndpoint* Network::find(NodeId node) {
    auto* entry = nodes_.find(node);
    return entry ? entry->value : nullptr;
}

SimEndpoint* Network::find_listening(std::string_view name) {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : find(found->second);
}

bool Network::stop_host(HostId host, bool tells) {
    std::vector<SimEndpoint*> on;
    nodes_.for_each([&](auto& entry) {
        if (entry.value->host() == host) on.push_back(entry.value);
    });
    if (!tells && !on.empty()) links_.darken(host);
    for (SimEndpoint* endpoint : on) endpoint->die(tells);
    return !on.empty();
}

bool Network::is_queued(std::string_view name, const SimEndpoint& from, PeerId peer) {
    const SimEndpoint* listener = find_listening(name);
    return listener && listener->has_queued(from.node(), peer) &&
           !links_.is_cut(from.host(), listener->host()) &&
           !links_.is_cut(listener->host(), from.host());
}

SimEndpoint* Network::find_called(std::string_view name) {
    SimEndpoint* called = find_listening(name);
    const std::string uri = "sim://" + std::string(name);
    nodes_.for_each([&](auto& entry) {
        if (!called && entry.value->public_uri() == uri) called = entry.value;
    });
    return called;
}

}  // namespace weft::na::sim
