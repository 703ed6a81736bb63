// The calls whose handlers returned without an answer, by client and number: what a cancel names.
//
// A hash table chained through the records: no allocation but the buckets', which grow with the
// calls. A random factor keeps strangers, who choose the numbers, from aiming at one bucket.
#pragma once

#include <cstdint>
#include <vector>

#include "rpc/server_call.h"

namespace weft::rpc {

class HeldCalls {
  public:
    explicit HeldCalls(std::uint64_t random) : factor_(random | 1) {}

    // False, and nothing done: this client has a held call of this number already.
    bool add(ServerCall& call);
    // Requires: held, and its peer not changed since.
    void remove(ServerCall& call);
    // nullptr: none.
    ServerCall* find(const core::Peer& peer, WireCallId id) const;

    std::size_t size() const { return size_; }

  private:
    std::size_t bucket_of(const core::Peer& peer, WireCallId id) const;
    void grow();

    const std::uint64_t factor_;
    std::vector<ServerCall*> buckets_ = std::vector<ServerCall*>(64);  // A power of two.
    std::size_t size_ = 0;
};

}  // namespace weft::rpc
