#include "coll/later_asks.h"

#include <utility>

#include "coll/operation.h"

namespace weft::coll {

LaterAsks::LaterAsks(core::Context& context) : context_(context) {
    next_.of = this;
    next_.run = [](core::Deferred& next) { static_cast<Next&>(next).of->run(); };
}

bool LaterAsks::may_ask(std::size_t bytes) {
    if (turn_ != context_.now()) begin_turn();
    if (left_ <= 0) return false;
    count(bytes);
    return true;
}

void LaterAsks::begin_turn() {
    turn_ = context_.now();
    left_ = turn_most;
    in_turn_ = 0;
}

void LaterAsks::add(std::shared_ptr<Operation> operation) {
    waiting_[operation->brought_by.peer].push_back(std::move(operation));
    if (!next_.is_linked()) context_.defer(next_);
}

void LaterAsks::clear() {
    context_.undefer(next_);
    waiting_.clear();
}

std::shared_ptr<Operation> LaterAsks::take_next() {
    auto at = waiting_.upper_bound(last_);
    if (at == waiting_.end()) at = waiting_.begin();
    last_ = at->first;
    std::shared_ptr<Operation> operation = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) waiting_.erase(at);
    return operation;
}

void LaterAsks::run() {
    begin_turn();
    while (left_ > 0 && !waiting_.empty()) {
        const std::shared_ptr<Operation> operation = take_next();
        if (operation->go_on()) waiting_[last_].push_back(operation);
    }
    if (!waiting_.empty() && !next_.is_linked()) context_.defer(next_);
}

}  // namespace weft::coll
