// The requests under way of one CollectiveState. A large group has a hundred thousand of them: each
// is found, changed and removed, and the next due time is known, without a walk over the others.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <weft/time.h>

#include "base/assert.h"
#include "coll/interval.h"
#include "coll/suspicion.h"
#include "coll/wire.h"

namespace weft::coll {

enum class RequestPhase : std::uint8_t {
    queued,       // Remaining ranks are requested alone later.
    sent,         // Awaits a reply.
    stale_view,   // Refused for a later view, as others may be.
    backing_off,  // Its partial reply was early: resumed later.
};

constexpr bool can_move(RequestPhase from, RequestPhase to) {
    switch (to) {
        case RequestPhase::queued: return false;
        case RequestPhase::sent: return from != RequestPhase::queued;
        case RequestPhase::stale_view:
        case RequestPhase::backing_off: return from == RequestPhase::sent;
    }
    return false;
}

// A request under way.
struct ChildRequest {
    std::uint32_t id = 0;
    Interval of;  // Positions that a failure or reply is for.
    RequestKind kind = RequestKind::all;
    std::uint8_t rounds = 0;           // How often it got a partial reply.
    bool is_repeat : 1 = false;        // Another rank may have sent it before.
    bool named : 1 = false;            // Carries the subtree's members: its view differs.
    bool is_suspect : 1 = false;       // Its children were contacted directly.
    bool awaits_suspects : 1 = false;  // It waits only for suspects.
    bool removed : 1 = false;          // By ChildRequests.
    RequestPhase phase = RequestPhase::sent;
    TimePoint sent_at{};

    bool is(RequestPhase one) const { return phase == one; }
    void move_to(RequestPhase next) {
        WEFT_ASSERT(can_move(phase, next));
        phase = next;
    }
};
static_assert(sizeof(ChildRequest) == 24);  // One for each rank of a group, over all ranks.

class ChildRequests {
  public:
    // Room for `more` requests.
    void reserve(std::size_t more);
    // Assigns the id. The reference is valid until the next add() or take().
    ChildRequest& add(ChildRequest made);
    // nullptr: it has ended.
    ChildRequest* find(std::uint32_t id) const;
    // Changes to fields that due_of() or the counts below depend on go through `change(request)`.
    template <class Change>
    void change(ChildRequest& request, Change change) {
        if (all_->index) all_->index->counts.add(request, -1);
        change(request);
        if (all_->index) note_changed(request);
    }
    ChildRequest take(ChildRequest& request);
    std::vector<ChildRequest> take_all();

    bool empty() const { return size() == 0; }
    std::size_t size() const { return all_ ? all_->requests.size() - all_->removed : 0; }
    // When the next request is due.
    TimePoint due() const;
    // The requests that are due by then, in the order of add().
    std::vector<std::uint32_t> due_by(TimePoint now) const;
    bool all_stale_view() const { return counts().stale_view == size(); }
    // Every request is suspect, or waits only for suspects.
    bool all_suspect() const { return counts().suspect == size(); }
    // Requests for one rank alone, without suspect and slow ones.
    std::uint32_t self_only() const { return counts().self_only; }
    // The first queued request; nullptr: none.
    ChildRequest* first_queued();
    // Visits each in the order of add(). `visit` must not add or remove. Cost: a walk over all of
    // them.
    template <class Visit>
    void for_each(Visit visit) const {
        if (!all_) return;
        count_visits(all_->requests.size());
        for (const ChildRequest& request : all_->requests) {
            if (!request.removed) visit(request);
        }
    }

    std::size_t heap_bytes() const;
    // With an index: how many requests and due times were visited so far, but for lookups by id.
    std::uint64_t visited() const { return all_ && all_->index ? all_->index->visited : 0; }

  private:
    // Up to this many are walked over, without an index.
    static constexpr std::size_t few = 64;
    struct Counts {
        std::uint32_t stale_view = 0;
        std::uint32_t suspect = 0;
        std::uint32_t queued = 0;
        std::uint32_t self_only = 0;
        void add(const ChildRequest& request, int by);
    };
    struct Due {
        TimePoint at;
        std::uint32_t id = 0;
        // For a heap with the earliest on top.
        bool operator<(const Due& other) const { return at > other.at; }
    };
    struct Index {
        Counts counts;
        std::vector<Due> dues;  // A heap. Stale entries are removed later.
        std::uint64_t visited = 0;
    };
    struct All {
        std::vector<ChildRequest> requests;  // By id; some are removed.
        std::unique_ptr<Index> index;        // For many. Without memory there is none.
        std::uint32_t removed = 0;           // How many of `requests` are removed.
    };

    Counts counts() const;
    void count_visits(std::size_t looked_at) const {
        if (all_->index) all_->index->visited += looked_at;
    }
    void note_changed(const ChildRequest& request);
    void make_index();
    void order_dues();
    bool is_current(const Due& due) const;

    std::unique_ptr<All> all_;  // nullptr: none was made, as at most ranks.
    std::uint32_t next_ = 1;
};

}  // namespace weft::coll
