// The transfers in progress of an endpoint: copies between peers' memory and local memory, made by
// this process, in slices, in the order of posting.
//
// Each slice is validated anew against the owner's table (region_table.h), so that a fence waits
// for one slice at most.
#pragma once

#include <array>

#include "na/arena.h"
#include "na/sm/connection.h"

namespace weft::na::sm {

inline constexpr std::size_t slice_bytes_max = 256 * 1024;
// The share of a turn while messages flow: it delays a message by 2 to 4 us.
inline constexpr std::size_t slice_bytes_busy = 16 * 1024;
inline constexpr Duration busy_for = 1ms;
inline constexpr std::size_t rma_bytes_max = 1 << 20;
inline constexpr std::uint32_t rma_depth = 16;

class RmaQueue {
  public:
    struct RmaOperation {
        RmaItem item;
        Connection* connection = nullptr;  // nullptr: the peer has disconnected, as `code` and
                                           // `why` state.
        std::size_t done = 0;
        Code code = Code::ok;
        const char* why = nullptr;
    };

    explicit RmaQueue(const Arena& own) : own_(own) {}

    bool has_room() const { return posted_ - taken_ < rma_depth; }
    bool is_idle() const { return posted_ == taken_; }

    // Requires: has_room(). A code other than ok: the transfer completes with it.
    void post(const RmaItem& item, Connection* connection, Code code, const char* why) noexcept;
    // Copies at most about `budget` bytes; returns the rest of the budget.
    std::size_t advance(std::size_t budget) noexcept;
    // Next completed transfer, or nullptr; valid until the next post().
    const RmaOperation* take() noexcept;
    bool has(const Connection& connection) const noexcept;
    // Ends all transfers with that peer.
    void drop(const Connection& connection, Code code, const char* why) noexcept;

  private:
    void copy_slice(RmaOperation& transfer, std::size_t bytes) noexcept;
    RmaOperation& at(std::uint64_t number) { return ring_[number % rma_depth]; }

    const Arena& own_;
    std::array<RmaOperation, rma_depth> ring_;
    std::uint64_t posted_ = 0;
    std::uint64_t copied_ = 0;
    std::uint64_t taken_ = 0;
};

}  // namespace weft::na::sm
