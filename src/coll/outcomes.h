// The outcomes of a collective for the positions of one subtree. Pure, without I/O.
//
// A success without a reply of its own is part of an interval; each failure and each listed reply
// is an entry. Merged replies are one value, or several in order of position until the outcomes
// between them are known.
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

// A rank's reply for its subtree.
struct SubtreeReply {
    enum class Kind : std::uint8_t {
        complete,       // With all outcomes.
        partial,        // With the outcomes known so far.
        stale,          // The rank has another view and did nothing.
        only_suspects,  // As partial: all missing outcomes are of suspects.
        expired,        // It did nothing: by its clock the collective is too old to begin.
    };
    Kind kind = Kind::complete;
    std::uint64_t epoch = 0;        // stale: the local epoch; 0: no such group.
    std::uint64_t clock = 0;        // Others: the local time (peer_clock.h); 0: none.
    Cost cost;                      // complete: the cost of a request in its subtree.
    std::vector<Interval> ok;       // Succeeded, with a reply that is empty or in the value.
    std::vector<Outcome> outcomes;  // The others.
    bool has_value = false;         // All replies of `ok`, merged.
    std::vector<std::byte> value;
};

class Outcomes {
  public:
    explicit Outcomes(const Merge& merge) {
        if (!merge.is_list()) merging_ = std::make_unique<Merging>(Merging{merge, {}, {}, false});
    }

    // One position's outcome. False: it is known already. A reply that can't be merged
    // (Merge::validate()) is a failure of its rank.
    bool add(std::uint32_t position, Status status, ByteView reply);
    // Another rank's outcomes for positions in `of`. Other positions, and known ones, are ignored.
    // A merged value can't be taken apart: unless all of its ranks are new, none is taken.
    void add(Interval of, SubtreeReply reply);
    // The same failure for all positions that are not known.
    void add_missing(Interval of, const Status& status);

    // Another parent may still deliver the request: downgrades effect `none` to `unknown`.
    void mark_effect_unknown(Interval of);
    // One for each position of `of`, in order; `missing_status` is the status of missing ones.
    std::vector<Outcome> in_order(Interval of, const Status& missing_status) const;

    bool contains(Interval of) const { return known_.contains(of); }
    std::vector<Interval> missing(Interval of) const { return known_.missing(of); }
    std::uint32_t first_missing(Interval of) const { return known_.first_missing(of); }
    std::uint32_t ok_count() const { return ok_; }
    std::uint32_t known_count() const { return known_count_; }

    // All known outcomes for a parent, as a reply of that kind. Merged replies can be reported only
    // once, at completion: before that the reply is empty.
    SubtreeReply snapshot(SubtreeReply::Kind kind) const;
    static SubtreeReply empty_snapshot(SubtreeReply::Kind kind) {
        SubtreeReply reply;
        reply.kind = kind;
        return reply;
    }
    // Keeps this rank's own reply, if replies are merged.
    void keep_own(std::uint32_t position, const Status& status, ByteView reply);
    // As a subtree reply; nullptr: none was kept.
    const SubtreeReply* own() const {
        return merging_ && merging_->has_own ? &merging_->own : nullptr;
    }

    const std::vector<Outcome>& exceptions() const { return exceptions_; }
    const IntervalSet& known() const { return known_; }
    // Merges the remaining pieces. Requires: all outcomes are known.
    void finish();
    // Of all successful ranks. Requires: finish() was called.
    std::vector<std::byte> value() const;
    std::size_t heap_bytes() const;

  private:
    struct Piece {
        Interval over;  // From its first to its last position.
        std::vector<std::byte> value;
    };
    struct Merging {
        Merge merge;
        std::vector<Piece> pieces;  // By position.
        SubtreeReply own;
        bool has_own = false;
    };

    std::uint32_t add_known(const IntervalSet& fresh);
    void add_value(Interval over, std::vector<std::byte> value);
    void merge_in(Interval over, std::vector<std::byte> value);
    void merge_neighbours(std::size_t at);
    void fail_range(Interval over, const Status& why);

    IntervalSet known_;
    std::vector<Outcome> exceptions_;
    std::unique_ptr<Merging> merging_;
    std::uint32_t ok_ = 0;
    std::uint32_t known_count_ = 0;
};

}  // namespace weft::coll
