// Intrusive queue from many threads to one (D. Vyukov, "Intrusive MPSC node-based queue").
//
// push: one exchange, wait-free, any thread. pop: one thread. A producer stopped between its two
// stores hides later entries until it goes on; pop() then answers nullptr, empty() false.
#pragma once

#include <atomic>

namespace weft::base {

struct MpscNode {
    std::atomic<MpscNode*> next{nullptr};
};

class MpscQueue {
  public:
    MpscQueue() : head_(&stub_), tail_(&stub_) {}

    void push(MpscNode& node) {
        node.next.store(nullptr, std::memory_order_relaxed);
        // Sequentially consistent with empty(), for consumers that announce their sleep and then
        // look once more.
        MpscNode* prev = head_.exchange(&node, std::memory_order_seq_cst);
        prev->next.store(&node, std::memory_order_release);
    }

    MpscNode* pop() {
        MpscNode* tail = tail_;
        MpscNode* next = tail->next.load(std::memory_order_acquire);
        if (tail == &stub_) {
            if (!next) return nullptr;
            tail_ = tail = next;
            next = next->next.load(std::memory_order_acquire);
        }
        if (next) {
            tail_ = next;
            return tail;
        }
        if (tail != head_.load(std::memory_order_acquire)) return nullptr;
        push(stub_);
        next = tail->next.load(std::memory_order_acquire);
        if (!next) return nullptr;
        tail_ = next;
        return tail;
    }

    // Consumer only. Cost: one load of the producers' word.
    bool empty() const {
        return tail_ == &stub_ && head_.load(std::memory_order_seq_cst) == &stub_;
    }

  private:
    alignas(64) std::atomic<MpscNode*> head_;
    alignas(64) MpscNode* tail_;
    MpscNode stub_;
};

}  // namespace weft::base
