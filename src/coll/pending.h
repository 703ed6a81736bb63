// What waits here until this rank's own program needs it, in order and by the client that brought
// it. One peer has a share of the places: when that is full, the oldest of its client with most
// gives way, and when all places are taken, the oldest of the peer with most. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "coll/known.h"

namespace weft::coll {

template <class Item>
class Pending {
  public:
    static constexpr std::size_t most = 4096;
    static constexpr std::size_t of_peer = most / 4;

    // A place, given back by its end. Requires: the table outlives it.
    class Place {
      public:
        Place() = default;
        Place(Pending& of, const Client& client, std::uint64_t number)
            : of_(&of), client_(client), number_(number) {}
        Place(Place&& other) noexcept { *this = std::move(other); }
        Place& operator=(Place&& other) noexcept {
            std::swap(of_, other.of_);
            std::swap(client_, other.client_);
            std::swap(number_, other.number_);
            return *this;
        }
        ~Place() {
            if (of_) of_->remove(client_, number_);
        }

      private:
        Pending* of_ = nullptr;
        Client client_;
        std::uint64_t number_ = 0;
    };

    // What gives way to one more of this peer's; nullptr: there is a place for it.
    const Item* gives_way_to(const AskerId& peer) const {
        const auto own = peers_.find(peer);
        if (own != peers_.end() && own->second.count >= of_peer) return &oldest_of(own->second);
        if (count_ < most) return nullptr;
        const auto with_most =
            std::max_element(peers_.begin(), peers_.end(), [](const auto& one, const auto& other) {
                return one.second.count < other.second.count;
            });
        return &oldest_of(with_most->second);
    }
    // Where it throws, nothing was added.
    Place add(const Client& client, Item item) {
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
        return Place(*this, client, number);
    }
    std::size_t size() const { return count_; }
    std::size_t peers() const { return peers_.size(); }

  private:
    using Items = std::map<std::uint64_t, Item>;  // By age.
    struct OfPeer {
        std::size_t count = 0;
        std::map<std::uint16_t, Items> clients;  // None is empty.
    };

    static const Item& oldest_of(const OfPeer& peer) {
        const auto with_most = std::max_element(peer.clients.begin(), peer.clients.end(),
                                                [](const auto& one, const auto& other) {
                                                    return one.second.size() < other.second.size();
                                                });
        return with_most->second.begin()->second;
    }
    void remove(const Client& client, std::uint64_t number) {
        const auto peer = peers_.find(client.peer);
        const auto own = peer->second.clients.find(client.number);
        own->second.erase(number);
        if (own->second.empty()) peer->second.clients.erase(own);
        --count_;
        if (--peer->second.count == 0) peers_.erase(peer);
    }

    std::map<AskerId, OfPeer> peers_;
    std::size_t count_ = 0;
    std::uint64_t next_ = 0;
};

}  // namespace weft::coll
