// What collectives of others hold here while they run, by the client that began them and by the
// peer that brought them. Each client has a share of its peer's, and each peer a share of all, so
// that none keeps the others out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "coll/known.h"

namespace weft::coll {

class Shares : public std::enable_shared_from_this<Shares> {
  public:
    // Methods that run for the collectives of one client, and of all clients of one peer.
    static constexpr std::uint32_t running_most = 1024;
    static constexpr std::uint32_t running_of_peer = 4096;
    // Named members that one client lets this rank ask at once, all of one peer, and all.
    static constexpr std::uint32_t strangers_most = 256;
    static constexpr std::uint32_t strangers_of_peer = 512;
    static constexpr std::uint32_t strangers_all = 1024;

    struct Held {
        std::uint32_t running = 0;
        std::uint32_t strangers = 0;
        std::size_t bytes = 0;  // Of requests, as the engine counts them.
    };
    Held of(const Client& client) const {
        const auto at = held_.find(client);
        return at == held_.end() ? Held() : at->second;
    }
    void begin(const Client& client, std::size_t bytes) {
        each(client, [&](Held& held) {
            ++held.running;
            held.bytes += bytes;
        });
    }
    // Its method has run here; the collective may still wait for other ranks.
    void has_run(const Client& client) {
        each(client, [](Held& held) { --held.running; });
    }
    void end(const Client& client, std::size_t bytes) {
        each(client, [&](Held& held) { held.bytes -= bytes; });
    }

    // A place among the strangers, given back by its end.
    class Place {
      public:
        Place() = default;
        Place(std::shared_ptr<Shares> shares, const Client& client)
            : shares_(std::move(shares)), client_(client) {}
        Place(Place&&) noexcept = default;
        Place& operator=(Place&& other) noexcept {
            std::swap(shares_, other.shares_);
            std::swap(client_, other.client_);
            return *this;
        }
        ~Place() {
            if (shares_) shares_->give_back(client_);
        }

      private:
        std::shared_ptr<Shares> shares_;
        Client client_;
    };
    // nullopt: there is none for it.
    std::optional<Place> take(const Client& client) {
        const bool has_share = of(client).strangers >= strangers_most ||
                               of(client.peer).strangers >= strangers_of_peer;
        if (strangers_ >= strangers_all || has_share) return {};
        ++strangers_;
        each(client, [](Held& held) { ++held.strangers; });
        return Place(shared_from_this(), client);
    }

  private:
    void give_back(const Client& client) {
        --strangers_;
        each(client, [](Held& held) { --held.strangers; });
    }
    // What is counted for the client is counted for its peer, too.
    template <class Count>
    void each(const Client& client, Count count) {
        for (const Client& one : {client, Client(client.peer)}) {
            Held& held = held_[one];
            count(held);
            if (held.running == 0 && held.strangers == 0 && held.bytes == 0) held_.erase(one);
            if (client.number == 0) break;
        }
    }

    std::map<Client, Held> held_;  // Number 0: all of a peer's.
    std::uint32_t strangers_ = 0;
};

}  // namespace weft::coll
