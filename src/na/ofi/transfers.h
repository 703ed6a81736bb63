// The transfers that an endpoint started and that have not ended.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "na/ofi/connection.h"

namespace weft::na::ofi {

inline constexpr std::uint32_t transfer_depth = 128;

class Transfers {
  public:
    // `pattern`: random; see mark_unread().
    explicit Transfers(std::array<std::uint64_t, 2> pattern) : unread_(pattern) {
        free_.reserve(transfer_depth);
        for (RmaOperation& transfer : all_) free_.push_back(&transfer);
    }

    bool has_room() const { return !free_.empty(); }
    RmaOperation& take(const RmaItem& item) {
        WEFT_DCHECK(has_room());
        RmaOperation& transfer = *free_.back();
        free_.pop_back();
        transfer.item = item;
        transfer.cut_code = Code::ok;
        return transfer;
    }
    void give_back(RmaOperation& transfer) {
        WEFT_DCHECK(!transfer.is_linked() && free_.size() < all_.size());
        transfer.posted = false;
        free_.push_back(&transfer);
    }

    template <class Visit>
    void for_each_posted(Visit&& visit) {
        for (RmaOperation& transfer : all_) {
            if (transfer.posted) visit(transfer);
        }
    }
    template <class Test>
    bool any_posted(Test&& test) const {
        return std::ranges::any_of(
            all_, [&](const RmaOperation& transfer) { return transfer.posted && test(transfer); });
    }

    // Writes a pattern to the memory of a get before it is posted.
    void mark_unread(const RmaItem& item) const {
        if (item.local.size() < sizeof unread_) return;
        std::memcpy(item.local.data(), unread_.data(), sizeof unread_);
    }
    // Whether the reply to a posted get is arriving: its memory no longer begins with the pattern,
    // and the get has not completed. A get that is smaller than the pattern arrives in one piece.
    bool is_arriving(const RmaItem& item) const {
        return item.kind == RmaKind::get && item.local.size() >= sizeof unread_ &&
               std::memcmp(item.local.data(), unread_.data(), sizeof unread_) != 0;
    }

  private:
    std::array<RmaOperation, transfer_depth> all_;
    std::vector<RmaOperation*> free_;
    const std::array<std::uint64_t, 2> unread_;
};

}  // namespace weft::na::ofi
