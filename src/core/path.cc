#include "core/path.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/assert.h"

namespace weft::core {
namespace {

// Fastest first. A scheme that is not listed lies where its neighbours in speed would be: below
// the cards, above the sockets.
constexpr std::array<std::string_view, 7> by_speed = {"sm", "unix", "verbs",  "ofi+verbs",
                                                      "",   "tcp",  "ofi+tcp"};
constexpr std::size_t unlisted = 4;

std::size_t rank_of(const na::Address& address) {
    const auto found = std::find(by_speed.begin(), by_speed.end(), address.scheme);
    return found == by_speed.end() ? unlisted : static_cast<std::size_t>(found - by_speed.begin());
}

bool is_local(const na::Address& address) {
    return address.scheme == "sm" || address.scheme == "unix";
}

}  // namespace

Path::Path(std::vector<na::Address> addresses) : order_(std::move(addresses)) {
    WEFT_ASSERT(!order_.empty());
    std::stable_sort(order_.begin(), order_.end(),
                     [](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
    while (locals_ < order_.size() && is_local(order_[locals_])) ++locals_;
    for (std::size_t i = locals_; i < order_.size(); ++i) witnesses_.push_back(i);
    // A socket costs less than what a card or libfabric have to be set up.
    std::stable_partition(witnesses_.begin(), witnesses_.end(),
                          [&](std::size_t i) { return order_[i].scheme == "tcp"; });
}

Path::Step Path::start() {
    may_answer_ = false;
    notes_.clear();
    held_ = false;
    failed_.assign(order_.size(), false);
    witness_ = 0;
    at_ = 0;
    stage_ = Stage::network;
    if (locals_ != 0) stage_ = has_networks() ? Stage::witness : Stage::local;
    if (stage_ == Stage::witness) at_ = witnesses_[0];
    return {Action::connect};
}

Path::Step Path::failed(const Status& why) {
    const Step next = next_after(std::string(why.text()));
    if (next.action != Action::give_up || !may_answer_) return next;
    return start();
}

Path::Step Path::unanswered() {
    may_answer_ = true;
    return failed(fail(Code::unavailable, "it listens and does not answer yet"));
}

Path::Step Path::next_after(std::string what) {
    note(order_[at_].uri() + ": " + std::move(what));
    failed_[at_] = true;
    if (stage_ == Stage::network && at_ == witnesses_[witness_]) held_ = false;
    switch (stage_) {
        case Stage::witness:
            if (++witness_ == witnesses_.size()) return {Action::give_up};
            at_ = witnesses_[witness_];
            return {Action::connect};
        case Stage::local:
            if (++at_ < locals_) return {Action::connect};
            return has_networks() ? next_network() : Step{Action::give_up};
        case Stage::network: ++at_; return next_network();
    }
    return {Action::give_up};
}

Path::Step Path::up(const na::Incarnation& who) {
    switch (stage_) {
        case Stage::witness:
            held_ = true;
            who_ = who;
            stage_ = Stage::local;
            at_ = 0;
            return {Action::connect, true};
        case Stage::local:
            if (!held_) return {Action::use};
            if (who == who_) {
                note("the same process as " + order_[witnesses_[witness_]].uri());
                return {Action::use};
            }
            note(order_[at_].uri() + " is another process");
            return ++at_ < locals_ ? Step{Action::connect} : next_network();
        case Stage::network: break;
    }
    return {Action::use};
}

// From `at_` on; the witness needs no second connection.
Path::Step Path::next_network() {
    stage_ = Stage::network;
    while (at_ < order_.size() && failed_[at_]) ++at_;
    if (at_ == order_.size()) return {Action::give_up};
    return {held_ && at_ == witnesses_[witness_] ? Action::use_held : Action::connect};
}

void Path::note(std::string what) { notes_ += (notes_.empty() ? "" : "; ") + std::move(what); }

Status Path::verdict(const Status& last) const {
    if (order_.size() == 1) return last;
    std::string text = notes_;
    if (stage_ == Stage::witness) {
        text += "; nothing shows that " + order_[0].uri() + " is the same server";
    }
    return fail(last.code(), std::move(text));
}

std::string Path::reason() const {
    if (order_.size() == 1) return "";
    return notes_.empty() ? "the fastest of " + std::to_string(order_.size()) + " addresses"
                          : notes_;
}

}  // namespace weft::core
