#include "coll/outcomes.h"

#include <algorithm>
#include <iterator>

#include "base/mutant.h"

namespace weft::coll {

// None of which was known. Returns how many they are.
std::uint32_t Outcomes::know(const IntervalSet& fresh) {
    std::uint32_t count = 0;
    for (const Interval& one : fresh.intervals()) count += one.size();
    known_.add(fresh);
    known_count_ += count;
    return count;
}

// It ran, and what it replied can't be merged.
static Status not_merged(const Status& why) {
    return Status(why.code(), std::string(why.text()))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing)
        .in("merging");
}

static Status judged(const Merge& merge, Status status, ByteView reply) {
    if (!status.ok()) return status;
    const Status fits = merge.judge(reply);
    return fits.ok() ? std::move(status) : not_merged(fits);
}

bool Outcomes::add(std::uint32_t position, Status status, ByteView reply) {
    const Interval here{position, position + 1};
    if (known_.contains(here)) return false;
    known_.add(here);
    ++known_count_;
    if (merging_) status = judged(merging_->merge, std::move(status), reply);
    if (!status.ok()) {
        notable_.push_back({position, std::move(status), {}});
        return true;
    }
    ++ok_;
    if (merging_) {
        merge_in(here, {reply.begin(), reply.end()});
    } else if (!reply.empty()) {
        notable_.push_back({position, std::move(status), {reply.begin(), reply.end()}});
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

// All of these, and it says of the others in between that they failed: in order, nothing can come
// in between any more.
static bool is_whole(const std::vector<Interval>& ok, const std::vector<Interval>& not_known) {
    IntervalSet told;
    for (const Interval& one : ok) told.add(one);
    return told.intervals() == not_known;
}

void Outcomes::add(Interval of, Answer answer) {
    const Interval hull = hull_of(answer.ok);
    // A merged value whose ranks others have told of meanwhile, or which is missing, counts for
    // none of them.
    const bool is_new = known_.missing(hull) == std::vector<Interval>{hull} ||
                        base::is_mutated(base::Mutant::reply_counted_twice);
    // In order, so that each goes to the end of what is there.
    std::stable_sort(answer.outcomes.begin(), answer.outcomes.end(),
                     [](const Outcome& a, const Outcome& b) { return a.position < b.position; });
    IntervalSet told;
    for (Outcome& outcome : answer.outcomes) {
        const std::uint32_t at = outcome.position;
        if (!of.contains(at) || known_.contains(at) || told.contains(at)) continue;
        if (merging_ && outcome.status.ok()) continue;
        told.add({at, at + 1});
        ok_ += outcome.status.ok();
        if (!outcome.status.ok() || !outcome.reply.empty()) notable_.push_back(std::move(outcome));
    }
    know(told);
    const bool takes_ok = !merging_ || (answer.has_value && is_new && overlap(hull, of) == hull &&
                                        (is_whole(answer.ok, known_.missing(hull)) ||
                                         base::is_mutated(base::Mutant::reply_counted_twice)));
    if (!takes_ok) return;
    IntervalSet fresh;
    for (const Interval& one : answer.ok) {
        for (const Interval& gap : known_.missing(overlap(one, of))) fresh.add(gap);
    }
    ok_ += know(fresh);
    if (merging_ && hull.size() > 0) add_value(hull, std::move(answer.value));
}

void Outcomes::add_missing(Interval of, const Status& status) {
    for (const Interval& gap : known_.add(of)) {
        known_count_ += gap.size();
        for (std::uint32_t at = gap.first; at < gap.last; ++at) {
            notable_.push_back({at, status, {}});
        }
    }
}

void Outcomes::doubt(Interval of) {
    if (known_.first_known(of) == of.last) return;  // Nothing is said of them.
    for (Outcome& outcome : notable_) {
        const bool is_sure = !outcome.status.ok() && outcome.status.effect() == Effect::none;
        if (!is_sure || !of.contains(outcome.position)) continue;
        outcome.status = std::move(outcome.status).with_effect(Effect::unknown);
    }
}

// ---- merging -----------------------------------------------------------------------------------

// Of a subtree: whoever sent it had to look at it, too.
void Outcomes::add_value(Interval over, std::vector<std::byte> value) {
    if (Status fits = merging_->merge.judge(value); !fits.ok()) return spoil(over, fits);
    merge_in(over, std::move(value));
}

void Outcomes::merge_in(Interval over, std::vector<std::byte> value) {
    std::vector<Piece>& pieces = merging_->pieces;
    if (!merging_->merge.reduction.ordered) {
        if (pieces.empty()) return pieces.push_back({over, std::move(value)});
        const Status merged = merging_->merge(pieces.front().value, value);
        if (!merged.ok()) return spoil(over, merged);
        return;
    }
    const auto at = std::lower_bound(
        pieces.begin(), pieces.end(), over.first,
        [](const Piece& piece, std::uint32_t first) { return piece.over.first < first; });
    const auto index = static_cast<std::size_t>(at - pieces.begin());
    pieces.insert(at, {over, std::move(value)});
    join_neighbours(index);
    if (index > 0) join_neighbours(index - 1);
}

// The piece and the next one, when nothing can come between them any more.
void Outcomes::join_neighbours(std::size_t at) {
    std::vector<Piece>& pieces = merging_->pieces;
    if (at + 1 >= pieces.size()) return;
    Piece& piece = pieces[at];
    Piece& next = pieces[at + 1];
    if (!known_.contains({piece.over.last, next.over.first})) return;
    const Status merged = merging_->merge(piece.value, next.value);
    const Interval over = next.over;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (!merged.ok()) return spoil(over, merged);
    pieces[at].over.last = over.last;
}

// What succeeded there could not be merged.
void Outcomes::spoil(Interval over, const Status& why) {
    const Status told = not_merged(why);
    std::vector<bool> fails(over.size());
    for (const Outcome& outcome : notable_) {
        if (over.contains(outcome.position)) fails[outcome.position - over.first] = true;
    }
    for (std::uint32_t at = over.first; at < over.last; ++at) {
        if (fails[at - over.first] || !known_.contains(at)) continue;
        notable_.push_back({at, told, {}});
        --ok_;
    }
}

void Outcomes::finish() {
    if (!merging_) return;
    while (merging_->pieces.size() > 1) {
        const std::size_t before = merging_->pieces.size();
        join_neighbours(0);
        if (merging_->pieces.size() == before) break;
    }
}

std::vector<std::byte> Outcomes::value() const {
    const bool is_there = merging_ && !merging_->pieces.empty();
    return is_there ? merging_->pieces.front().value : std::vector<std::byte>();
}

void Outcomes::keep_own(std::uint32_t position, const Status& said, ByteView reply) {
    if (!merging_) return;
    const Status status = judged(merging_->merge, said, reply);
    merging_->has_own = true;
    Answer& own = merging_->own;
    own = {};
    if (status.ok()) {
        own.ok.push_back({position, position + 1});
        own.has_value = true;
        own.value.assign(reply.begin(), reply.end());
    } else {
        own.outcomes.push_back({position, status, {}});
    }
}

Answer Outcomes::told(Answer::Kind kind) const {
    const bool complete = kind == Answer::Kind::complete;
    Answer answer;
    answer.kind = kind;
    if (merging_ && !complete) return answer;
    std::vector<std::uint32_t> apart;
    apart.reserve(notable_.size());
    for (const Outcome& outcome : notable_) apart.push_back(outcome.position);
    std::sort(apart.begin(), apart.end());
    auto next = apart.begin();
    for (Interval one : known_.intervals()) {
        for (; next != apart.end() && *next < one.last; ++next) {
            if (*next > one.first) answer.ok.push_back({one.first, *next});
            one.first = *next + 1;
        }
        if (one.size() > 0) answer.ok.push_back(one);
    }
    // That nothing was done may not be true any more when all is told: somebody may fall silent,
    // and those below him be asked again.
    std::copy_if(notable_.begin(), notable_.end(), std::back_inserter(answer.outcomes),
                 [&](const Outcome& outcome) {
                     const bool is_final =
                         complete || outcome.status.ok() || outcome.status.effect() != Effect::none;
                     return is_final;
                 });
    answer.has_value = merging_ != nullptr && ok_ > 0;
    if (answer.has_value) answer.value = value();
    return answer;
}

std::size_t Outcomes::heap_bytes() const {
    std::size_t bytes = known_.heap_bytes() + notable_.capacity() * sizeof(Outcome);
    for (const Outcome& outcome : notable_) bytes += outcome.reply.capacity();
    if (!merging_) return bytes;
    bytes += sizeof(Merging) + merging_->pieces.capacity() * sizeof(Piece) +
             merging_->own.value.capacity() + merging_->own.ok.capacity() * sizeof(Interval) +
             merging_->own.outcomes.capacity() * sizeof(Outcome);
    for (const Piece& piece : merging_->pieces) bytes += piece.value.capacity();
    return bytes;
}

}  // namespace weft::coll
