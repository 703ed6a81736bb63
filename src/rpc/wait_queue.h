// Calls that wait for a slot, for room or for a connection: calls made by handlers first, then the
// highest priority, and the oldest within a priority.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/assert.h"
#include "base/intrusive_list.h"
#include "rpc/client_call.h"
#include "rpc/wait_estimator.h"

namespace weft::rpc {

inline constexpr std::uint8_t priorities = priority_max + 1;

class WaitQueue {
  public:
    std::uint32_t size() const { return size_; }
    std::size_t bytes() const { return bytes_; }
    // The number of calls ahead of `call`.
    std::uint32_t ahead_of(const ClientCall& call) const {
        std::uint32_t ahead = 0;
        for (std::size_t i = index_of(call); i < sizes_.size(); ++i) ahead += sizes_[i];
        return ahead;
    }
    // The same of one method; 0 if that method is not counted.
    std::uint32_t ahead_of(const ClientCall& call, std::uint64_t method) const {
        const MethodCounts* const of = find(method);
        std::uint32_t ahead = 0;
        for (std::size_t i = index_of(call); of && i < of->sizes.size(); ++i) ahead += of->sizes[i];
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
        WEFT_DCHECK(size_ != 0 && call.waiting);
        WEFT_DCHECK(sizes_[index_of(call)] != 0 && bytes_ >= call.waiting->size());
        core::Deferred& node = call;
        node.unlink();
        --size_;
        --sizes_[index_of(call)];
        bytes_ -= call.waiting->size();
        // The method may have been without a count when this call was queued.
        MethodCounts* const of = find(call.waiting->method);
        if (of && of->sizes[index_of(call)] != 0) {
            --of->sizes[index_of(call)];
            --of->all;
        }
        if (list_of(call).empty()) nonempty_ &= ~(1u << index_of(call));
    }
    // nullptr: none waits.
    ClientCall* front() {
        if (nonempty_ == 0) return nullptr;
        return lists_[static_cast<unsigned>(std::bit_width(nonempty_)) - 1].front();
    }
    // `visit` may remove the call it is given.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (std::size_t i = lists_.size(); i-- > 0;) lists_[i].for_each(visit);
    }

  private:
    using Sizes = std::array<std::uint32_t, priorities + 1>;
    struct MethodCounts {
        std::uint64_t method = 0;
        std::uint32_t all = 0;  // 0: the entry is free.
        Sizes sizes{};
    };

    void count(ClientCall& call) {
        WEFT_DCHECK(call.waiting);
        ++size_;
        MethodCounts* of = find(call.waiting->method);
        if (!of) of = find_free();
        if (of) {
            of->method = call.waiting->method;
            ++of->all;
            ++of->sizes[index_of(call)];
        }
        ++sizes_[index_of(call)];
        bytes_ += call.waiting->size();
        nonempty_ |= 1u << index_of(call);
    }

    const MethodCounts* find(std::uint64_t method) const {
        const auto at = std::find_if(methods_.begin(), methods_.end(), [&](const MethodCounts& of) {
            return of.all != 0 && of.method == method;
        });
        return at == methods_.end() ? nullptr : &*at;
    }
    MethodCounts* find(std::uint64_t method) {
        return const_cast<MethodCounts*>(std::as_const(*this).find(method));
    }
    MethodCounts* find_free() {
        const auto at = std::find_if(methods_.begin(), methods_.end(),
                                     [](const MethodCounts& of) { return of.all == 0; });
        return at == methods_.end() ? nullptr : &*at;
    }
    static std::size_t index_of(const ClientCall& call) {
        if (call.traits.is_nested) return priorities;
        return std::min<std::size_t>(call.traits.priority, priorities - 1);
    }
    base::IntrusiveList<ClientCall, core::Deferred>& list_of(const ClientCall& call) {
        return lists_[index_of(call)];
    }

    std::array<base::IntrusiveList<ClientCall, core::Deferred>, priorities + 1> lists_;
    std::uint32_t nonempty_ = 0;  // A bit for each list that is not empty.
    Sizes sizes_{};
    std::array<MethodCounts, WaitEstimator::methods_max> methods_{};
    std::uint32_t size_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace weft::rpc
