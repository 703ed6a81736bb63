// Intrusive queue from many threads to one (D. Vyukov, "Intrusive MPSC node-based queue").
//
// push: one exchange, wait-free, any thread. pop: one thread. A producer stopped between its two
// stores hides later entries until it continues; meanwhile pop() returns nullptr and empty() false.
#pragma once

#include <atomic>

namespace weft::base {

// `Atomic`: std::atomic, except in tests/models, which explore all executions.
template <template <class> class Atomic>
struct BasicMpscNode {
    Atomic<BasicMpscNode*> next{nullptr};
};

template <template <class> class Atomic>
class BasicMpscQueue {
  public:
    using Node = BasicMpscNode<Atomic>;

    BasicMpscQueue() : head_(&stub_), tail_(&stub_) {}

    void push(Node& node) {
        node.next.store(nullptr, std::memory_order_relaxed);
        // Sequentially consistent with empty(), for consumers that announce their sleep and then
        // call empty() once more.
        Node* prev = head_.exchange(&node, std::memory_order_seq_cst);
        prev->next.store(&node, std::memory_order_release);
    }

    Node* pop() {
        Node* tail = tail_;
        Node* next = tail->next.load(std::memory_order_acquire);
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

    // Consumer only. Cost: one load of `head_`.
    bool empty() const {
        return tail_ == &stub_ && head_.load(std::memory_order_seq_cst) == &stub_;
    }

  private:
    alignas(64) Atomic<Node*> head_;
    alignas(64) Node* tail_;
    Node stub_;
};

using MpscNode = BasicMpscNode<std::atomic>;
using MpscQueue = BasicMpscQueue<std::atomic>;

}  // namespace weft::base
