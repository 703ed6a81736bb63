// Calls that wait for a slot, for room or for a connection: those of handlers first, then the
// highest priority, and of one priority the oldest.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/intrusive_list.h"
#include "rpc/client_call.h"

namespace weft::rpc {

inline constexpr std::uint8_t priorities = 8;

class WaitQueue {
  public:
    std::uint32_t size() const { return size_; }
    std::size_t bytes() const { return bytes_; }
    // Those that a call would wait for.
    std::uint32_t ahead_of(const ClientCall& call) const {
        std::uint32_t ahead = 0;
        for (std::size_t i = index_of(call); i < sizes_.size(); ++i) ahead += sizes_[i];
        return ahead;
    }

    // Requires: call.waiting.
    void push_back(ClientCall& call) {
        list_of(call).push_back(call);
        count(call);
    }
    // Before all others of its priority: it has waited already.
    void push_front(ClientCall& call) {
        list_of(call).push_front(call);
        count(call);
    }
    void remove(ClientCall& call) {
        core::Deferred& node = call;
        node.unlink();
        --size_;
        --sizes_[index_of(call)];
        bytes_ -= call.waiting->size();
        if (list_of(call).empty()) filled_ &= ~(1u << index_of(call));
    }
    // nullptr: none waits.
    ClientCall* front() {
        if (filled_ == 0) return nullptr;
        return lists_[static_cast<unsigned>(std::bit_width(filled_)) - 1].front();
    }
    // `visit` may remove the call it is given.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (std::size_t i = lists_.size(); i-- > 0;) lists_[i].for_each(visit);
    }

  private:
    void count(ClientCall& call) {
        ++size_;
        ++sizes_[index_of(call)];
        bytes_ += call.waiting->size();
        filled_ |= 1u << index_of(call);
    }

    static std::size_t index_of(const ClientCall& call) {
        if (call.traits.is_nested) return priorities;
        return std::min<std::size_t>(call.traits.priority, priorities - 1);
    }
    base::IntrusiveList<ClientCall, core::Deferred>& list_of(const ClientCall& call) {
        return lists_[index_of(call)];
    }

    std::array<base::IntrusiveList<ClientCall, core::Deferred>, priorities + 1> lists_;
    std::uint32_t filled_ = 0;  // A bit for each list that is not empty.
    std::array<std::uint32_t, priorities + 1> sizes_{};
    std::uint32_t size_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace weft::rpc
