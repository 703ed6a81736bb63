// Registrations of the arena's memory that are kept: to pin and map memory for the card takes
// longer than to transfer most of it.
//
// In blocks of 2 MiB, or two of them for what lies across a border. The arena holds the pages of
// what is registered, so what the card knows stays true when memory is freed and used again. What
// is idle goes, the longest unused first, when all is more than a budget.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/intrusive_list.h"
#include "na/arena.h"
#include "na/verbs/card.h"

namespace weft::na::verbs {

// One that is kept. Idle ones are in a list by their age.
struct Registration : base::ListNode {
    std::uint64_t key = 0;
    std::uint64_t offset = 0;  // In the arena.
    std::size_t bytes = 0;
    std::uint32_t uses = 0;
    Owned<ibv_mr> region;
};

// Thread: its endpoint's owner.
class RegistrationCache {
  public:
    // `card` and `arena` outlive it. bytes_max: of what is registered, 0 keeps nothing.
    RegistrationCache(Card& card, Arena& arena, std::size_t bytes_max)
        : card_(card), arena_(arena), bytes_max_(bytes_max) {}
    ~RegistrationCache();
    RegistrationCache(const RegistrationCache&) = delete;
    RegistrationCache& operator=(const RegistrationCache&) = delete;

    // What all of `memory` is in, for local access: valid until give_back(). nullptr: memory that
    // is not the arena's, or more than a block, or no room for it.
    Registration* take(Bytes memory) noexcept;
    void give_back(Registration& registration) noexcept;

    std::size_t bytes() const { return bytes_; }
    // In a process that was forked the card's objects are another one's.
    void forget() noexcept;

  private:
    Registration* add(std::uint64_t key, std::uint64_t offset, Bytes memory);
    void remove(Registration& registration) noexcept;
    void shrink(std::size_t to) noexcept;

    Card& card_;
    Arena& arena_;
    const std::size_t bytes_max_;
    std::size_t bytes_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<Registration>> all_;
    base::IntrusiveList<Registration> idle_;  // The longest unused first.
};

}  // namespace weft::na::verbs
