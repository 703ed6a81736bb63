#include "coll/deferred_requests.h"

#include <utility>

#include "base/assert.h"

namespace weft::coll {

DeferredRequests::DeferredRequests(core::Context& context) : context_(context) {
    next_.of = this;
    next_.run = [](core::Deferred& next) { static_cast<Next&>(next).of->run(); };
}

bool DeferredRequests::may_send(std::size_t bytes) {
    if (turn_time_ != context_.now()) begin_turn();
    if (left_ <= 0) return false;
    count(bytes);
    return true;
}

void DeferredRequests::begin_turn() {
    turn_time_ = context_.now();
    left_ = per_turn_max;
    in_turn_ = 0;
}

void DeferredRequests::add(const SessionKey& peer, std::shared_ptr<DeferredSender> collective) {
    waiting_[peer].push_back(std::move(collective));
    if (!next_.is_linked()) context_.defer(next_);
}

void DeferredRequests::clear() {
    context_.undefer(next_);
    waiting_.clear();
}

std::shared_ptr<DeferredSender> DeferredRequests::take_next() {
    WEFT_ASSERT(!waiting_.empty());
    auto at = waiting_.upper_bound(last_);
    if (at == waiting_.end()) at = waiting_.begin();
    last_ = at->first;
    std::shared_ptr<DeferredSender> collective = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) waiting_.erase(at);
    return collective;
}

void DeferredRequests::run() {
    begin_turn();
    while (left_ > 0 && !waiting_.empty()) {
        const std::shared_ptr<DeferredSender> collective = take_next();
        if (collective->run_deferred()) waiting_[last_].push_back(collective);
    }
    if (!waiting_.empty() && !next_.is_linked()) context_.defer(next_);
}

}  // namespace weft::coll
