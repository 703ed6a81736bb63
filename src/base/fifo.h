// A queue in one vector: no allocation after the queue has reached its largest length.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace weft::base {

template <class T>
class Fifo {
  public:
    bool empty() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_; }
    T& front() { return items_[first_]; }
    T& operator[](std::size_t i) { return items_[first_ + i]; }
    const T& operator[](std::size_t i) const { return items_[first_ + i]; }

    void push(T item) {
        // Half of the items or more are popped: the rest moves down, at an amortized O(1) per item.
        if (items_.size() == items_.capacity() && first_ >= items_.size() - first_) compact();
        items_.push_back(std::move(item));
    }
    void pop() {
        items_[first_++] = T();
        if (empty()) clear();
    }
    void erase(std::size_t i) {
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
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
