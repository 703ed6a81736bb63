// Doubly linked list through a member of the entries: no allocation, O(1) removal from anywhere.
//
// Lifetime: an entry must leave its list before it is destroyed; the list does not own entries.
#pragma once

#include <cstddef>

#include "base/assert.h"

namespace weft::base {

struct ListNode {
    ListNode* prev = nullptr;
    ListNode* next = nullptr;

    ListNode() = default;
    ListNode(const ListNode&) = delete;
    ListNode& operator=(const ListNode&) = delete;

    bool is_linked() const { return next != nullptr; }
    void unlink() {
        WEFT_DCHECK(is_linked());
        prev->next = next;
        next->prev = prev;
        next = nullptr;  // is_linked() reads it; `prev` is set when the node is linked again.
    }
};

// `T` derives from ListNode, or names a base with its own tag via `Node`.
template <class T, class Node = ListNode>
class IntrusiveList {
  public:
    IntrusiveList() { head_.prev = head_.next = &head_; }
    ~IntrusiveList() { WEFT_DCHECK(empty()); }

    bool empty() const { return head_.next == &head_; }

    void push_back(T& entry) {
        Node& node = entry;
        WEFT_DCHECK(!node.is_linked());
        node.prev = head_.prev;
        node.next = &head_;
        head_.prev->next = &node;
        head_.prev = &node;
    }

    void push_front(T& entry) {
        Node& node = entry;
        WEFT_DCHECK(!node.is_linked());
        node.prev = &head_;
        node.next = head_.next;
        head_.next->prev = &node;
        head_.next = &node;
    }

    T* back() { return empty() ? nullptr : static_cast<T*>(static_cast<Node*>(head_.prev)); }
    T* front() { return empty() ? nullptr : static_cast<T*>(static_cast<Node*>(head_.next)); }

    T* pop_front() {
        T* entry = front();
        if (entry) static_cast<Node*>(entry)->unlink();
        return entry;
    }

    // Moves every entry of `other` to the end of this list.
    void splice_back(IntrusiveList& other) {
        WEFT_DCHECK(&other != this);
        if (other.empty()) return;
        other.head_.next->prev = head_.prev;
        head_.prev->next = other.head_.next;
        other.head_.prev->next = &head_;
        head_.prev = other.head_.prev;
        other.head_.prev = other.head_.next = &other.head_;
    }

    // Calls `visit(entry)` for each entry; `visit` may unlink the entry it is given.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (ListNode* node = head_.next; node != &head_;) {
            ListNode* next = node->next;
            visit(*static_cast<T*>(static_cast<Node*>(node)));
            node = next;
        }
    }

  private:
    Node head_;
};

}  // namespace weft::base
