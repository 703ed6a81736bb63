// Cached registrations of the arena's memory: to pin and map memory for the device takes longer
// than to transfer most of it.
//
// In blocks of 2 MiB, or two of them for memory across a border. The arena holds the pages of what
// is registered, so a registration stays valid when memory is freed and reused. When the total
// exceeds a budget, idle registrations are evicted, the longest unused first.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/intrusive_list.h"
#include "na/arena.h"
#include "na/verbs/device.h"

namespace weft::na::verbs {

// A cached registration. Idle ones are in a list by their age.
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
    // Of the largest registration: less room caches nothing.
    static constexpr std::size_t bytes_min = 2 * Arena::hold_bytes;
    // `device` and `arena` outlive it. bytes_max: of registered memory; 0 caches nothing.
    RegistrationCache(Device& device, Arena& arena, std::size_t bytes_max)
        : device_(device), arena_(arena), bytes_max_(bytes_max) {}
    ~RegistrationCache();
    RegistrationCache(const RegistrationCache&) = delete;
    RegistrationCache& operator=(const RegistrationCache&) = delete;

    // The registration that covers `memory`, for local access: valid until give_back(). nullptr:
    // memory outside of the arena, or in more than two blocks, or no room for it.
    Registration* take(Bytes memory) noexcept;
    void give_back(Registration& registration) noexcept;

    std::size_t bytes() const { return bytes_; }
    // Drops all registrations without closing them: in a forked child they belong to the parent.
    void abandon() noexcept;

  private:
    Registration* add(std::uint64_t key, std::uint64_t offset, Bytes memory);
    void remove(Registration& registration) noexcept;
    void shrink(std::size_t to) noexcept;

    Device& device_;
    Arena& arena_;
    const std::size_t bytes_max_;
    std::size_t bytes_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<Registration>> all_;
    base::IntrusiveList<Registration> idle_;  // The longest unused first.
};

}  // namespace weft::na::verbs
