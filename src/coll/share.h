// What collectives of others hold here while they run, by the peer that brought them: each has a
// share, so that none keeps the others out. Pure.
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
    static constexpr std::uint32_t running_most = 1024;  // Collectives of one asker.
    static constexpr std::uint32_t strangers_most =
        256;  // Named members that it lets this rank ask
    static constexpr std::uint32_t strangers_all = 1024;  // at once, and those of all askers.

    struct Held {
        std::uint32_t running = 0;
        std::uint32_t strangers = 0;
        std::size_t bytes = 0;  // Of requests, as the engine counts them.
    };
    Held of(const AskerId& asker) const {
        const auto at = held_.find(asker);
        return at == held_.end() ? Held() : at->second;
    }
    void begin(const AskerId& asker, std::size_t bytes) {
        Held& held = held_[asker];
        ++held.running;
        held.bytes += bytes;
    }
    void end(const AskerId& asker, std::size_t bytes) {
        Held& held = held_[asker];
        --held.running;
        held.bytes -= bytes;
        tidy(asker);
    }

    // A place among the strangers, given back by its end.
    class Place {
      public:
        Place() = default;
        Place(std::shared_ptr<Shares> shares, const AskerId& asker)
            : shares_(std::move(shares)), asker_(asker) {}
        Place(Place&&) noexcept = default;
        Place& operator=(Place&& other) noexcept {
            std::swap(shares_, other.shares_);
            std::swap(asker_, other.asker_);
            return *this;
        }
        ~Place() {
            if (shares_) shares_->give_back(asker_);
        }

      private:
        std::shared_ptr<Shares> shares_;
        AskerId asker_;
    };
    // nullopt: there is none for it.
    std::optional<Place> take(const AskerId& asker) {
        if (strangers_ >= strangers_all || of(asker).strangers >= strangers_most) return {};
        ++strangers_;
        ++held_[asker].strangers;
        return Place(shared_from_this(), asker);
    }

  private:
    void give_back(const AskerId& asker) {
        --strangers_;
        --held_[asker].strangers;
        tidy(asker);
    }
    void tidy(const AskerId& asker) {
        const auto at = held_.find(asker);
        if (at->second.running == 0 && at->second.strangers == 0) held_.erase(at);
    }

    std::map<AskerId, Held> held_;
    std::uint32_t strangers_ = 0;
};

}  // namespace weft::coll
