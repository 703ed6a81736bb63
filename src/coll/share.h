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
    // Of requests, of all clients.
    std::size_t bytes() const { return bytes_; }

    // What one collective takes while it or its method runs, given back by its end.
    class Room {
      public:
        Room() = default;
        Room(std::shared_ptr<Shares> shares, const Client& client, std::size_t bytes)
            : client_(client), bytes_(bytes) {
            shares->each(client, [&](Held& held) {
                ++held.running;
                held.bytes += bytes;
            });
            shares->bytes_ += bytes;
            shares_ = std::move(shares);
        }
        Room(Room&&) noexcept = default;
        Room& operator=(Room&& other) noexcept {
            std::swap(shares_, other.shares_);
            std::swap(client_, other.client_);
            std::swap(bytes_, other.bytes_);
            std::swap(has_run_, other.has_run_);
            return *this;
        }
        ~Room() {
            const bool holds = !has_run_ || bytes_ > 0;
            if (!shares_ || !holds) return;
            shares_->each(client_, [&](Held& held) {
                if (!has_run_) --held.running;
                held.bytes -= bytes_;
            });
            shares_->bytes_ -= bytes_;
        }
        // Its method has run here; the collective may still wait for other ranks.
        void has_run() {
            if (!shares_ || std::exchange(has_run_, true)) return;
            shares_->each(client_, [](Held& held) { --held.running; });
        }
        // Its request is gone; the method may go on.
        void has_no_request() {
            if (!shares_ || bytes_ == 0) return;
            shares_->each(client_, [this](Held& held) { held.bytes -= bytes_; });
            shares_->bytes_ -= std::exchange(bytes_, 0);
        }

      private:
        std::shared_ptr<Shares> shares_;  // nullptr: it takes nothing.
        Client client_;
        std::size_t bytes_ = 0;
        bool has_run_ = false;
    };

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
        each(client, [](Held& held) { ++held.strangers; });
        ++strangers_;
        return Place(shared_from_this(), client);
    }

  private:
    void give_back(const Client& client) {
        --strangers_;
        each(client, [](Held& held) { --held.strangers; });
    }
    // What is counted for the client is counted for its peer, too. Where it throws, for none.
    template <class Count>
    void each(const Client& client, Count count) {
        make_entries(held_, client);
        for (const Client& one : {client, Client(client.peer)}) {
            const auto at = held_.find(one);
            Held& held = at->second;
            count(held);
            if (held.running == 0 && held.strangers == 0 && held.bytes == 0) held_.erase(at);
            if (client.number == 0) break;
        }
    }

    std::map<Client, Held> held_;  // Number 0: all of a peer's.
    std::uint32_t strangers_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace weft::coll
