// Addresses in libfabric's table: when they come, and when they can go.
#include <algorithm>

#include "base/log.h"
#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

static std::string key_of(const SocketName& name) { return std::string(as_text(name.bytes())); }

Link* OfiEndpoint::link_to(const SocketName& name) {
    std::string key = key_of(name);
    const auto known = links_.find(key);
    if (known != links_.end()) {
        Link& link = known->second;
        if (!is_awaited(link)) {
            link.state = Link::State::used;
            link.due = link.give_up_at = never;
        }
        return &link;
    }
    fi_addr_t address = FI_ADDR_UNSPEC;
    if (fi_av_insert(fabric_->av(), name.get(), 1, &address, 0, nullptr) != 1) return nullptr;
    const auto is_same = [&](const SocketName& other) { return as_text(other.bytes()) == key; };
    const bool was_here = std::erase_if(gone_, is_same) != 0;
    Link& link = links_[key];
    link.name = name;
    link.address = address;
    if (was_here) {  // It may have connected anew, by itself.
        link.word = Link::Word::taken;
        link.dirty = link.may_return = true;
    }
    return &link;
}

bool OfiEndpoint::has_link(const SocketName& name) const { return links_.count(key_of(name)) != 0; }

// Somebody waits for its end: it goes also when it is used again, and its new peers with it.
bool OfiEndpoint::is_awaited(const Link& link) const {
    if (link.state != Link::State::cutting) return false;
    return !link.fences.empty() ||
           std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
               return transfer.posted && transfer.link == &link;
           });
}

// The connection to it has to end before there is another.
bool OfiEndpoint::is_going(const SocketName& name) const {
    const auto known = links_.find(key_of(name));
    return known != links_.end() && is_awaited(known->second);
}

void OfiEndpoint::leave_link(Link& link, bool at_once) {
    --link.peers;
    link.dirty = true;
    if (at_once) {
        cut(link, "the connection was closed together with another peer's transfers");
    } else if (link.peers == 0) {
        let_linger(link);
    }
}

void OfiEndpoint::let_linger(Link& link) {
    if (link.state == Link::State::cutting) return;
    link.state = Link::State::lingering;
    look_at(link, now_ + linger);
}

void OfiEndpoint::look_at(Link& link, TimePoint at) {
    link.due = at;
    links_at_ = std::min(links_at_, at);
    attention_at_ = std::min(attention_at_, at);
}

void OfiEndpoint::serve_links() {
    links_at_ = never;
    reading_ = false;
    for (auto at = links_.begin(); at != links_.end();) {
        Link& link = at->second;
        ++at;
        if (link.state == Link::State::used) continue;
        if (link.due <= now_) {
            // A peer that was connected anew over one that is awaited goes with it.
            cut(link, "the connection was closed together with another peer's");
        } else {
            links_at_ = std::min(links_at_, link.due);
        }
    }
}

// The fence. True: libfabric has closed the connection, no write of a peer on it can reach our
// memory and none of ours is read any more (FI_AV_REMOVE_CLEANUP). False: it is to be cut still.
//
// Not in the middle of an answer to a get of ours: libfabric 1.17 frees that get twice then, and
// follows a null pointer. What is coming in has come soon, or its connection breaks by itself. Of
// an answer that libfabric has read the head of we see nothing, so what was asked for has some
// time.
bool OfiEndpoint::cut(Link& link, const std::string& why) {
    if (link.peers != 0) {
        while (Peer* peer = link.members.pop_front()) {
            peer->link = nullptr;
            bring_down(PeerTable::entry_of(*peer), Code::unavailable, why);
        }
        link.peers = 0;
        link.dirty = link.may_return = true;
    }
    if (link.state != Link::State::cutting) link.cutting_since = now_;
    link.state = Link::State::cutting;
    const TimePoint nothing_comes_at = link.cutting_since + answers_begin;
    if (is_reading(&link) || (is_asking(&link) && now_ < nothing_comes_at)) {
        reading_ = true;
        if (now_ < nothing_comes_at) look_at(link, nothing_comes_at);
        link.due = now_;
        return false;
    }
    if (may_be_removed(link) && remove(link)) return true;
    look_at(link, now_ + linger);
    return false;
}

// libfabric 1.17 follows a null pointer when it removes an address that it wanted to connect to and
// does not any more: for want of a descriptor, or because the other side has a connection to us, as
// it believes. That passes when the other side has looked; a word to nobody tells.
bool OfiEndpoint::may_be_removed(Link& link) {
    if (link.word == Link::Word::taken) return true;
    if (link.give_up_at == never) link.give_up_at = now_ + connect_timeout;
    const Prefix nobody{no_index, 0, 0, 0, Kind::bye};
    const ssize_t error = fi_inject(fabric_->ep(), &nobody, sizeof nobody, link.address);
    link.said(error);
    if (error == 0) return true;
    if (error == -FI_EAGAIN) return now_ >= link.give_up_at;
    end_fences(link);  // A connection takes it or says "try again": there is none.
    return false;
}

bool OfiEndpoint::remove(Link& link) {
    if (int error = fi_av_remove(fabric_->av(), &link.address, 1, 0)) {
        parts_.log.error("libfabric's fi_av_remove failed: " + describe(error));
        return false;
    }
    for (Transfer& transfer : transfers_) {
        if (transfer.link == &link) transfer.link = nullptr;
    }
    end_fences(link);
    if (link.may_return && exposes()) {
        if (gone_.size() == gone_max) gone_.erase(gone_.begin());
        gone_.push_back(link.name);
    }
    links_.erase(key_of(link.name));
    return true;
}

void OfiEndpoint::end_fences(Link& link) {
    for (const std::uint32_t region : std::exchange(link.fences, {})) {
        if (--regions_[region].fenced_by == 0) emit_fenced(region);
    }
}

}  // namespace weft::na::ofi
