#include "na/sim/network.h"

#include <algorithm>

#include "base/codec.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

Network::Network(base::Random& random, WorldOptions options, TimePoint start)
    : options_(options), now_(start), delays_(random.next()), coins_(random.next()) {
    // A message that fits no link would be refused for ever.
    options_.link_bytes_max = std::max(options_.link_bytes_max, options_.message_bytes_max);
    options_.link_messages_max = std::max(options_.link_messages_max, 1u);
}

TimePoint Network::arrival() {
    Duration delay = options_.latency;
    if (options_.jitter > Duration::zero()) {
        const auto span = static_cast<std::uint64_t>(options_.jitter.count()) + 1;
        delay += Duration(static_cast<std::int64_t>(delays_.next() % span));
    }
    return saturating_add(now_, delay);
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
    auto mix = [this](std::uint64_t value) {
        trace_hash_ = (trace_hash_ ^ value) * 0x9e3779b97f4a7c15;
        trace_hash_ ^= trace_hash_ >> 32;
    };
    ++events_;
    mix(static_cast<std::uint64_t>(at.time_since_epoch().count()));
    mix(static_cast<std::uint64_t>(cargo.kind) << 8 | static_cast<std::uint64_t>(cargo.code));
    mix(std::uint64_t{cargo.from.slot} << 32 | cargo.to.slot);
    mix(std::uint64_t{cargo.to_peer.index} << 32 | cargo.to_peer.generation);
    mix(cargo.parcel.size);
    // The head of a message: enough to see two runs part, without reading every payload.
    base::Reader head(cargo.parcel.view().first(std::min<std::size_t>(cargo.parcel.size, 64)));
    while (head.left() >= 8) mix(head.take<std::uint64_t>());
}

void Network::deliver(Cargo& cargo) {
    if (cargo.kind == Kind::connect) return deliver_connect(cargo);
    SimEndpoint* to = find(cargo.to);
    if (!to) {
        // Who connected is gone; who accepted has to learn it.
        if (cargo.kind == Kind::accept) refuse(cargo, fail(Code::unavailable, "the peer is gone"));
        return;
    }
    switch (cargo.kind) {
        case Kind::connect: break;
        case Kind::accept: to->on_accept(cargo); break;
        case Kind::message: to->on_message(cargo); break;
        case Kind::down: to->on_down(cargo); break;
        case Kind::writable: to->on_writable(cargo); break;
        case Kind::rma_request: to->on_rma_request(cargo); break;
        case Kind::rma_piece: to->on_rma_piece(cargo); break;
        case Kind::rma_answer: to->on_rma_answer(cargo); break;
    }
}

void Network::deliver_connect(Cargo& cargo) {
    SimEndpoint* listener = find_listening(cargo.text);
    const Status taken = listener
                             ? listener->on_connect(cargo)
                             : fail(Code::unavailable, "nobody listens at sim://" + cargo.text);
    if (!taken.ok()) refuse(cargo, taken);
}

void Network::refuse(const Cargo& cargo, const Status& why) {
    Cargo answer;
    answer.kind = Kind::down;
    answer.code = why.code();
    answer.to = cargo.from;
    answer.to_peer = cargo.from_peer;
    answer.text = why.text();
    send(arrival(), std::move(answer));
}

Result<NodeId> Network::join(SimEndpoint& endpoint, const std::string& name) {
    if (!name.empty() && names_.contains(name)) {
        return fail(Code::already_exists, "sim://" + name + " is taken by a live endpoint");
    }
    auto* entry = nodes_.take();
    if (!entry) return fail(Code::resource_exhausted, "the simulated world is full");
    entry->value = &endpoint;
    if (!name.empty()) names_[name] = entry->id();
    return entry->id();
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

SimEndpoint* Network::find_called(std::string_view name) {
    SimEndpoint* called = find_listening(name);
    const std::string uri = "sim://" + std::string(name);
    nodes_.for_each([&](auto& entry) {
        if (!called && entry.value->public_uri() == uri) called = entry.value;
    });
    return called;
}

}  // namespace weft::na::sim
