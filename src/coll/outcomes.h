// What came of a collective for the positions of one subtree: pure and without I/O.
//
// A success without a reply of its own is an interval; what failed, and replies that are listed,
// take a place each. Of merged replies there is one value, or several in order of position until
// what lies between them is there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <weft/status.h>

#include "coll/costs.h"
#include "coll/interval.h"
#include "coll/reduce.h"

namespace weft::coll {

struct Outcome {
    std::uint32_t position = 0;
    Status status;
    std::vector<std::byte> reply;
};

// What a rank tells of its subtree.
struct Answer {
    enum class Kind : std::uint8_t {
        complete,  // All of it is told.
        partial,   // This much is known so far.
        stale,     // It has another view and did nothing.
        silent,    // As partial: only of some who say nothing it is not known.
        late,      // It did nothing: by its clock the collective is too old to begin.
    };
    Kind kind = Kind::complete;
    std::uint64_t epoch = 0;        // Of a stale one: what there is there; 0: no such group.
    std::uint64_t clock = 0;        // Of any other: the time there (peer_clock.h); 0: not told.
    Cost cost;                      // Of a complete one: what asking costs in its subtree.
    std::vector<Interval> ok;       // Succeeded, with a reply that is empty or in the value.
    std::vector<Outcome> outcomes;  // The others.
    bool has_value = false;         // Of all those in `ok`, merged.
    std::vector<std::byte> value;
};

class Outcomes {
  public:
    explicit Outcomes(const Merge& merge) {
        if (!merge.is_list()) merging_ = std::make_unique<Merging>(Merging{merge, {}, {}, false});
    }

    // One position's. False: it is known already. Of a reply that can't be merged (Merge::judge())
    // its rank fails.
    bool add(std::uint32_t position, Status status, ByteView reply);
    // What another says of the positions in `of`, others and those that are known are left out. A
    // merged value can't be taken apart: unless all that is in it is new, nothing of it is taken.
    void add(Interval of, Answer answer);
    // The same failure for all that are not known.
    void add_missing(Interval of, const Status& status);

    // Somebody may run it yet: that it had no effect is not sure any more.
    void doubt(Interval of);

    bool contains(Interval of) const { return known_.contains(of); }
    std::vector<Interval> missing(Interval of) const { return known_.missing(of); }
    std::uint32_t first_missing(Interval of) const { return known_.first_missing(of); }
    std::uint32_t ok_count() const { return ok_; }
    std::uint32_t known_count() const { return known_count_; }

    // All that is known, for whoever is above, as an answer of that kind. Merged ones can be told
    // once only, when all is there: before that there is nothing in it.
    Answer told(Answer::Kind kind) const;
    static Answer told_nothing(Answer::Kind kind) {
        Answer answer;
        answer.kind = kind;
        return answer;
    }
    // The own reply of a rank whose replies are merged.
    void keep_own(std::uint32_t position, const Status& status, ByteView reply);
    // As an answer of its own; nothing where none was kept.
    const Answer* own() const { return merging_ && merging_->has_own ? &merging_->own : nullptr; }

    const std::vector<Outcome>& notable() const { return notable_; }
    const IntervalSet& known() const { return known_; }
    // All is known: merges what is left.
    void finish();
    // Of all that succeeded. Requires: finish() was called.
    std::vector<std::byte> value() const;
    std::size_t heap_bytes() const;

  private:
    struct Piece {
        Interval over;  // From the first to the last that is in it.
        std::vector<std::byte> value;
    };
    struct Merging {
        Merge merge;
        std::vector<Piece> pieces;  // By position.
        Answer own;
        bool has_own = false;
    };

    std::uint32_t know(const IntervalSet& fresh);
    void add_value(Interval over, std::vector<std::byte> value);
    void merge_in(Interval over, std::vector<std::byte> value);
    void join_neighbours(std::size_t at);
    void spoil(Interval over, const Status& why);

    IntervalSet known_;
    std::vector<Outcome> notable_;
    std::unique_ptr<Merging> merging_;
    std::uint32_t ok_ = 0;
    std::uint32_t known_count_ = 0;
};

}  // namespace weft::coll
