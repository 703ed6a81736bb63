#include "coll/child_requests.h"

#include <algorithm>
#include <new>

#include "base/assert.h"

namespace weft::coll {

void ChildRequests::reserve(std::size_t more) {
    if (more == 0) return;
    if (!all_) all_ = std::make_unique<All>();
    std::vector<ChildRequest>& requests = all_->requests;
    const std::size_t needed = requests.size() + more;
    // The first ones get exactly what they need; later growth does not move all of them each time.
    if (needed > requests.capacity()) {
        requests.reserve(std::max(needed, requests.capacity() + requests.capacity() / 2));
    }
}

ChildRequest& ChildRequests::add(ChildRequest made) {
    WEFT_DCHECK(made.of.first < made.of.last && !made.removed);
    reserve(1);
    made.id = next_++;
    all_->requests.push_back(made);
    if (all_->index) {
        all_->index->counts.add(made, 1);
    } else if (size() > few) {
        make_index();
    }
    return all_->requests.back();
}

ChildRequest* ChildRequests::find(std::uint32_t id) const {
    if (!all_) return nullptr;
    std::vector<ChildRequest>& requests = all_->requests;
    const auto at = std::lower_bound(
        requests.begin(), requests.end(), id,
        [](const ChildRequest& request, std::uint32_t sought) { return request.id < sought; });
    return at == requests.end() || at->id != id || at->removed ? nullptr : &*at;
}

ChildRequest ChildRequests::take(ChildRequest& request) {
    WEFT_ASSERT(all_ && !request.removed);
    if (all_->index) all_->index->counts.add(request, -1);
    const ChildRequest taken = request;
    request.removed = true;
    ++all_->removed;
    if (all_->removed > size()) {
        count_visits(all_->requests.size());
        std::erase_if(all_->requests, [](const ChildRequest& one) { return one.removed; });
        all_->removed = 0;
    }
    return taken;
}

std::vector<ChildRequest> ChildRequests::take_all() {
    const std::unique_ptr<All> all = std::move(all_);
    if (!all) return {};
    std::erase_if(all->requests, [](const ChildRequest& one) { return one.removed; });
    return std::move(all->requests);
}

std::size_t ChildRequests::heap_bytes() const {
    if (!all_) return 0;
    const std::size_t bytes = sizeof *all_ + all_->requests.capacity() * sizeof(ChildRequest);
    const Index* const index = all_->index.get();
    return index ? bytes + sizeof *index + index->dues.capacity() * sizeof(Due) : bytes;
}

// ---- counts ------------------------------------------------------------------------------------

void ChildRequests::Counts::add(const ChildRequest& request, int by) {
    const bool is_slow =
        request.is_suspect || request.is(RequestPhase::backing_off) || request.rounds > 0;
    const auto count = [by](std::uint32_t& to, bool is) {
        WEFT_DCHECK(!is || by > 0 || to > 0);
        if (is) to += static_cast<std::uint32_t>(by);
    };
    count(stale_view, request.is(RequestPhase::stale_view));
    count(suspect, request.is_suspect || request.awaits_suspects);
    count(queued, request.is(RequestPhase::queued));
    count(self_only,
          request.kind == RequestKind::self_only && !request.is(RequestPhase::queued) && !is_slow);
}

ChildRequests::Counts ChildRequests::counts() const {
    if (all_ && all_->index) return all_->index->counts;
    Counts counted;
    for_each([&](const ChildRequest& request) { counted.add(request, 1); });
    return counted;
}

ChildRequest* ChildRequests::first_queued() {
    if (!all_ || (all_->index && all_->index->counts.queued == 0)) return nullptr;
    const auto at =
        std::find_if(all_->requests.begin(), all_->requests.end(), [](const ChildRequest& request) {
            return request.is(RequestPhase::queued) && !request.removed;
        });
    WEFT_DCHECK(!all_->index || at != all_->requests.end());
    count_visits(static_cast<std::size_t>(at - all_->requests.begin()));
    return at == all_->requests.end() ? nullptr : &*at;
}

// ---- due times ---------------------------------------------------------------------------------

void ChildRequests::make_index() {
    try {
        const Counts counted = counts();
        all_->index = std::make_unique<Index>();
        all_->index->counts = counted;
        order_dues();
    } catch (const std::bad_alloc&) {
        all_->index.reset();
    }
}

void ChildRequests::order_dues() {
    std::vector<Due>& dues = all_->index->dues;
    dues.clear();
    for_each([&](const ChildRequest& request) {
        if (const TimePoint at = due_of(request); at != never) dues.push_back({at, request.id});
    });
    std::make_heap(dues.begin(), dues.end());
}

void ChildRequests::note_changed(const ChildRequest& request) {
    Index& index = *all_->index;
    index.counts.add(request, 1);
    try {
        // Most entries are stale.
        if (index.dues.size() > 2 * size() + few) return order_dues();
        const TimePoint at = due_of(request);
        if (at == never) return;
        index.dues.push_back({at, request.id});
        std::push_heap(index.dues.begin(), index.dues.end());
    } catch (const std::bad_alloc&) {
        all_->index.reset();
    }
}

bool ChildRequests::is_current(const Due& due) const {
    const ChildRequest* const request = find(due.id);
    return request && due_of(*request) == due.at;
}

TimePoint ChildRequests::due() const {
    TimePoint at = never;
    if (!all_ || !all_->index) {
        for_each([&](const ChildRequest& request) { at = std::min(at, due_of(request)); });
        return at;
    }
    std::vector<Due>& dues = all_->index->dues;
    while (!dues.empty()) {
        count_visits(1);
        if (is_current(dues.front())) return dues.front().at;
        std::pop_heap(dues.begin(), dues.end());
        dues.pop_back();
    }
    return at;
}

std::vector<std::uint32_t> ChildRequests::due_by(TimePoint now) const {
    std::vector<std::uint32_t> due;
    if (!all_ || !all_->index) {
        for_each([&](const ChildRequest& request) {
            if (due_of(request) <= now) due.push_back(request.id);
        });
        return due;
    }
    // Below an entry of the heap that is not due, none is due.
    const std::vector<Due>& dues = all_->index->dues;
    std::vector<std::size_t> open{0};
    while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        if (at >= dues.size() || dues[at].at > now) continue;
        count_visits(1);
        if (is_current(dues[at])) due.push_back(dues[at].id);
        open.push_back(2 * at + 1);
        open.push_back(2 * at + 2);
    }
    std::sort(due.begin(), due.end());
    due.erase(std::unique(due.begin(), due.end()), due.end());
    return due;
}

}  // namespace weft::coll
