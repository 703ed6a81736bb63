#include "na/sim/endpoint.h"

#include <algorithm>
#include <cstring>

#include "base/mutant.h"
#include "na/hello.h"

namespace weft::na::sim {

static constexpr std::uint32_t rma_depth = 128;
static constexpr std::uint32_t rma_share = 32;
static constexpr std::size_t rma_bytes_max = 1 << 20;

static std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

static void fill(Parcel& parcel, std::uint64_t word) {
    for (std::size_t at = 0; at < parcel.size; at += sizeof word) {
        std::memcpy(parcel.bytes.get() + at, &word, std::min(sizeof word, parcel.size - at));
    }
}

static std::uint64_t count(const Parcel& parcel, std::uint64_t word) {
    std::uint64_t found = 0;
    for (std::size_t at = 0; at + sizeof word <= parcel.size; at += sizeof word) {
        found += std::memcmp(parcel.bytes.get() + at, &word, sizeof word) == 0;
    }
    return found;
}

SimEndpoint::SimEndpoint(std::shared_ptr<World> world, std::string name, std::string_view host,
                         const EndpointParts& parts)
    : arena_(parts.arena),
      world_(std::move(world)),
      network_(world_->network()),
      host_name_(host),
      name_(std::move(name)),
      public_uri_(parts.public_uri),
      incarnation_(parts.incarnation),
      transfers_(rma_depth) {
    limits_.message_bytes_max = network_.options().message_bytes_max;
    limits_.eager_bytes_max = network_.options().eager_bytes_max;
    limits_.rma_bytes_max = rma_bytes_max;
    limits_.rma_depth = rma_depth;
    limits_.rma_share = rma_share;
    limits_.peers_max = static_cast<std::uint32_t>(parts.peers_max);
    if (public_uri_.empty()) public_uri_ = address();
}

SimEndpoint::~SimEndpoint() {
    flush();
    leave("the peer closed its endpoint", true);
}

Status SimEndpoint::join() {
    if (!host_name_.empty()) {
        host_ = network_.links().host(host_name_);
    } else if (!name_.empty()) {
        host_ = network_.links().host(name_);
    } else {
        host_ = network_.links().own_host();
    }
    scarcity_ = &network_.scarcity(host_);
    Result<NodeId> node = network_.join(*this, name_, host_);
    if (!node) return node.status();
    node_ = *node;
    return {};
}

void SimEndpoint::die(bool tells) { leave("the peer died", tells); }

void SimEndpoint::leave(std::string_view why, bool tells) {
    if (!node_) return;
    for (std::uint32_t index = 0; index < links_.size(); ++index) {
        if (!links_[index].link) continue;
        const PeerId peer{index, links_[index].generation};
        if (tells) send_down(peer, *links_[index].link, why);
        finish_all(peer, Code::cancelled, why);
        remove_link(peer);
    }
    while (!own_.empty()) {
        const Arrived one = own_.pop();
        if (one.connect && tells)
            network_.refuse(*one.connect, fail(Code::unavailable, std::string(why)));
    }
    network_.leave(node_, name_);
    node_ = {};
    name_.clear();
    connects_queued_ = 0;
    ready_.clear();
    regions_.clear();
}

Caps SimEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.rma_survives = true;
    caps.rma_checked = network_.options().rma_checked;
    caps.reports_peer_death = true;
    caps.fences_region = network_.options().fences_region;
    caps.fenced_by_end = true;
    caps.sent_survives = true;
    caps.virtual_time = true;
    return caps;
}

// Links.

SimEndpoint::Link* SimEndpoint::find(PeerId peer) const {
    if (peer.index >= links_.size() || links_[peer.index].generation != peer.generation) {
        return nullptr;
    }
    return links_[peer.index].link.get();
}

PeerId SimEndpoint::add_link(std::unique_ptr<Link> link) {
    std::uint32_t index = 0;
    if (links_free_.empty()) {
        index = static_cast<std::uint32_t>(links_.size());
        links_.emplace_back();
    } else {
        index = links_free_.back();
        links_free_.pop_back();
    }
    links_[index].link = std::move(link);
    return {index, links_[index].generation};
}

void SimEndpoint::remove_link(PeerId peer) {
    LinkSlot& slot = links_[peer.index];
    drop_admissions(*slot.link);
    slot.link.reset();
    if (++slot.generation == 0) slot.generation = 1;
    links_free_.push_back(peer.index);
}

