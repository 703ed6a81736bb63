#include "support/na_rig.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/codec.h"
#include "na/address.h"

namespace weft::test {

using namespace weft::na;

static constexpr std::size_t frame_head_bytes = 8;

static std::byte body_byte(std::uint64_t sequence, std::size_t at) {
    const std::uint64_t mixed = (sequence * 0x9e3779b97f4a7c15) ^ (at * 0xbf58476d1ce4e5b9);
    return static_cast<std::byte>(mixed >> 56);
}

void fill_frame(Bytes to, std::uint64_t sequence) {
    REQUIRE(to.size() >= frame_head_bytes);
    base::Writer out(to);
    out.put(std::uint8_t{7});
    out.put(static_cast<std::uint8_t>(sequence >> 16));
    out.put(static_cast<std::uint16_t>(sequence));
    out.put(static_cast<std::uint32_t>(to.size()));
    for (std::size_t at = frame_head_bytes; at < to.size(); ++at) to[at] = body_byte(sequence, at);
}

bool is_frame(ByteView bytes, std::uint64_t sequence) {
    base::Reader in(bytes);
    if (in.take<std::uint8_t>() != 7) return false;
    if (in.take<std::uint8_t>() != static_cast<std::uint8_t>(sequence >> 16)) return false;
    if (in.take<std::uint16_t>() != static_cast<std::uint16_t>(sequence)) return false;
    if (in.take<std::uint32_t>() != bytes.size()) return false;
    for (std::size_t at = frame_head_bytes; at < bytes.size(); ++at) {
        if (bytes[at] != body_byte(sequence, at)) return false;
    }
    return true;
}

void fill_random(Bytes to, base::Random& random) {
    for (std::byte& byte : to) byte = static_cast<std::byte>(random.next());
}

// NaNode.

PeerRecord& NaNode::at(PeerId peer) {
    const auto found = peers_.find({peer.index, peer.generation});
    REQUIRE(found != peers_.end());
    return found->second;
}

// The index names no other peer with a peer_down still to come, or in the last poll's batch.
void NaNode::require_free(PeerId peer) const {
    REQUIRE(peer.index != index_down_);
    for (auto at = peers_.lower_bound({peer.index, 0});
         at != peers_.end() && at->first.first == peer.index; ++at) {
        const PeerState state = at->second.state;
        if (at->first.second == peer.generation) continue;
        REQUIRE((state == PeerState::down || state == PeerState::closed));
    }
}

PeerId NaNode::peer_of(const Incarnation& wanted) {
    for (const auto& [id, record] : peers_) {
        const PeerId peer{id.first, id.second};
        if (record.state != PeerState::up) continue;
        const PeerInfo* info = endpoint->info(peer);
        if (info && info->incarnation == wanted) return peer;
    }
    return {};
}

std::size_t NaNode::count(PeerState state) const {
    std::size_t count = 0;
    for (const auto& [id, record] : peers_) count += record.state == state ? 1 : 0;
    return count;
}

std::uint64_t NaNode::received() const {
    std::uint64_t frames = 0;
    for (const auto& [id, record] : peers_) frames += record.received;
    return frames;
}

bool NaNode::send(PeerId peer, std::size_t bytes) {
    std::byte* claim = endpoint->reserve(peer, bytes);
    if (!claim) {
        at(peer).writable = false;
        return false;
    }
    const std::uint64_t sequence = at(peer).sent++;
    if (sequence % 3 == 0) {
        fill_frame({claim, bytes}, sequence);
    } else {  // The end of a body while it is copied: after a head, or all of it.
        std::vector<std::byte> frame(bytes);
        fill_frame(frame, sequence);
        const std::size_t head =
            sequence % 3 == 1 ? 0 : std::min<std::size_t>(bytes, 8 + sequence % 90);
        std::copy_n(frame.begin(), head, claim);
        endpoint->copy_out(claim + head, ByteView(frame).subspan(head));
    }
    endpoint->commit(bytes);
    return true;
}

std::uint64_t NaNode::post(RmaItem item) {
    static std::uint64_t last_cookie = 0;
    item.cookie = ++last_cookie;
    const std::size_t accepted = endpoint->post({&item, 1});
    REQUIRE(accepted <= 1);
    if (accepted == 0) return 0;
    rma_under_way.insert(item.cookie);
    return item.cookie;
}

void NaNode::close(PeerId peer) {
    endpoint->close(peer);
    at(peer).state = PeerState::closed;
}

void NaNode::fence(std::uint32_t region, Holders holders) {
    endpoint->fence(region, holders);
    fencing.insert(region);
    fenced.erase(region);
}

std::size_t NaNode::poll(std::size_t batch) {
    std::vector<Event> events(batch);
    index_down_.reset();
    const std::size_t count = endpoint->poll(events, rig_->now());
    REQUIRE(count <= batch);
    for (std::size_t i = 0; i < count; ++i) judge(events[i]);
    return count;
}

void NaNode::judge(const Event& event) {
    const std::pair<std::uint32_t, std::uint32_t> id{event.peer.index, event.peer.generation};
    switch (event.kind) {
        case EventKind::peer_up: {
            require_free(event.peer);
            PeerRecord& record = peers_[id];
            REQUIRE(record.state == PeerState::connecting);
            if (event.incoming) {
                record.incoming = true;
            } else {
                REQUIRE_FALSE(record.incoming);
            }
            record.state = PeerState::up;
            record.is_over = endpoint->info(event.peer) == nullptr;
            break;
        }
        case EventKind::peer_down: {
            PeerRecord& record = at(event.peer);
            REQUIRE((record.state == PeerState::up || record.state == PeerState::connecting));
            record.state = PeerState::down;
            index_down_ = event.peer.index;
            downs.push_back({event.peer, event.code, endpoint->error()});
            break;
        }
        case EventKind::message: take_message(event.peer, event.bytes); break;
        case EventKind::writable:
            REQUIRE(at(event.peer).state == PeerState::up);
            at(event.peer).writable = true;
            break;
        case EventKind::rma_done:
            REQUIRE(rma_under_way.erase(event.cookie) == 1);
            rma_done[event.cookie] = event.code;
            break;
        case EventKind::region_fenced:
            REQUIRE(fencing.erase(event.region) == 1);
            fenced.insert(event.region);
            break;
    }
}

// Checks the frames that the provider merged into one message; each must be the next of its stream.
void NaNode::take_message(PeerId peer, ByteView bytes) {
    PeerRecord& record = at(peer);
    REQUIRE(record.state == PeerState::up);
    REQUIRE_FALSE(record.is_over);
    REQUIRE(bytes.size() >= frame_head_bytes);
    std::size_t start = 0;
    while (start < bytes.size()) {
        REQUIRE(bytes.size() - start >= frame_head_bytes);
        const auto size = base::load<std::uint32_t>(bytes.data() + start + 4);
        REQUIRE(size >= frame_head_bytes);
        REQUIRE(size <= bytes.size() - start);
        if (!is_frame(bytes.subspan(start, size), record.received)) {
            FAIL("not frame " << record.received << " of the stream: " << size << " bytes at "
                              << start << " of " << bytes.size());
        }
        ++record.received;
        start += (size + 7) & ~std::size_t{7};
    }
}

// Rig.

NaRig::NaRig(std::function<Wire(base::Random&)> make, std::uint64_t seed)
    : random(seed), wire(make(random)), arena_(Arena::make(256u << 20)) {}

NaRig::~NaRig() = default;

bool NaRig::usable() {
    const Diagnosis diagnosis = wire.provider->probe();
    if (!diagnosis.usable) note_capability(wire.scheme, "not usable here: " + diagnosis.detail);
    return diagnosis.usable;
}

// An address of a device of this machine, from TEST_RDMA_HOST.
static std::string rdma_host() {
    const char* host = std::getenv("TEST_RDMA_HOST");
    return host ? host : "127.0.0.1";
}

std::string NaRig::fresh_uri() {
    static int count = 0;
    if (wire.scheme.ends_with("tcp")) return wire.scheme + "://127.0.0.1:0";
    if (wire.scheme.ends_with("verbs")) return wire.scheme + "://" + rdma_host() + ":0";
    const std::string name = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    return wire.scheme + (wire.scheme == "unix" ? ":///tmp/weft-" : "://") + name;
}

Result<std::unique_ptr<Endpoint>> NaRig::try_open(const OpenOptions& options,
                                                  Incarnation incarnation) {
    Result<Address> address = parse_address(options.uri.empty() ? fresh_uri() : options.uri);
    REQUIRE(address);
    EndpointParts parts{random,
                        log_,
                        *arena_,
                        incarnation,
                        "",
                        options.peers_max,
                        options.sleeps,
                        options.verbs_without,
                        options.resolver};
    return wire.provider->open(options.listens ? &*address : nullptr, parts, now());
}

NaNode& NaRig::open(OpenOptions options) {
    auto node = std::make_unique<NaNode>();
    node->incarnation = {random.next(), random.next()};
    auto endpoint = try_open(options, node->incarnation);
    INFO(endpoint.status().to_string());
    REQUIRE(endpoint);
    node->endpoint = std::move(*endpoint);
    node->rig_ = this;
    if (!caps_) caps_ = node->endpoint->caps();
    nodes_.push_back(std::move(node));
    return *nodes_.back();
}

std::vector<NaNode*> NaRig::open_contexts(std::uint16_t contexts, OpenOptions options) {
    Result<Address> address = parse_address(options.uri.empty() ? fresh_uri() : options.uri);
    REQUIRE(address);
    const std::size_t first = nodes_.size();
    DoorParts door_parts;
    door_parts.contexts = contexts;
    door_parts.peers_max = static_cast<std::uint32_t>(options.peers_max);
    door_parts.post = [this, first](std::uint16_t context, Function<void()> work) {
        nodes_[first + context]->passed.push_back(std::move(work));
    };
    Result<std::shared_ptr<Door>> door =
        wire.provider->open_door(*address, std::move(door_parts), now());
    INFO(door.status().to_string());
    REQUIRE(door);
    REQUIRE(*door);
    const Incarnation incarnation{random.next(), random.next()};
    std::vector<NaNode*> opened;
    for (std::uint16_t i = 0; i < contexts; ++i) {
        EndpointParts parts{random, log_, *arena_, incarnation, "", options.peers_max};
        parts.contexts = contexts;
        parts.context = i;
        parts.door = *door;
        parts.exposures = options.exposures;
        Result<std::unique_ptr<Endpoint>> endpoint =
            wire.provider->open(nullptr, std::move(parts), now());
        INFO(endpoint.status().to_string());
        REQUIRE(endpoint);
        auto node = std::make_unique<NaNode>();
        node->incarnation = incarnation;
        node->endpoint = *std::move(endpoint);
        node->rig_ = this;
        if (!caps_) caps_ = node->endpoint->caps();
        nodes_.push_back(std::move(node));
        opened.push_back(nodes_.back().get());
    }
    if (options.closed) {
        *options.closed = *std::move(door);
    } else {
        (*door)->start();
    }
    return opened;
}

void NaRig::destroy(NaNode& node) { node.endpoint.reset(); }

PeerId NaRig::start_connect(NaNode& from, const std::string& uri, std::uint16_t wanted) {
    Result<PeerId> peer = try_connect(from, uri, wanted);
    INFO(peer.status().to_string());
    REQUIRE(peer);
    return *peer;
}

Result<PeerId> NaRig::try_connect(NaNode& from, const std::string& uri, std::uint16_t wanted) {
    Result<Address> address = parse_address(uri);
    REQUIRE(address);
    address->wanted = wanted;
    Result<PeerId> peer = from->connect(*address, now());
    if (!peer) return peer;
    REQUIRE(*peer);
    from.require_free(*peer);
    const auto added = from.peers_.emplace(std::pair{peer->index, peer->generation}, PeerRecord{});
    REQUIRE(added.second);  // An id is never used twice.
    return peer;
}

PeerId NaRig::connect(NaNode& from, NaNode& to) {
    const PeerId peer = start_connect(from, to->address());
    const bool both_up = pump_until(
        [&] { return from.at(peer).state == PeerState::up && to.peer_of(from.incarnation); });
    REQUIRE(both_up);
    return peer;
}

TimePoint NaRig::now() const { return wire.world ? manual_.now() : steady_.now() + skipped_; }

void NaRig::skip(Duration time) {
    if (wire.world) {
        manual_.advance(time);
    } else {
        skipped_ += time;
    }
}

void NaRig::pass(Duration time) {
    constexpr Duration step = 100ms;
    for (; time > Duration::zero(); time -= step) {
        skip(std::min(step, time));
        pump();
    }
}

void NaRig::pump() {
    std::size_t events = 0;
    for (auto& node : nodes_) {
        if (node->is_blocked) continue;
        while (!node->passed.empty()) {  // With nothing to take it, once the endpoint has ended.
            Function<void()> work = std::move(node->passed.front());
            node->passed.pop_front();
            work();
            ++events;
        }
        if (!node->endpoint) continue;
        events += node->poll();
        node->endpoint->flush();
    }
    if (events == 0) step_time();
}

void NaRig::step_time() {
    if (!wire.world) {
        std::this_thread::sleep_for(20us);
    } else if (wire.world->next_event() != never) {
        manual_.advance(std::max(Duration(0), wire.world->next_event() - manual_.now()));
    } else {
        manual_.advance(1ms);
    }
}

bool NaRig::pump_until(const std::function<bool()>& done, Duration limit) {
    const TimePoint end = now() + limit;
    while (!done()) {
        if (now() >= end) return done();
        pump();
    }
    return true;
}

void NaRig::run_until_idle() {
    const TimePoint end = now() + 30ms;
    while (now() < end) pump();
}

Buffer NaRig::allocate(std::size_t bytes) {
    Result<Buffer> buffer = arena_->allocate(bytes);
    INFO(buffer.status().to_string());
    REQUIRE(buffer);
    return std::move(*buffer);
}

}  // namespace weft::test
