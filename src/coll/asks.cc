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
    count(made, 1);
    if (!all_->has_dues && size() > few) order_dues();
    return all_->asks.back();
}

Ask* Asks::find_in(All& all, std::uint32_t id) {
    const auto at =
        std::lower_bound(all.asks.begin(), all.asks.end(), id,
                         [](const Ask& ask, std::uint32_t sought) { return ask.id < sought; });
    return at == all.asks.end() || at->id != id || at->is_over ? nullptr : &*at;
}

Ask* Asks::find(std::uint32_t id) { return all_ ? find_in(*all_, id) : nullptr; }

Ask Asks::take(Ask& ask) {
    count(ask, -1);
    const Ask taken = ask;
    ask.is_over = true;
    ++all_->over;
    if (all_->over > size()) {
        all_->walked += all_->asks.size();
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

void Asks::count(const Ask& ask, int by) {
    const bool is_slow = ask.is_silent || ask.paused || ask.rounds > 0;
    const auto add = [by](std::uint32_t& to, bool counts) {
        if (counts) to += static_cast<std::uint32_t>(by);
    };
    add(all_->parked, ask.parked);
    add(all_->quiet, ask.is_silent || ask.has_silent);
    add(all_->waits, ask.waits);
    add(all_->alone, ask.asking == Asking::alone && !ask.waits && !is_slow);
}

Ask* Asks::first_that_waits() {
    if (!any_waits()) return nullptr;
    const auto at = std::find_if(all_->asks.begin(), all_->asks.end(),
                                 [](const Ask& ask) { return ask.waits && !ask.is_over; });
    all_->walked += static_cast<std::uint64_t>(at - all_->asks.begin()) + 1;
    return &*at;
}

// ---- what is due -------------------------------------------------------------------------------

bool Asks::holds(const Due& due) const {
    const Ask* const ask = find_in(*all_, due.id);
    return ask && due_of(*ask) == due.at;
}

// For want of memory they are walked over.
void Asks::order_dues() {
    all_->dues.clear();
    all_->has_dues = size() > few / 2;
    try {
        if (!all_->has_dues) return all_->dues.shrink_to_fit();
        for_each([&](const Ask& ask) {
            if (const TimePoint at = due_of(ask); at != never) all_->dues.push_back({at, ask.id});
        });
    } catch (const std::bad_alloc&) {
        all_->has_dues = false;
    }
    std::make_heap(all_->dues.begin(), all_->dues.end());
}

void Asks::add_due(const Ask& ask) {
    // Most of them do not hold any more.
    if (all_->dues.size() > 2 * size() + few) return order_dues();
    const TimePoint at = due_of(ask);
    if (at == never) return;
    try {
        all_->dues.push_back({at, ask.id});
    } catch (const std::bad_alloc&) {
        all_->has_dues = false;
        return;
    }
    std::push_heap(all_->dues.begin(), all_->dues.end());
}

TimePoint Asks::due() const {
    TimePoint at = never;
    if (!all_) return at;
    if (!all_->has_dues) {
        for_each([&](const Ask& ask) { at = std::min(at, due_of(ask)); });
        return at;
    }
    std::vector<Due>& dues = all_->dues;
    while (!dues.empty()) {
        ++all_->walked;
        if (holds(dues.front())) return dues.front().at;
        std::pop_heap(dues.begin(), dues.end());
        dues.pop_back();
    }
    return at;
}

std::vector<std::uint32_t> Asks::due_by(TimePoint now) const {
    std::vector<std::uint32_t> due;
    if (!all_) return due;
    if (!all_->has_dues) {
        for_each([&](const Ask& ask) {
            if (due_of(ask) <= now) due.push_back(ask.id);
        });
        return due;
    }
    // Below one of the heap that is not due, none is.
    std::vector<std::size_t> open{0};
    while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        if (at >= all_->dues.size() || all_->dues[at].at > now) continue;
        ++all_->walked;
        if (holds(all_->dues[at])) due.push_back(all_->dues[at].id);
        open.push_back(2 * at + 1);
        open.push_back(2 * at + 2);
    }
    std::sort(due.begin(), due.end());
    due.erase(std::unique(due.begin(), due.end()), due.end());
    return due;
}

}  // namespace weft::coll