Cargo SimEndpoint::cargo_for(Kind kind, PeerId peer, const Link& link) const {
    Cargo cargo;
    cargo.kind = kind;
    cargo.from = node_;
    cargo.from_peer = peer;
    cargo.to = link.node;
    cargo.to_peer = link.remote;
    cargo.from_host = host_;
    cargo.to_host = link.host;
    return cargo;
}

Parcel SimEndpoint::hello() const {
    Hello hello;
    hello.incarnation = incarnation_;
    hello.message_bytes_max = static_cast<std::uint32_t>(limits_.message_bytes_max);
    hello.eager_bytes_max = static_cast<std::uint32_t>(limits_.eager_bytes_max);
    hello.uri = public_uri_;
    Parcel parcel = Parcel::make(hello_bytes_max);
    parcel.size = encode(hello, {parcel.bytes.get(), parcel.room});
    return parcel;
}

Status SimEndpoint::take_hello(Link& link, const Parcel& parcel) {
    Result<Hello> hello = decode_hello(parcel.view());
    if (!hello) return hello.status();
    if (link.info.uri.empty()) link.info.uri = hello->uri;
    na::take_hello(link.info, *hello, limits_);
    link.state = LinkState::up;
    link.established = true;
    return {};
}

Result<PeerId> SimEndpoint::connect(const Address& to, TimePoint now) {
    if (to.scheme != "sim" || to.name.empty()) {
        return fail(Code::invalid_argument, "sim cannot connect to " + to.uri());
    }
    if (!node_) return fail(Code::unavailable, "this simulated endpoint is dead");
    network_.advance(now);
    if (scarcity_->strikes()) {
        return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": no memory");
    }
    if (links_.size() - links_free_.size() >= limits_.peers_max) {
        return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": all " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers of this endpoint are in use");
    }
    auto link = std::make_unique<Link>();
    link->info.uri = to.uri();
    const PeerId peer = add_link(std::move(link));
    send_connect(peer, Duration::zero());
    if (network_.options().connect_timeout > Duration::zero()) await_answer(peer);
    return peer;
}

void SimEndpoint::send_connect(PeerId peer, Duration pause) {
    const std::string_view name = sought_by(*find(peer));
    Cargo cargo;
    cargo.kind = Kind::connect;
    cargo.from = node_;
    cargo.from_peer = peer;
    cargo.from_host = host_;
    cargo.to_host = network_.host_of(name);
    cargo.text = name;
    cargo.parcel = hello();
    if (pause == Duration::zero()) return network_.transmit(std::move(cargo));
    cargo.since = network_.now();
    const Duration way = network_.options().link.latency;
    network_.send(saturating_add(network_.now(), pause + way), std::move(cargo));
}

void SimEndpoint::await_answer(PeerId peer) {
    Cargo over;
    over.kind = Kind::no_answer;
    over.to = node_;
    over.to_peer = peer;
    network_.send(saturating_add(network_.now(), network_.options().connect_timeout),
                  std::move(over));
}

// The name that a link of ours connects to.
std::string_view SimEndpoint::sought_by(const Link& link) const {
    return std::string_view(link.info.uri).substr(std::string_view("sim://").size());
}

const PeerInfo* SimEndpoint::info(PeerId peer) const {
    const Link* link = find(peer);
    return link && link->established ? &link->info : nullptr;
}

void SimEndpoint::close(PeerId peer) {
    Link* link = find(peer);
    if (!link) return;
    if (link->pending) send_pending(peer, *link);
    send_down(peer, *link, "the peer closed the connection");
    finish_all(peer, Code::cancelled, "this side closed the connection");
    remove_link(peer);
}

void SimEndpoint::send_ordered(Link& link, Cargo cargo, Lane lane) {
    cargo.lane = lane;
    cargo.sequence = ++link.orders[static_cast<std::size_t>(lane)].out;
    network_.transmit(std::move(cargo));
}

void SimEndpoint::send_down(PeerId peer, Link& link, std::string_view why) {
    // Still connecting: the accept finds nobody here and is answered then.
    if (link.state != LinkState::up) return;
    Cargo cargo = cargo_for(Kind::down, peer, link);
    cargo.code = Code::unavailable;
    cargo.text = why;
    send_ordered(link, std::move(cargo));
}

// Messages.

bool SimEndpoint::has_room(const Link& link, std::size_t bytes) const {
    const std::size_t waiting = link.bytes_queued + (link.pending ? padded(link.pending.size) : 0);
    const std::size_t messages =
        link.messages_under_way + link.queue.size() + (link.pending ? 1 : 0);
    return link.bytes_under_way + waiting + bytes <= network_.options().link_bytes_max &&
           messages < network_.options().link_messages_max;
}

