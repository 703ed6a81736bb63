// Requests of collectives to members, bounded in each turn: one request may name thousands of
// members, the requests to them may fail at once, and each failure contacts the ranks below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "coll/collective_table.h"
#include "core/context.h"

namespace weft::coll {

// A collective with deferred requests.
class DeferredSender {
  public:
    // Sends one of them, or concludes its failure. False: none is left.
    virtual bool run_deferred() = 0;

  protected:
    ~DeferredSender() = default;
};

// Collectives with requests that are deferred to later turns. The peers that brought them take
// turns, one request each. Thread: the context's.
class DeferredRequests {
  public:
    // Requests for the sake of peers that are sent, and failures that are concluded, in one turn.
    static constexpr std::int64_t per_turn_max = 64;
    // Copying that many bytes costs about as much as one more request.
    static constexpr std::size_t bytes_per_request = 128 << 10;

    explicit DeferredRequests(core::Context& context);
    DeferredRequests(const DeferredRequests&) = delete;
    DeferredRequests& operator=(const DeferredRequests&) = delete;
    ~DeferredRequests() { clear(); }

    // Whether one more request, with that many bytes, may be sent in this turn: it then counts.
    bool may_send(std::size_t bytes);
    // Counts one more request that is sent, or failure that is concluded.
    void count(std::size_t bytes) {
        left_ -= 1 + static_cast<std::int64_t>(bytes / bytes_per_request);
        ++processed_;
        max_in_turn_ = std::max(max_in_turn_, ++in_turn_);
    }
    // The collective, which `peer` brought, continues in later turns. Requires: it is not added
    // already.
    void add(const SessionKey& peer, std::shared_ptr<DeferredSender> collective);
    void clear();
    // Requests sent and failures concluded so far.
    std::uint64_t processed() const { return processed_; }
    std::uint64_t max_in_turn() const { return max_in_turn_; }

  private:
    struct Next : core::Deferred {
        DeferredRequests* of = nullptr;
    };

    void begin_turn();
    void run();
    std::shared_ptr<DeferredSender> take_next();

    core::Context& context_;
    Next next_;
    std::map<SessionKey, std::deque<std::shared_ptr<DeferredSender>>> waiting_;
    SessionKey last_;        // The peer with the last turn.
    TimePoint turn_time_{};  // For these counts:
    std::int64_t left_ = 0;
    std::uint64_t in_turn_ = 0;
    std::uint64_t processed_ = 0;
    std::uint64_t max_in_turn_ = 0;
};

}  // namespace weft::coll
