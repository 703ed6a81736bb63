// Resources that collectives of other origins hold here while they run, by the client that began
// them and by the peer that brought them. Each client has a share of its peer's, and each peer a
// share of all, so that none keeps the others out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "coll/collective_table.h"

namespace weft::coll {

class ResourceQuota : public std::enable_shared_from_this<ResourceQuota> {
  public:
    // Methods that run for the collectives of one client, and of all clients of one peer.
    static constexpr std::uint32_t running_per_client_max = 1024;
    static constexpr std::uint32_t running_per_peer_max = 4096;
    // Requests to named nonmembers at a time, for one client, all of one peer, and all.
    static constexpr std::uint32_t nonmembers_per_client_max = 256;
    static constexpr std::uint32_t nonmembers_per_peer_max = 512;
    static constexpr std::uint32_t nonmembers_max = 1024;

    struct Usage {
        std::uint32_t running = 0;
        std::uint32_t nonmembers = 0;
        std::size_t bytes = 0;  // Of requests, as the engine counts them.
    };
    Usage of(const ClientKey& client) const {
        const auto at = usage_.find(client);
        return at == usage_.end() ? Usage() : at->second;
    }
    // Of requests, for all clients.
    std::size_t bytes() const { return bytes_; }
    // Whether another client's share of nonmembers is free.
    bool has_free_slots() const {
        return nonmembers_ + nonmembers_per_client_max <= nonmembers_max;
    }

    // The resources of one collective while it or its method runs, released by the destructor.
    class Reservation {
      public:
        Reservation() = default;
        Reservation(std::shared_ptr<ResourceQuota> quota, const ClientKey& client,
                    std::size_t bytes)
            : client_(client), bytes_(bytes) {
            quota->each(client, [&](Usage& usage) {
                ++usage.running;
                usage.bytes += bytes;
            });
            quota->bytes_ += bytes;
            quota_ = std::move(quota);
        }
        Reservation(Reservation&&) noexcept = default;
        Reservation& operator=(Reservation&& other) noexcept {
            std::swap(quota_, other.quota_);
            std::swap(client_, other.client_);
            std::swap(bytes_, other.bytes_);
            std::swap(method_released_, other.method_released_);
            return *this;
        }
        ~Reservation() {
            const bool holds = !method_released_ || bytes_ > 0;
            if (!quota_ || !holds) return;
            quota_->each(client_, [&](Usage& usage) {
                if (!method_released_) --usage.running;
                usage.bytes -= bytes_;
            });
            quota_->bytes_ -= bytes_;
        }
        // The method has ended here; the collective may still wait for other ranks.
        void release_method() {
            if (!quota_ || std::exchange(method_released_, true)) return;
            quota_->each(client_, [](Usage& usage) {
                WEFT_ASSERT(usage.running > 0);
                --usage.running;
            });
        }
        // The request is freed; the method may still run.
        void release_request() {
            if (!quota_ || bytes_ == 0) return;
            quota_->each(client_, [this](Usage& usage) { usage.bytes -= bytes_; });
            WEFT_ASSERT(quota_->bytes_ >= bytes_);
            quota_->bytes_ -= std::exchange(bytes_, 0);
        }

      private:
        std::shared_ptr<ResourceQuota> quota_;  // nullptr: it holds nothing.
        ClientKey client_;
        std::size_t bytes_ = 0;
        bool method_released_ = false;
    };

    // A slot for a request to a nonmember, released by the destructor.
    class NonmemberSlot {
      public:
        NonmemberSlot() = default;
        NonmemberSlot(std::shared_ptr<ResourceQuota> quota, const ClientKey& client)
            : quota_(std::move(quota)), client_(client) {}
        NonmemberSlot(NonmemberSlot&&) noexcept = default;
        NonmemberSlot& operator=(NonmemberSlot&& other) noexcept {
            std::swap(quota_, other.quota_);
            std::swap(client_, other.client_);
            return *this;
        }
        ~NonmemberSlot() {
            if (quota_) quota_->give_back(client_);
        }

      private:
        std::shared_ptr<ResourceQuota> quota_;
        ClientKey client_;
    };
    // nullopt: none is free for this client.
    std::optional<NonmemberSlot> take(const ClientKey& client) {
        const bool is_at_quota = of(client).nonmembers >= nonmembers_per_client_max ||
                                 of(client.peer).nonmembers >= nonmembers_per_peer_max;
        if (nonmembers_ >= nonmembers_max || is_at_quota) return {};
        each(client, [](Usage& usage) { ++usage.nonmembers; });
        ++nonmembers_;
        return NonmemberSlot(shared_from_this(), client);
    }

  private:
    void give_back(const ClientKey& client) {
        WEFT_ASSERT(nonmembers_ > 0);
        --nonmembers_;
        each(client, [](Usage& usage) {
            WEFT_ASSERT(usage.nonmembers > 0);
            --usage.nonmembers;
        });
    }
    // Counts for the client, and for its peer. If it throws, for neither.
    template <class Count>
    void each(const ClientKey& client, Count count) {
        make_usage_entries(usage_, client);
        for (const ClientKey& one : {client, ClientKey(client.peer)}) {
            const auto at = usage_.find(one);
            Usage& usage = at->second;
            count(usage);
            if (usage.running == 0 && usage.nonmembers == 0 && usage.bytes == 0) usage_.erase(at);
            if (client.number == 0) break;
        }
    }

    std::map<ClientKey, Usage> usage_;  // Number 0: the total of a peer.
    std::uint32_t nonmembers_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace weft::coll