std::byte* SimEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claim_);
    Link* link = find(peer);
    if (!link || link->state != LinkState::up || bytes > link->info.message_bytes_max) {
        return nullptr;
    }
    if (link->is_refusing) return nullptr;
    const bool is_scarce = scarcity_->strikes();
    if (is_scarce || network_.refuses()) {
        network_.faults().refused += is_scarce ? 0 : 1;
        link->is_refusing = true;
        const Duration moment = (is_scarce ? 50us : 1us) * (1u << std::min(link->refusals++, 10u));
        tell_of_room(peer, moment);
        return nullptr;
    }
    link->refusals = 0;
    if (!has_room(*link, bytes)) {
        link->bytes_wanted = std::max<std::size_t>(bytes, 1);
        wait_for_room(*link);
        return nullptr;
    }
    claim_peer_ = peer;
    claim_ = Parcel::make(bytes);
    fill(claim_, network_.poison());
    return claim_.bytes.get();
}

void SimEndpoint::tell_of_room(PeerId peer, Duration later) {
    Cargo cargo;
    cargo.kind = Kind::writable;
    cargo.to = node_;
    cargo.to_peer = peer;
    network_.send(saturating_add(network_.now(), later), std::move(cargo));
}

bool SimEndpoint::commit(std::size_t bytes) noexcept {
    WEFT_DCHECK(claim_ && bytes <= claim_.room);
    Parcel message = std::exchange(claim_, {});
    Link* link = find(claim_peer_);
    if (bytes == 0 || !link || link->state != LinkState::up) return false;
    message.size = bytes;
    network_.count_unwritten(count(message, network_.poison()));
    const bool joins = turn_began_ && network_.options().joins_commits;
    if (link->pending && padded(link->pending.size) + bytes <= link->info.message_bytes_max) {
        append(link->pending, message.view());
        return true;
    }
    if (link->pending) send_pending(claim_peer_, *link);
    link->pending = std::move(message);
    if (joins) {
        pending_.push_back(claim_peer_);
    } else {
        send_pending(claim_peer_, *link);
        turn_began_ = true;
    }
    return true;
}

void SimEndpoint::append(Parcel& pending, ByteView message) {
    const std::size_t start = padded(pending.size);
    const std::size_t end = start + message.size();
    if (end > pending.room) {
        Parcel larger = Parcel::make(2 * end);
        std::memcpy(larger.bytes.get(), pending.bytes.get(), pending.size);
        larger.size = pending.size;
        pending = std::move(larger);
    }
    std::memset(pending.bytes.get() + pending.size, 0, start - pending.size);
    std::memcpy(pending.bytes.get() + start, message.data(), message.size());
    pending.size = end;
}

void SimEndpoint::send_pending(PeerId peer, Link& link) {
    Parcel parcel = std::exchange(link.pending, {});
    if (link.queue.empty() && fits_socket(link, parcel.size)) {
        return send_message(peer, link, std::move(parcel));
    }
    link.bytes_queued += parcel.size;
    link.queue.push(std::move(parcel));
    wait_for_room(link);
}

// It polls again, and gives back the room of what it has read.
void SimEndpoint::wait_for_room(const Link& link) {
    SimEndpoint* const other = network_.find(link.node);
    if (other && !other->delivered_.empty()) other->is_waited_for_ = true;
}

bool SimEndpoint::waits_for_room(PeerId peer) const {
    const Link* const link = find(peer);
    return link && (!link->queue.empty() || link->bytes_wanted != 0);
}

bool SimEndpoint::fits_socket(const Link& link, std::size_t bytes) const {
    return link.bytes_under_way == 0 ||
           link.bytes_under_way + bytes <= network_.options().socket_bytes_max;
}

void SimEndpoint::send_queued(PeerId peer, Link& link) {
    while (!link.queue.empty() && fits_socket(link, link.queue.front().size)) {
        Parcel parcel = link.queue.pop();
        link.bytes_queued -= parcel.size;
        send_message(peer, link, std::move(parcel));
    }
}

void SimEndpoint::send_message(PeerId peer, Link& link, Parcel parcel) {
    Cargo cargo = cargo_for(Kind::message, peer, link);
    cargo.parcel = std::move(parcel);
    link.bytes_under_way += cargo.parcel.size;
    ++link.messages_under_way;
    send_ordered(link, std::move(cargo));
}

void SimEndpoint::flush() noexcept {
    for (const PeerId peer : pending_) {
        Link* link = find(peer);
        if (link && link->pending) send_pending(peer, *link);
    }
    pending_.clear();
    turn_began_ = false;
}

