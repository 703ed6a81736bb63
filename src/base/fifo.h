// A queue in one vector: no allocation after the queue has reached its largest length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace weft::base {

template <class T>
class Fifo {
  public:
    bool empty() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_; }
    T& front() { return (*this)[0]; }
    T& operator[](std::size_t i) {
        WEFT_DCHECK(i < size());
        return items_[first_ + i];
    }
    const T& operator[](std::size_t i) const {
        WEFT_DCHECK(i < size());
        return items_[first_ + i];
    }

    void push(T item) {
        // Half of the items or more are popped: the rest moves down, at an amortized O(1) per item.
        if (items_.size() == items_.capacity() && first_ >= items_.size() - first_) compact();
        items_.push_back(std::move(item));
    }
    void pop() {
        WEFT_DCHECK(!empty());
        items_[first_++] = T();
        if (empty()) clear();
    }
    void erase(std::size_t i) {
        WEFT_DCHECK(i < size());
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
        if (empty()) clear();
    }
    // Erases the items for which `test(item)`; one test an item, in their order.
    template <class Test>
    void erase_if(Test&& test) {
        const auto first = items_.begin() + static_cast<std::ptrdiff_t>(first_);
        items_.erase(std::remove_if(first, items_.end(), std::forward<Test>(test)), items_.end());
        if (empty()) clear();
    }
    void clear() {
        items_.clear();
        first_ = 0;
    }

  private:
    void compact() {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }

    std::vector<T> items_;
    std::size_t first_ = 0;
};

}  // namespace weft::base
