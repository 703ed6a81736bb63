// Entries of libfabric's address vector: when they are added, and when they can be removed.
#include <algorithm>

#include "base/log.h"
#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

static std::string key_of(const SocketName& name) { return std::string(as_text(name.bytes())); }

AvEntry* OfiEndpoint::find_or_add_av_entry(const SocketName& name) {
    std::string key = key_of(name);
    const auto known = av_.entries.find(key);
    if (known != av_.entries.end()) {
        AvEntry& av_entry = known->second;
        if (!is_removal_awaited(av_entry)) {
            av_entry.state.move_to(AvEntry::State::used);
            av_entry.due = av_entry.abandon_at = never;
        }
        return &av_entry;
    }
    fi_addr_t address = FI_ADDR_UNSPEC;
    if (fi_av_insert(fabric_->av(), name.get(), 1, &address, 0, nullptr) != 1) return nullptr;
    const auto is_same = [&](const SocketName& other) { return as_text(other.bytes()) == key; };
    const bool was_removed = std::erase_if(av_.removed, is_same) != 0;
    AvEntry& av_entry = av_.entries[key];
    av_entry.name = name;
    av_entry.address = address;
    if (was_removed) {  // The peer may have reconnected by itself.
        av_entry.last_send = AvEntry::LastSend::accepted;
        av_entry.dirty = av_entry.may_reconnect = true;
    }
    return &av_entry;
}

bool OfiEndpoint::has_av_entry(const SocketName& name) const {
    return av_.entries.count(key_of(name)) != 0;
}

// Whether a fence or a posted transfer waits for the removal of the entry. Such an entry is removed
// even if it is used again, and new peers on it go down with it.
bool OfiEndpoint::is_removal_awaited(const AvEntry& av_entry) const {
    if (av_entry.state != AvEntry::State::cutting) return false;
    return !av_entry.fences.empty() || transfers_.any_posted([&](const RmaOperation& transfer) {
        return transfer.av_entry == &av_entry;
    });
}

// The old connection to this address must end before a new one is made.
bool OfiEndpoint::is_being_removed(const SocketName& name) const {
    const auto known = av_.entries.find(key_of(name));
    return known != av_.entries.end() && is_removal_awaited(known->second);
}

void OfiEndpoint::release_av_entry(AvEntry& av_entry, bool at_once) {
    WEFT_ASSERT(av_entry.peers != 0);
    --av_entry.peers;
    av_entry.dirty = true;
    if (at_once) {
        cut(av_entry, "the connection was closed together with another peer's transfers");
    } else if (av_entry.peers == 0) {
        start_lingering(av_entry);
    }
}

void OfiEndpoint::start_lingering(AvEntry& av_entry) {
    WEFT_ASSERT(av_entry.peers == 0);
    if (av_entry.state == AvEntry::State::cutting) return;
    av_entry.state.move_to(AvEntry::State::lingering);
    check_at(av_entry, clock_.now + linger);
}

void OfiEndpoint::check_at(AvEntry& av_entry, TimePoint at) {
    av_entry.due = at;
    av_.check_at = std::min(av_.check_at, at);
    schedule_.note(at);
}

void OfiEndpoint::serve_av_entries() {
    av_.check_at = never;
    av_.reading = false;
    for (auto at = av_.entries.begin(); at != av_.entries.end();) {
        AvEntry& av_entry = at->second;
        ++at;
        if (av_entry.state == AvEntry::State::used) continue;
        if (av_entry.due <= clock_.now) {
            // A peer that connected again over an entry with an awaited removal goes down too.
            cut(av_entry, "the connection was closed together with another peer's");
        } else {
            av_.check_at = std::min(av_.check_at, av_entry.due);
        }
    }
}

// The fence. True: libfabric has closed the connection. No write of a peer on it can reach local
// memory, and no local memory is read any more (FI_AV_REMOVE_CLEANUP). False: still to be cut.
//
// Not during an incoming reply to a get: libfabric 1.17 then frees that get twice, and follows a
// null pointer. A reply completes soon, or its connection breaks by itself. A reply of which
// libfabric has read only the head is invisible here, so pending gets delay the cut for some time.
bool OfiEndpoint::cut(AvEntry& av_entry, const std::string& why) {
    if (av_entry.peers != 0) {
        while (Connection* peer = av_entry.members.pop_front()) {
            peer->av_entry = nullptr;
            take_down(*peer, Code::unavailable, why);
        }
        av_entry.peers = 0;
        av_entry.dirty = av_entry.may_reconnect = true;
    }
    if (av_entry.state != AvEntry::State::cutting) av_entry.cutting_since = clock_.now;
    av_entry.state.move_to(AvEntry::State::cutting);
    const TimePoint no_replies_after = av_entry.cutting_since + replies_begin_within;
    if (has_pending_gets(&av_entry) ||
        (has_pending_rma(&av_entry) && clock_.now < no_replies_after)) {
        av_.reading = true;
        if (clock_.now < no_replies_after) check_at(av_entry, no_replies_after);
        av_entry.due = clock_.now;
        return false;
    }
    if (may_be_removed(av_entry) && remove(av_entry)) return true;
    check_at(av_entry, clock_.now + linger);
    return false;
}

// libfabric 1.17 follows a null pointer when it removes an address to which it no longer wants to
// connect: for lack of a descriptor, or because the other side believes that it has a connection.
// That state ends when the other side has polled. A bye to no peer shows whether it has ended.
bool OfiEndpoint::may_be_removed(AvEntry& av_entry) {
    if (av_entry.last_send == AvEntry::LastSend::accepted) return true;
    if (av_entry.abandon_at == never) av_entry.abandon_at = clock_.now + connect_timeout;
    const Prefix no_peer{no_index, 0, 0, 0, Kind::bye};
    const ssize_t error = fi_inject(fabric_->ep(), &no_peer, sizeof no_peer, av_entry.address);
    av_entry.on_send_result(error);
    if (error == 0) return true;
    if (error == -FI_EAGAIN) return clock_.now >= av_entry.abandon_at;
    end_fences(av_entry);  // A connection accepts the bye or returns "try again": none exists.
    return false;
}

bool OfiEndpoint::remove(AvEntry& av_entry) {
    WEFT_ASSERT(av_entry.peers == 0 && av_entry.members.empty());
    if (int error = fi_av_remove(fabric_->av(), &av_entry.address, 1, 0)) {
        parts_.log.error("libfabric's fi_av_remove failed: " + describe(error));
        return false;
    }
    transfers_.for_each_posted([&](RmaOperation& transfer) {
        if (transfer.av_entry == &av_entry) transfer.av_entry = nullptr;
    });
    end_fences(av_entry);
    if (av_entry.may_reconnect && exposes()) {
        if (av_.removed.size() == removed_max) av_.removed.erase(av_.removed.begin());
        av_.removed.push_back(av_entry.name);
    }
    av_.entries.erase(key_of(av_entry.name));
    return true;
}

void OfiEndpoint::end_fences(AvEntry& av_entry) {
    for (const std::uint32_t region : std::exchange(av_entry.fences, {})) {
        WEFT_ASSERT(regions_[region].fenced_by != 0);
        if (--regions_[region].fenced_by == 0) events_.push(fenced_event(region));
    }
}

}  // namespace weft::na::ofi
