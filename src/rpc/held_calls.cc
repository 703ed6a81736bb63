#include "rpc/held_calls.h"

#include <utility>

#include "base/assert.h"

namespace weft::rpc {

// The finalizer of splitmix64 over what a secret has stirred.
std::size_t HeldCalls::bucket_of(const core::Peer& peer, WireCallId id) const {
    const auto place = reinterpret_cast<std::uintptr_t>(&peer);
    std::uint64_t mixed = (std::uint64_t{id.generation} << 32 | id.slot) * factor_ + place;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) & (buckets_.size() - 1);
}

static bool is(const ServerCall& call, const core::Peer& peer, WireCallId id) {
    return call.peer == &peer && call.wire.slot == id.slot && call.wire.generation == id.generation;
}

ServerCall* HeldCalls::find(const core::Peer& peer, WireCallId id) const {
    ServerCall* call = buckets_[bucket_of(peer, id)];
    while (call && !is(*call, peer, id)) call = call->next_held;
    return call;
}

bool HeldCalls::add(ServerCall& call) {
    WEFT_DCHECK(call.peer && !call.held);
    if (find(*call.peer, call.wire)) return false;
    if (size_ >= buckets_.size()) grow();
    ServerCall*& head = buckets_[bucket_of(*call.peer, call.wire)];
    call.next_held = std::exchange(head, &call);
    call.held = true;
    ++size_;
    return true;
}

void HeldCalls::remove(ServerCall& call) {
    WEFT_DCHECK(call.held);
    ServerCall** link = &buckets_[bucket_of(*call.peer, call.wire)];
    while (*link != &call) link = &(*link)->next_held;
    *link = std::exchange(call.next_held, nullptr);
    call.held = false;
    --size_;
}

void HeldCalls::grow() {
    std::vector<ServerCall*> before(buckets_.size() * 2);
    before.swap(buckets_);
    for (ServerCall* call : before) {
        while (call) {
            ServerCall* const next = call->next_held;
            ServerCall*& head = buckets_[bucket_of(*call->peer, call->wire)];
            call->next_held = std::exchange(head, call);
            call = next;
        }
    }
}

}  // namespace weft::rpc
