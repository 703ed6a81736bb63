// A queue that holds little memory while it is empty: idle endpoints are many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace weft::na::sim {

template <class T>
class Fifo {
  public:
    bool empty() const { return head_ == all_.size(); }
    std::size_t size() const { return all_.size() - head_; }
    const T& front() const { return all_[head_]; }
    void push(T one) { all_.push_back(std::move(one)); }
    // Requires: not empty.
    T pop() {
        WEFT_DCHECK(!empty());
        T first = std::move(all_[head_]);
        if (++head_ == all_.size()) clear();
        return first;
    }
    template <class Test>
    bool any_of(Test&& test) const {
        return std::any_of(all_.begin() + static_cast<std::ptrdiff_t>(head_), all_.end(), test);
    }
    void clear() {
        all_.clear();
        head_ = 0;
        if (all_.capacity() > kept_max) all_.shrink_to_fit();
    }

  private:
    static constexpr std::size_t kept_max = 64;

    std::vector<T> all_;  // Valid from head_ on.
    std::size_t head_ = 0;
};

}  // namespace weft::na::sim
