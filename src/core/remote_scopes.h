// The scopes that stand, in one context, for calls that other contexts of the runtime serve: of
// work that their handlers have submitted here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "base/intrusive_list.h"
#include "core/inherited_scope.h"

namespace weft::core {

// Their memory is used again and not freed, because a context may look at a scope that has ended.
// Thread: the context's.
class RemoteScopes {
  public:
    // Of one submission: the number of its context, and its number there.
    struct Key {
        std::uint64_t context = 0;
        std::uint64_t serial = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };

    struct Remote : base::ListNode {
        std::uint32_t generation = 0;  // Odd: open.
        CallScope scope{generation};
        Key key;
    };

    RemoteScopes() = default;
    RemoteScopes(const RemoteScopes&) = delete;
    RemoteScopes& operator=(const RemoteScopes&) = delete;
    ~RemoteScopes() {
        for (std::size_t i = 0; i < places_; ++i) {
            while (open_[i].pop_front()) {
            }
        }
        while (free_.pop_front()) {
        }
    }

    Remote& open(const Key& key, TimePoint deadline) {
        if (free_.empty()) add();
        Remote& remote = *free_.pop_front();
        ++remote.generation;
        remote.key = key;
        remote.scope.deadline = deadline;
        place_of(key).push_back(remote);
        return remote;
    }
    // The operations that are left continue without a scope.
    void close(Remote& remote) {
        CallScope& scope = remote.scope;
        WEFT_ASSERT(scope.is_open());
        scope.release_operations();
        scope.deadline = never;
        scope.cancelled = scope.needs_cleanup = false;
        ++remote.generation;
        remote.unlink();
        free_.push_back(remote);
    }
    // No effect on one that has ended. Returns how many open ones it has compared: a few for each
    // context that submits, however many are open.
    std::size_t cancel(const Key& key) {
        if (places_ == 0) return 0;
        Remote* found = nullptr;
        std::size_t compared = 0;
        place_of(key).for_each([&](Remote& one) {
            ++compared;
            if (one.key == key) found = &one;
        });
        if (!found) return compared;
        found->scope.cancelled = true;
        found->scope.cancel_operations();
        return compared;
    }
    std::size_t made() const { return all_.size(); }

  private:
    using List = base::IntrusiveList<Remote>;
    static constexpr std::size_t places_min = 16;

    // The serials of a context rise by one, or by a step where it submits to several; the factor
    // spreads both (Fibonacci hashing). A peer that fills one place with the scopes of its calls
    // needs about `places_` submissions for each.
    List& place_of(const Key& key) {
        WEFT_DCHECK(places_ != 0);
        return open_[key.serial * 0x9e3779b97f4a7c15 >> shift_];
    }
    void add() {
        if (all_.size() == places_) grow();
        all_.push_back(std::make_unique<Remote>());
        free_.push_back(*all_.back());
    }
    void grow() {
        const std::size_t before = places_;
        const std::unique_ptr<List[]> old = std::move(open_);
        places_ = before == 0 ? places_min : 2 * before;
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(places_));
        open_ = std::make_unique<List[]>(places_);
        for (std::size_t i = 0; i < before; ++i) {
            while (Remote* const one = old[i].pop_front()) place_of(one->key).push_back(*one);
        }
    }

    std::vector<std::unique_ptr<Remote>> all_;
    std::unique_ptr<List[]> open_;  // By serials.
    std::size_t places_ = 0;        // A power of two, at least the size of all_; or 0.
    unsigned shift_ = 0;            // 64 - log2(places_).
    List free_;
};

}  // namespace weft::core
