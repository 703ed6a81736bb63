// Items that wait until the local program needs them, in order and by the client that brought them.
// One peer has a share of the places: at its share, the oldest item of its client with most is
// evicted, and when all places are taken, the oldest of the peer with most. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/assert.h"
#include "coll/collective_table.h"

namespace weft::coll {

template <class Item>
class Pending {
  public:
    static constexpr std::size_t items_max = 4096;
    static constexpr std::size_t per_peer_max = items_max / 4;

    // A place, released by its destructor. Requires: the table outlives it.
    class Slot {
      public:
        Slot() = default;
        Slot(Pending& of, const ClientKey& client, std::uint64_t number)
            : of_(&of), client_(client), number_(number) {}
        Slot(Slot&& other) noexcept { *this = std::move(other); }
        Slot& operator=(Slot&& other) noexcept {
            std::swap(of_, other.of_);
            std::swap(client_, other.client_);
            std::swap(number_, other.number_);
            return *this;
        }
        ~Slot() {
            if (of_) of_->remove(client_, number_);
        }

      private:
        Pending* of_ = nullptr;
        ClientKey client_;
        std::uint64_t number_ = 0;
    };

    // The item to evict for one more of this peer; nullptr: a place is free.
    const Item* eviction_candidate(const SessionKey& peer) const {
        const auto own = peers_.find(peer);
        if (own != peers_.end() && own->second.count >= per_peer_max)
            return &oldest_of(own->second);
        if (count_ < items_max) return nullptr;
        const auto with_most =
            std::max_element(peers_.begin(), peers_.end(), [](const auto& one, const auto& other) {
                return one.second.count < other.second.count;
            });
        return &oldest_of(with_most->second);
    }
    // If it throws, nothing was added.
    Slot add(const ClientKey& client, Item item) {
        const auto peer = peers_.try_emplace(client.peer).first;
        auto& clients = peer->second.clients;
        const std::uint64_t number = next_++;
        try {
            const auto [own, is_new] = clients.try_emplace(client.number);
            try {
                own->second.emplace(number, std::move(item));
            } catch (...) {
                if (is_new) clients.erase(own);
                throw;
            }
        } catch (...) {
            if (clients.empty()) peers_.erase(peer);
            throw;
        }
        ++peer->second.count;
        ++count_;
        return Slot(*this, client, number);
    }
    std::size_t size() const { return count_; }
    std::size_t peers() const { return peers_.size(); }

  private:
    using Items = std::map<std::uint64_t, Item>;  // By age.
    struct PeerItems {
        std::size_t count = 0;
        std::map<std::uint16_t, Items> clients;  // None is empty.
    };

    static const Item& oldest_of(const PeerItems& peer) {
        WEFT_ASSERT(peer.count > 0 && !peer.clients.empty());
        const auto with_most = std::max_element(peer.clients.begin(), peer.clients.end(),
                                                [](const auto& one, const auto& other) {
                                                    return one.second.size() < other.second.size();
                                                });
        return with_most->second.begin()->second;
    }
    void remove(const ClientKey& client, std::uint64_t number) {
        const auto peer = peers_.find(client.peer);
        WEFT_ASSERT(peer != peers_.end() && count_ > 0);
        const auto own = peer->second.clients.find(client.number);
        WEFT_ASSERT(own != peer->second.clients.end());
        own->second.erase(number);
        if (own->second.empty()) peer->second.clients.erase(own);
        --count_;
        if (--peer->second.count == 0) peers_.erase(peer);
    }

    std::map<SessionKey, PeerItems> peers_;
    std::size_t count_ = 0;
    std::uint64_t next_ = 0;
};

}  // namespace weft::coll
