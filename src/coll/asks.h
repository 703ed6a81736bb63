// The questions of one part that are under way, of which a large group has a hundred thousand: each
// is found, changed and taken out, and the time of the next one that is due is known, without a
// walk over the others. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <weft/time.h>

#include "coll/interval.h"
#include "coll/wire.h"

namespace weft::coll {

// A question under way.
struct Ask {
    std::uint32_t id = 0;
    Interval of;  // Of a failure or an answer: all of these are judged by it.
    Asking asking = Asking::all;
    std::uint8_t rounds = 0;      // How often it said that there is more to come.
    bool again : 1 = false;       // Another rank may have asked them before.
    bool named : 1 = false;       // The members of the subtree are named: theirs is another view.
    bool is_silent : 1 = false;   // Those below it have been asked by us.
    bool parked : 1 = false;      // Refused, for a later view; so may be all others.
    bool has_silent : 1 = false;  // All it waits for are some that are silent.
    bool paused : 1 = false;      // It said so too early, and is asked again later.
    bool waits : 1 = false;       // Who is left of these is asked alone, when others have answered.
    bool is_over : 1 = false;     // Of Asks: taken out.
    TimePoint sent_at{};
};
static_assert(sizeof(Ask) == 24);  // One for each rank of a group, all parts together.

// When it is asked again, or is silent.
TimePoint due_of(const Ask& ask);

class Asks {
  public:
    // Room for that many more.
    void expect(std::size_t more);
    // Gives it its number. Stays where it is until the next one is added or taken out.
    Ask& add(Ask made);
    // nullptr: it is over.
    Ask* find(std::uint32_t id) const;
    // What due_of() and the counts below depend on is changed by a `change(ask)`.
    template <class Change>
    void change(Ask& ask, Change change) {
        if (all_->index) all_->index->counts.add(ask, -1);
        change(ask);
        if (all_->index) note_changed(ask);
    }
    Ask take(Ask& ask);
    std::vector<Ask> take_all();

    bool empty() const { return size() == 0; }
    std::size_t size() const { return all_ ? all_->asks.size() - all_->over : 0; }
    // When the next one is due.
    TimePoint due() const;
    // Those that are due by then, in the order in which they were made.
    std::vector<std::uint32_t> due_by(TimePoint now) const;
    bool all_parked() const { return counts().parked == size(); }
    // All of them are silent, or wait only for some that are.
    bool all_quiet() const { return counts().quiet == size(); }
    // Asked alone, without those that say nothing or that it takes longer.
    std::uint32_t alone() const { return counts().alone; }
    // The first that waits; nullptr: none does.
    Ask* first_that_waits();
    // Each in the order in which they were made. Nothing is added or taken out meanwhile. Cost: a
    // walk over all of them.
    template <class Visit>
    void for_each(Visit visit) const {
        if (!all_) return;
        note_walk(all_->asks.size());
        for (const Ask& ask : all_->asks) {
            if (!ask.is_over) visit(ask);
        }
    }

    std::size_t heap_bytes() const;
    // Where there are many: how many asks and due times all of this has looked at, but for those
    // that were sought.
    std::uint64_t walked() const { return all_ && all_->index ? all_->index->walked : 0; }

  private:
    // So many are walked over, and take no room for more.
    static constexpr std::size_t few = 64;
    struct Counts {
        std::uint32_t parked = 0;
        std::uint32_t quiet = 0;
        std::uint32_t waits = 0;
        std::uint32_t alone = 0;
        void add(const Ask& ask, int by);
    };
    struct Due {
        TimePoint at;
        std::uint32_t id = 0;
        // For a heap with the earliest on top.
        bool operator<(const Due& other) const { return at > other.at; }
    };
    struct Index {
        Counts counts;
        std::vector<Due> dues;  // A heap. What does not hold any more leaves it later.
        std::uint64_t walked = 0;
    };
    struct All {
        std::vector<Ask> asks;         // In order of their numbers; some are over.
        std::unique_ptr<Index> index;  // Of many. For want of memory there is none.
        std::uint32_t over = 0;        // So many are.
    };

    Counts counts() const;
    void note_walk(std::size_t looked_at) const {
        if (all_->index) all_->index->walked += looked_at;
    }
    void note_changed(const Ask& ask);
    void make_index();
    void order_dues();
    bool holds(const Due& due) const;

    std::unique_ptr<All> all_;  // nullptr: none was made, as at most ranks.
    std::uint32_t next_ = 1;
};

}  // namespace weft::coll
