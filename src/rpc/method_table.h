// Methods by the hash of their name: open addressing, half full at most, so that a lookup is one
// multiply-free probe in the common case.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/call.h>
#include <weft/result.h>
#include <weft/service.h>

#include "base/histogram.h"

namespace weft::rpc {

struct Method {
    std::uint64_t hash = 0;
    std::string name;
    RawHandler handler;
    MethodTraits traits;
    bool stays = false;  // Also when the table is closed.

    base::Latencies latencies;  // Nanoseconds from the handler's begin to its answer.
};

class MethodTable {
  public:
    // Errors: ALREADY_EXISTS, also when two names share a hash.
    Status add(std::string_view full_name, RawHandler handler, MethodTraits traits,
               bool stays = false);
    std::size_t size() const { return methods_.size(); }
    // Takes the last ones back, down to so many. Requires: none of them was called.
    void shrink(std::size_t to);
    // From here on nothing is found but what stays.
    void close();
    // Nor that.
    void close_all();
    // Of methods that nobody calls any more; their names stay.
    void drop_handlers();

    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& method : methods_) visit(*method);
    }
    Method* find(std::uint64_t hash) const {
        for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
            Method* method = slots_[i];
            if (!method || method->hash == hash) return method;
        }
    }

  private:
    void rebuild(bool is_open);

    std::vector<std::unique_ptr<Method>> methods_;  // Calls in their handlers name them.
    std::vector<Method*> slots_ = {nullptr};
    std::size_t mask_ = 0;
};

}  // namespace weft::rpc