// What the hosts hold arrives though its sender has ended; like a kernel's, it is known to have
// arrived with its acknowledgement. What the other end was given has.
std::size_t SimEndpoint::unsent(PeerId peer) const {
    if (base::is_mutated(base::Mutant::unsent_forgotten)) return 0;
    const Link* const link = find(peer);
    if (!link || link->state != LinkState::up) return 0;
    std::size_t given = 0;
    if (const SimEndpoint* const other = network_.find(link->node)) {
        for (const Delivered& one : other->delivered_) {
            if (one.peer == link->remote) given += one.parcel.size;
        }
    }
    return link->bytes_queued + link->pending.size + link->bytes_under_way - given;
}

// The network loses nothing of a connection that has not failed, and a close goes behind it.
bool SimEndpoint::has_left(PeerId peer) const {
    const Link* const link = find(peer);
    return !link || link->state != LinkState::up || (link->bytes_queued == 0 && !link->pending);
}

// Our `bytes` to this peer were read over there.
void SimEndpoint::give_back_room(PeerId peer, std::size_t bytes) {
    Link* link = find(peer);
    if (!link) return;
    link->bytes_under_way -= bytes;
    --link->messages_under_way;
    if (link->state == LinkState::up) send_queued(peer, *link);
    if (link->bytes_wanted == 0 || !has_room(*link, link->bytes_wanted)) return;
    link->bytes_wanted = 0;
    tell_of_room(peer, network_.options().link.latency);
}

void SimEndpoint::free_delivered() {
    for (const Delivered& message : delivered_) {
        const Link* link = find(message.peer);
        SimEndpoint* sender = link ? network_.find(link->node) : nullptr;
        if (sender) sender->give_back_room(link->remote, message.parcel.size);
    }
    delivered_.clear();
}

// Events.

std::size_t SimEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    free_delivered();
    is_waited_for_ = false;
    if (!node_) return 0;
    network_.advance(now);
    has_words_ = false;
    std::size_t count = poll_own(events);
    std::size_t bytes_left = network_.options().poll_bytes_max;
    // error() speaks of one event: nothing after it in this poll.
    while (count < events.size() && bytes_left > 0 && !has_words_ && !ready_.empty()) {
        const PeerId peer = next_ready();
        count += poll_peer(peer, events.subspan(count), bytes_left);
        const Link* link = find(peer);
        if (link && !link->inbox.empty()) ready_.push(peer);
    }
    is_waited_for_ = std::any_of(delivered_.begin(), delivered_.end(), [&](const Delivered& one) {
        const Link* const link = find(one.peer);
        const SimEndpoint* const sender = link ? network_.find(link->node) : nullptr;
        return sender && sender->waits_for_room(link->remote);
    });
    return count;
}

PeerId SimEndpoint::next_ready() {
    if (!base::is_mutated(base::Mutant::rotation_forgotten)) return ready_.pop();
    return ready_.pop_least([](PeerId a, PeerId b) { return a.index < b.index; });
}

std::size_t SimEndpoint::poll_own(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !has_words_ && !own_.empty()) {
        Arrived arrived = own_.pop();
        if (arrived.connect) {
            --connects_queued_;
            const Status taken = take_connect(*arrived.connect, events[count]);
            taken.ok() ? void(++count) : network_.refuse(*arrived.connect, taken);
        } else {
            hand_out(arrived, events[count++]);
        }
    }
    return count;
}

// Of one peer its share, and one message at least.
std::size_t SimEndpoint::poll_peer(PeerId peer, std::span<Event> events, std::size_t& bytes_left) {
    const bool is_mutated = base::is_mutated(base::Mutant::rotation_forgotten);
    std::size_t share = is_mutated ? bytes_left : network_.options().poll_share;
    std::size_t count = 0;
    while (count < events.size() && !has_words_ && share > 0 && bytes_left > 0) {
        Link* link = find(peer);
        if (!link || link->inbox.empty()) break;
        Arrived arrived = link->inbox.pop();
        const std::size_t bytes = arrived.parcel.size;
        share -= std::min(bytes, share);
        bytes_left -= std::min(bytes, bytes_left);
        hand_out(arrived, events[count++]);
    }
    return count;
}

void SimEndpoint::hand_out(Arrived& arrived, Event& event) {
    event = arrived.event;
    has_words_ = !arrived.text.empty();
    if (has_words_) error_ = std::move(arrived.text);
    if (event.kind == EventKind::peer_down) remove_link(event.peer);
    if (event.kind != EventKind::message) return;
    event.bytes = arrived.parcel.view();
    delivered_.push_back({event.peer, std::move(arrived.parcel)});
}

}  // namespace weft::na::sim
