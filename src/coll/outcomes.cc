#include "coll/outcomes.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"

namespace weft::coll {

// Requires: none of them was known. Returns their number.
std::uint32_t Outcomes::add_known(const IntervalSet& fresh) {
    std::uint32_t count = 0;
    for (const Interval& one : fresh.intervals()) count += one.size();
    WEFT_DCHECK(std::none_of(fresh.intervals().begin(), fresh.intervals().end(),
                             [&](Interval one) { return known_.contains(one); }));
    known_.add(fresh);
    known_count_ += count;
    WEFT_DCHECK(ok_ <= known_count_);
    return count;
}

// The method ran, and its reply can't be merged.
static Status not_merged(const Status& why) {
    return Status(why.code(), std::string(why.text()))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing)
        .in("merging");
}

static Status validated(const Merge& merge, Status status, ByteView reply) {
    if (!status.ok()) return status;
    const Status fits = merge.validate(reply);
    return fits.ok() ? std::move(status) : not_merged(fits);
}

bool Outcomes::add(std::uint32_t position, Status status, ByteView reply) {
    const Interval here{position, position + 1};
    if (known_.contains(here)) return false;
    known_.add(here);
    ++known_count_;
    if (merging_) status = validated(merging_->merge, std::move(status), reply);
    if (!status.ok()) {
        exceptions_.push_back({position, std::move(status), {}});
        return true;
    }
    ++ok_;
    if (merging_) {
        merge_in(here, {reply.begin(), reply.end()});
    } else if (!reply.empty()) {
        exceptions_.push_back({position, std::move(status), {reply.begin(), reply.end()}});
    }
    return true;
}

static Interval overlap(Interval a, Interval b) {
    const Interval both{std::max(a.first, b.first), std::min(a.last, b.last)};
    return both.first < both.last ? both : Interval{};
}

static Interval hull_of(const std::vector<Interval>& all) {
    Interval hull{};
    for (const Interval& one : all) {
        if (hull.size() == 0) hull = one;
        hull = {std::min(hull.first, one.first), std::max(hull.last, one.last)};
    }
    return hull;
}

// Whether `ok` covers all positions of the hull that are not known otherwise: in order, no value
// may be missing between its parts.
static bool is_whole(const std::vector<Interval>& ok, const std::vector<Interval>& not_known) {
    IntervalSet reported;
    for (const Interval& one : ok) reported.add(one);
    return reported.intervals() == not_known;
}

void Outcomes::add(Interval of, SubtreeReply reply) {
    const Interval hull = hull_of(reply.ok);
    // A merged value counts for none of its ranks if it is missing, or if another reply has
    // reported one of them.
    const bool is_new = known_.missing(hull) == std::vector<Interval>{hull};
    // In order, so that each is appended.
    std::stable_sort(reply.outcomes.begin(), reply.outcomes.end(),
                     [](const Outcome& a, const Outcome& b) { return a.position < b.position; });
    IntervalSet reported;
    for (Outcome& outcome : reply.outcomes) {
        const std::uint32_t at = outcome.position;
        if (!of.contains(at) || known_.contains(at) || reported.contains(at)) continue;
        if (merging_ && outcome.status.ok()) continue;
        reported.add({at, at + 1});
        ok_ += outcome.status.ok();
        if (!outcome.status.ok() || !outcome.reply.empty())
            exceptions_.push_back(std::move(outcome));
    }
    add_known(reported);
    const bool takes_ok = !merging_ || (reply.has_value && is_new && overlap(hull, of) == hull &&
                                        is_whole(reply.ok, known_.missing(hull)));
    if (!takes_ok) return;
    IntervalSet fresh;
    for (const Interval& one : reply.ok) {
        for (const Interval& gap : known_.missing(overlap(one, of))) fresh.add(gap);
    }
    ok_ += add_known(fresh);
    WEFT_DCHECK(ok_ <= known_count_);
    if (merging_ && hull.size() > 0) add_value(hull, std::move(reply.value));
}

void Outcomes::add_missing(Interval of, const Status& status) {
    for (const Interval& gap : known_.add(of)) {
        known_count_ += gap.size();
        for (std::uint32_t at = gap.first; at < gap.last; ++at) {
            exceptions_.push_back({at, status, {}});
        }
    }
}

void Outcomes::mark_effect_unknown(Interval of) {
    if (known_.first_known(of) == of.last) return;  // No outcome of them is known.
    for (Outcome& outcome : exceptions_) {
        const bool is_sure = !outcome.status.ok() && outcome.status.effect() == Effect::none;
        if (!is_sure || !of.contains(outcome.position)) continue;
        outcome.status = std::move(outcome.status).with_effect(Effect::unknown);
    }
}

// ---- merging -----------------------------------------------------------------------------------

// The value of a subtree: its sender should have validated it, too.
void Outcomes::add_value(Interval over, std::vector<std::byte> value) {
    if (Status fits = merging_->merge.validate(value); !fits.ok()) return fail_range(over, fits);
    merge_in(over, std::move(value));
}

