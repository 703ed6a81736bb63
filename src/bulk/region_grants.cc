// Grants: promises to initiators that a range stays accessible.
#include <algorithm>

#include "base/assert.h"
#include "base/text.h"
#include "bulk/regions.h"

namespace weft::bulk {

// The share of one peer.
static constexpr std::uint32_t grants_per_peer_max = 65536 / 4;
// The part of a granted range that is probed for access.
static constexpr std::uint64_t probed_bytes_max = 4u << 20;
// Revokes the grants not revoked yet, if there is room for the message.
void Regions::send_revokes(Use& use) {
    use.held.for_each([&](Grant& grant) {
        if (grant.revoke_sent) return;
        core::Peer* peer = context_->find(grant.peer);
        if (!peer) return;
        const core::Context::Claim claim = context_->claim(*peer, sizeof(RevokeFrame));
        if (!claim.data) return;
        RevokeFrame revoke;
        revoke.grant = number_of(base::SlotTable<Grant>::entry_of(grant));
        revoke.transfer_slot = grant.transfer.slot;
        revoke.transfer_generation = grant.transfer.generation;
        base::store(claim.data, revoke);
        context_->commit(*peer, claim, sizeof revoke);
        grant.revoke_sent = true;
    });
}

void Regions::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (head.flags != 0) {
        return context_->close_malformed(peer, "a bulk frame with flags of a later version");
    }
    if (head.kind == core::FrameKind::bulk_open) {
        if (frame.size() != sizeof(OpenFrame)) {
            return context_->close_malformed(peer, "a bulk_open of the wrong size");
        }
        // A grant would only delay the release of the owner's memory.
        if (peer.endpoint->caps.rma_checked) {
            return context_->close_malformed(
                peer, "a bulk_open over a transport that checks each access");
        }
        on_open(peer, frame);
    } else {
        if (frame.size() != sizeof(CloseFrame)) {
            return context_->close_malformed(peer, "a bulk_close of the wrong size");
        }
        on_close(peer, frame);
    }
}

void Regions::on_open(core::Peer& peer, ByteView frame) {
    const auto open = base::load<OpenFrame>(frame.data());
    Result<RegionRef> ref =
        RegionRef::decode({reinterpret_cast<const std::byte*>(open.ref), RegionRef::wire_bytes});
    const Result<Bytes> range = ref ? range_of(*ref) : Result<Bytes>(ref.status());
    Result<Use*> use = range ? use_at(*peer.endpoint, *ref) : Result<Use*>(range.status());
    if (use && !is_accessible(*range, ref->access)) {
        use = fail(Code::failed_precondition, allows(ref->access, Access::write)
                                                  ? na::memory_text_unwritable
                                                  : na::memory_text_unreadable);
    }
    const base::SlotId transfer{open.transfer_slot, open.transfer_generation};
    GrantSlot* const grant = use ? add_grant(**use, peer, {}, transfer) : nullptr;
    if (use && !grant) {
        use = fail(Code::resource_exhausted, "the owner has too many transfers in flight");
    }
    if (!use) return send_grant(peer, open, use.status(), {}, 0);
    const na::FabricKey fabric = (*use)->fabric[peer.endpoint->index];
    send_grant(peer, open, Status(), fabric, number_of(*grant));
}

// The region of a valid reference at an endpoint.
Result<Regions::Use*> Regions::use_at(core::EndpointSlot& endpoint, const RegionRef& ref) {
    Slot* const own = find(ref.region, ref.generation);
    if (!own) return adopt(endpoint, ref);
    Status exposed = ensure_exposed(own->value, endpoint);
    if (!exposed.ok()) return exposed;
    return &own->value;
}

// The transport accesses granted memory, and an inaccessible page may end the process. The probe is
// bounded, because a request costs the peer little.
bool Regions::is_accessible(Bytes range, Access access) const {
    const Bytes probed = range.first(std::min<std::size_t>(range.size(), probed_bytes_max));
    return na::is_accessible(arena_, probed, allows(access, Access::write));
}

bool Regions::is_exposed(const Use& use, const core::EndpointSlot& endpoint) {
    return (use.unfenced >> endpoint.index & 1) != 0 && endpoint.endpoint->caps().fences_region;
}

Regions::GrantSlot* Regions::add_grant(Use& use, core::Peer& peer, base::SlotId rendezvous_id,
                                       base::SlotId transfer) {
    core::Traffic& traffic = peer.traffic;
    GrantSlot* const taken = traffic.granted < grants_per_peer_max ? grants_.take() : nullptr;
    if (!taken) return nullptr;
    WEFT_ASSERT(!use.closing && peer.ref);
    Grant& grant = taken->value;
    grant.peer = peer.ref;
    grant.region = use.region;
    grant.generation = use.generation;
    grant.revoke_sent = grant.is_unsent = false;
    grant.rendezvous_id = rendezvous_id;
    grant.transfer = transfer;
    use.held.push_back(grant);
    traffic.grants.push_back(grant);
    ++use.grants;
    ++traffic.granted;
    context_->add_interest(peer);
    return taken;
}

