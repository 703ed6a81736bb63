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
    bool again : 1 = false;       // Somebody else may have asked them before.
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
    Ask* find(std::uint32_t id);
    // What due_of() and the counts below depend on is changed by a `change(ask)`.
    template <class Change>
    void change(Ask& ask, Change change) {
        count(ask, -1);
        change(ask);
        count(ask, 1);
        if (all_->has_dues) add_due(ask);
    }
    Ask take(Ask& ask);
    std::vector<Ask> take_all();

    bool empty() const { return size() == 0; }
    std::size_t size() const { return all_ ? all_->asks.size() - all_->over : 0; }
    // When the next one is due.
    TimePoint due() const;
    // Those that are due by then, in the order in which they were made.
    std::vector<std::uint32_t> due_by(TimePoint now) const;
    bool all_parked() const { return !all_ || all_->parked == size(); }
    // All of them are silent, or wait only for some that are.
    bool all_quiet() const { return !all_ || all_->quiet == size(); }
    bool any_waits() const { return all_ && all_->waits != 0; }
    // Asked alone, without those that say nothing or that it takes longer.
    std::uint32_t alone() const { return all_ ? all_->alone : 0; }
    // Each in the order in which they were made. Nothing is added or taken out meanwhile. Cost: a
    // walk over all of them.
    template <class Visit>
    void for_each(Visit visit) const {
        if (!all_) return;
        all_->walked += all_->asks.size();
        for (const Ask& ask : all_->asks) {
            if (!ask.is_over) visit(ask);
        }
    }
    // The first that waits; nullptr: none does.
    Ask* first_that_waits();

    std::size_t heap_bytes() const {
        return all_ ? sizeof *all_ + all_->asks.capacity() * sizeof(Ask) +
                          all_->dues.capacity() * sizeof(Due)
                    : 0;
    }
    // How many asks and due times all of this has looked at, but for those that were sought.
    std::uint64_t walked() const { return all_ ? all_->walked : 0; }

  private:
    // So many are walked over, and need no order of what is due.
    static constexpr std::size_t few = 64;
    struct Due {
        TimePoint at;
        std::uint32_t id = 0;
        // For a heap with the earliest on top.
        bool operator<(const Due& other) const { return at > other.at; }
    };
    struct All {
        std::vector<Ask> asks;   // In order of their numbers; some are over.
        std::vector<Due> dues;   // A heap. What does not hold any more leaves it later.
        std::uint32_t over = 0;  // How many of them are, and of the others:
        std::uint32_t parked = 0;
        std::uint32_t quiet = 0;
        std::uint32_t waits = 0;
        std::uint32_t alone = 0;
        bool has_dues = false;
        std::uint64_t walked = 0;
    };

    void count(const Ask& ask, int by);
    void add_due(const Ask& ask);
    void order_dues();
    bool holds(const Due& due) const;
    static Ask* find_in(All& all, std::uint32_t id);

    std::unique_ptr<All> all_;  // nullptr: none was made, as at most ranks.
    std::uint32_t next_ = 1;
};

}  // namespace weft::coll