void Outcomes::merge_in(Interval over, std::vector<std::byte> value) {
    WEFT_ASSERT(merging_ && over.size() > 0);
    std::vector<Piece>& pieces = merging_->pieces;
    if (!merging_->merge.reduction.ordered) {
        WEFT_ASSERT(pieces.size() <= 1);
        if (pieces.empty()) return pieces.push_back({over, std::move(value)});
        const Status merged = merging_->merge(pieces.front().value, value);
        if (!merged.ok()) return fail_range(over, merged);
        return;
    }
    const auto at = std::lower_bound(
        pieces.begin(), pieces.end(), over.first,
        [](const Piece& piece, std::uint32_t first) { return piece.over.first < first; });
    const auto index = static_cast<std::size_t>(at - pieces.begin());
    pieces.insert(at, {over, std::move(value)});
    merge_neighbours(index);
    if (index > 0) merge_neighbours(index - 1);
}

// Merges the piece and the next one if no value can follow between them any more.
void Outcomes::merge_neighbours(std::size_t at) {
    std::vector<Piece>& pieces = merging_->pieces;
    if (at + 1 >= pieces.size()) return;
    Piece& piece = pieces[at];
    Piece& next = pieces[at + 1];
    WEFT_DCHECK(piece.over.last <= next.over.first);
    if (!known_.contains({piece.over.last, next.over.first})) return;
    const Status merged = merging_->merge(piece.value, next.value);
    const Interval over = next.over;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (!merged.ok()) return fail_range(over, merged);
    pieces[at].over.last = over.last;
}

// The successful ranks of `over` could not be merged.
void Outcomes::fail_range(Interval over, const Status& why) {
    const Status failure = not_merged(why);
    std::vector<bool> fails(over.size());
    for (const Outcome& outcome : exceptions_) {
        if (over.contains(outcome.position)) fails[outcome.position - over.first] = true;
    }
    for (std::uint32_t at = over.first; at < over.last; ++at) {
        if (fails[at - over.first] || !known_.contains(at)) continue;
        exceptions_.push_back({at, failure, {}});
        WEFT_ASSERT(ok_ > 0);
        --ok_;
    }
}

void Outcomes::finish() {
    if (!merging_) return;
    while (merging_->pieces.size() > 1) {
        const std::size_t before = merging_->pieces.size();
        merge_neighbours(0);
        if (merging_->pieces.size() == before) break;
    }
}

std::vector<std::byte> Outcomes::value() const {
    const bool is_there = merging_ && !merging_->pieces.empty();
    return is_there ? merging_->pieces.front().value : std::vector<std::byte>();
}

void Outcomes::keep_own(std::uint32_t position, const Status& said, ByteView reply) {
    if (!merging_) return;
    const Status status = validated(merging_->merge, said, reply);
    merging_->has_own = true;
    SubtreeReply& own = merging_->own;
    WEFT_DCHECK(own.ok.empty() && own.outcomes.empty());
    own = {};
    if (status.ok()) {
        own.ok.push_back({position, position + 1});
        own.has_value = true;
        own.value.assign(reply.begin(), reply.end());
    } else {
        own.outcomes.push_back({position, status, {}});
    }
}

SubtreeReply Outcomes::snapshot(SubtreeReply::Kind kind) const {
    const bool complete = kind == SubtreeReply::Kind::complete;
    SubtreeReply reply;
    reply.kind = kind;
    if (merging_ && !complete) return reply;
    std::vector<std::uint32_t> apart;
    apart.reserve(exceptions_.size());
    for (const Outcome& outcome : exceptions_) apart.push_back(outcome.position);
    std::sort(apart.begin(), apart.end());
    auto next = apart.begin();
    for (Interval one : known_.intervals()) {
        for (; next != apart.end() && *next < one.last; ++next) {
            if (*next > one.first) reply.ok.push_back({one.first, *next});
            one.first = *next + 1;
        }
        if (one.size() > 0) reply.ok.push_back(one);
    }
    // Effect `none` may change before completion: a rank may become suspect, and the ranks below it
    // may get repeated requests.
    std::copy_if(exceptions_.begin(), exceptions_.end(), std::back_inserter(reply.outcomes),
                 [&](const Outcome& outcome) {
                     const bool is_final =
                         complete || outcome.status.ok() || outcome.status.effect() != Effect::none;
                     return is_final;
                 });
    reply.has_value = merging_ != nullptr && ok_ > 0;
    if (reply.has_value) reply.value = value();
    return reply;
}

std::vector<Outcome> Outcomes::in_order(Interval of, const Status& missing_status) const {
    WEFT_DCHECK(known_count_ <= of.size());
    std::vector<Outcome> all(of.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i].position = of.first + i;
    for (const Interval& known : known_.intervals()) {
        for (std::uint32_t at = known.first; at < known.last; ++at) {
            all[at - of.first].status =
                Status().with_effect(Effect::applied).with_stage(Stage::executing);
        }
    }
    for (const Interval& gap : missing(of)) {
        for (std::uint32_t at = gap.first; at < gap.last; ++at) {
            all[at - of.first].status = missing_status;
        }
    }
    for (const Outcome& outcome : exceptions_) {
        all[outcome.position - of.first] = outcome;
    }
    return all;
}

std::size_t Outcomes::heap_bytes() const {
    std::size_t bytes = known_.heap_bytes() + exceptions_.capacity() * sizeof(Outcome);
    for (const Outcome& outcome : exceptions_) bytes += outcome.reply.capacity();
    if (!merging_) return bytes;
    bytes += sizeof(Merging) + merging_->pieces.capacity() * sizeof(Piece) +
             merging_->own.value.capacity() + merging_->own.ok.capacity() * sizeof(Interval) +
             merging_->own.outcomes.capacity() * sizeof(Outcome);
    for (const Piece& piece : merging_->pieces) bytes += piece.value.capacity();
    return bytes;
}

}  // namespace weft::coll
