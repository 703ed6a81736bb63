#include "coll/asks.h"

#include <algorithm>
#include <new>

#include "coll/part.h"

namespace weft::coll {

TimePoint due_of(const Ask& ask) {
    if (ask.paused) return ask.sent_at + Part::patience_of(ask) / 2;
    if (ask.parked || ask.waits || ask.is_silent) return never;
    return ask.sent_at + Part::patience_of(ask) + Part::silence;
}

void Asks::expect(std::size_t more) {
    if (more == 0) return;
    if (!all_) all_ = std::make_unique<All>();
    std::vector<Ask>& asks = all_->asks;
    const std::size_t needed = asks.size() + more;
    // The first ones get what they need, and later ones do not move all of them each time.
    if (needed > asks.capacity()) {
        asks.reserve(std::max(needed, asks.capacity() + asks.capacity() / 2));
    }
}

Ask& Asks::add(Ask made) {
    expect(1);
    made.id = next_++;
    all_->asks.push_back(made);
    if (all_->index) {
        all_->index->counts.add(made, 1);
    } else if (size() > few) {
        make_index();
    }
    return all_->asks.back();
}

Ask* Asks::find(std::uint32_t id) const {
    if (!all_) return nullptr;
    std::vector<Ask>& asks = all_->asks;
    const auto at =
        std::lower_bound(asks.begin(), asks.end(), id,
                         [](const Ask& ask, std::uint32_t sought) { return ask.id < sought; });
    return at == asks.end() || at->id != id || at->is_over ? nullptr : &*at;
}

Ask Asks::take(Ask& ask) {
    if (all_->index) all_->index->counts.add(ask, -1);
    const Ask taken = ask;
    ask.is_over = true;
    ++all_->over;
    if (all_->over > size()) {
        note_walk(all_->asks.size());
        std::erase_if(all_->asks, [](const Ask& one) { return one.is_over; });
        all_->over = 0;
    }
    return taken;
}

std::vector<Ask> Asks::take_all() {
    const std::unique_ptr<All> all = std::move(all_);
    if (!all) return {};
    std::erase_if(all->asks, [](const Ask& one) { return one.is_over; });
    return std::move(all->asks);
}

std::size_t Asks::heap_bytes() const {
    if (!all_) return 0;
    const std::size_t bytes = sizeof *all_ + all_->asks.capacity() * sizeof(Ask);
    const Index* const index = all_->index.get();
    return index ? bytes + sizeof *index + index->dues.capacity() * sizeof(Due) : bytes;
}

// ---- counts ------------------------------------------------------------------------------------

void Asks::Counts::add(const Ask& ask, int by) {
    const bool is_slow = ask.is_silent || ask.paused || ask.rounds > 0;
    const auto count = [by](std::uint32_t& to, bool is) {
        if (is) to += static_cast<std::uint32_t>(by);
    };
    count(parked, ask.parked);
    count(quiet, ask.is_silent || ask.has_silent);
    count(waits, ask.waits);
    count(alone, ask.asking == Asking::alone && !ask.waits && !is_slow);
}

Asks::Counts Asks::counts() const {
    if (all_ && all_->index) return all_->index->counts;
    Counts counted;
    for_each([&](const Ask& ask) { counted.add(ask, 1); });
    return counted;
}

Ask* Asks::first_that_waits() {
    if (!all_ || (all_->index && all_->index->counts.waits == 0)) return nullptr;
    const auto at = std::find_if(all_->asks.begin(), all_->asks.end(),
                                 [](const Ask& ask) { return ask.waits && !ask.is_over; });
    note_walk(static_cast<std::size_t>(at - all_->asks.begin()));
    return at == all_->asks.end() ? nullptr : &*at;
}

// ---- what is due -------------------------------------------------------------------------------

void Asks::make_index() {
    try {
        const Counts counted = counts();
        all_->index = std::make_unique<Index>();
        all_->index->counts = counted;
        order_dues();
    } catch (const std::bad_alloc&) {
        all_->index.reset();
    }
}

void Asks::order_dues() {
    std::vector<Due>& dues = all_->index->dues;
    dues.clear();
    for_each([&](const Ask& ask) {
        if (const TimePoint at = due_of(ask); at != never) dues.push_back({at, ask.id});
    });
    std::make_heap(dues.begin(), dues.end());
}

void Asks::note_changed(const Ask& ask) {
    Index& index = *all_->index;
    index.counts.add(ask, 1);
    try {
        // Most of them do not hold any more.
        if (index.dues.size() > 2 * size() + few) return order_dues();
        const TimePoint at = due_of(ask);
        if (at == never) return;
        index.dues.push_back({at, ask.id});
        std::push_heap(index.dues.begin(), index.dues.end());
    } catch (const std::bad_alloc&) {
        all_->index.reset();
    }
}

bool Asks::holds(const Due& due) const {
    const Ask* const ask = find(due.id);
    return ask && due_of(*ask) == due.at;
}

TimePoint Asks::due() const {
    TimePoint at = never;
    if (!all_ || !all_->index) {
        for_each([&](const Ask& ask) { at = std::min(at, due_of(ask)); });
        return at;
    }
    std::vector<Due>& dues = all_->index->dues;
    while (!dues.empty()) {
        note_walk(1);
        if (holds(dues.front())) return dues.front().at;
        std::pop_heap(dues.begin(), dues.end());
        dues.pop_back();
    }
    return at;
}

std::vector<std::uint32_t> Asks::due_by(TimePoint now) const {
    std::vector<std::uint32_t> due;
    if (!all_ || !all_->index) {
        for_each([&](const Ask& ask) {
            if (due_of(ask) <= now) due.push_back(ask.id);
        });
        return due;
    }
    // Below one of the heap that is not due, none is.
    const std::vector<Due>& dues = all_->index->dues;
    std::vector<std::size_t> open{0};
    while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        if (at >= dues.size() || dues[at].at > now) continue;
        note_walk(1);
        if (holds(dues[at])) due.push_back(dues[at].id);
        open.push_back(2 * at + 1);
        open.push_back(2 * at + 2);
    }
    std::sort(due.begin(), due.end());
    due.erase(std::unique(due.begin(), due.end()), due.end());
    return due;
}

}  // namespace weft::coll