std::uint64_t Regions::grant_rendezvous(std::uint32_t region, std::uint32_t generation,
                                        core::Peer& peer, base::SlotId rendezvous_id,
                                        bool is_unsent) {
    Slot* slot = find(region, generation);
    WEFT_ASSERT(slot != nullptr && !slot->value.closing);  // The sender owns the region.
    GrantSlot* grant = add_grant(slot->value, peer, rendezvous_id, {});
    if (grant) grant->value.is_unsent = is_unsent;
    return grant ? number_of(*grant) : 0;
}

void Regions::withdraw(core::Peer& peer, std::uint64_t number) {
    GrantSlot* grant = find_grant(peer, number);
    if (!grant) return;
    context_->drop_interest(peer);
    end_grant(*grant);
}

Result<na::FabricKey> Regions::fabric_key(std::uint32_t region, std::uint32_t generation,
                                          core::EndpointSlot& endpoint) {
    Slot* slot = find(region, generation);
    WEFT_ASSERT(slot != nullptr && !slot->value.closing);  // The sender owns the region.
    Status exposed = ensure_exposed(slot->value, endpoint);
    if (!exposed.ok()) return exposed;
    return slot->value.fabric[endpoint.index];
}

void Regions::send_grant(core::Peer& peer, const OpenFrame& open, const Status& status,
                         na::FabricKey fabric, std::uint64_t number) {
    const std::string_view text = base::truncate_utf8(status.text(), grant_text_bytes_max);
    const std::size_t bytes = sizeof(GrantFrame) + text.size();
    const core::Context::Claim claim = context_->claim(peer, bytes);
    if (!claim.data) {
        if (context_->queues().has_full_queue(peer, bytes)) {
            return context_->close_malformed(peer, "more bulk_open than it reads replies for");
        }
        return context_->fail_connection(
            peer, fail(Code::unavailable, "connection closed: no memory to answer a bulk_open"));
    }
    GrantFrame grant;
    grant.head.bytes = static_cast<std::uint32_t>(bytes);
    grant.head.aux = static_cast<std::uint16_t>(status.code());
    grant.transfer_slot = open.transfer_slot;
    grant.transfer_generation = open.transfer_generation;
    grant.fabric = fabric;
    grant.grant = number;
    base::store(claim.data, grant);
    if (!text.empty()) std::memcpy(claim.data + sizeof grant, text.data(), text.size());
    context_->commit(peer, claim, bytes);
}

void Regions::on_close(core::Peer& peer, ByteView frame) {
    withdraw(peer, base::load<CloseFrame>(frame.data()).grant);  // No effect if forged or repeated.
}

Regions::GrantSlot* Regions::find_grant(const core::Peer& peer, std::uint64_t number) {
    GrantSlot* grant = grants_.find(
        {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)});
    return grant && grant->value.peer == peer.ref ? grant : nullptr;
}

void Regions::end_grant(GrantSlot& grant) {
    const base::SlotId rendezvous_id = grant.value.rendezvous_id;
    Use* const use = find_use(grant.value.region, grant.value.generation);
    WEFT_ASSERT(use != nullptr);  // It outlives its grants.
    WEFT_ASSERT(use->grants != 0);
    erase_grant(grant);
    if (--use->grants == 0 && use->closing) fence(*use);
    if (rendezvous_id) rendezvous_sender_->on_rendezvous_released(rendezvous_id);
}

void Regions::erase_grant(GrantSlot& grant) {
    core::PeerGrant& peer_node = grant.value;
    RegionNode& region_node = grant.value;
    peer_node.unlink();
    region_node.unlink();
    WEFT_ASSERT(grant.value.peer.at->traffic.granted != 0);
    --grant.value.peer.at->traffic.granted;
    grants_.release(grant);
}

void Regions::on_peer_down(core::Peer& peer, const Status&) {
    // The provider has cut the connection: no access of this peer arrives after the fence.
    base::IntrusiveList<core::PeerGrant> lost;  // Later grants are for its next connection.
    lost.splice_back(peer.traffic.grants);
    while (core::PeerGrant* one = lost.front()) {
        auto& grant = static_cast<Grant&>(*one);
        if (retain_unsent(peer, grant)) continue;
        context_->drop_interest(peer);
        find_use(grant.region, grant.generation)->holders = na::Holders::lost;
        end_grant(base::SlotTable<Grant>::entry_of(grant));
    }
}

}  // namespace weft::bulk
