#include "core/address_selector.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/assert.h"

namespace weft::core {
namespace {

// Fastest first. An unlisted scheme has the rank of "": below the devices, above the sockets.
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

AddressSelector::AddressSelector(std::vector<na::Address> addresses)
    : order_(std::move(addresses)) {
    WEFT_ASSERT(!order_.empty());
    std::stable_sort(order_.begin(), order_.end(),
                     [](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
    while (local_count_ < order_.size() && is_local(order_[local_count_])) ++local_count_;
    for (std::size_t i = local_count_; i < order_.size(); ++i) identity_networks_.push_back(i);
    // A socket costs less to set up than a device or libfabric.
    std::stable_partition(identity_networks_.begin(), identity_networks_.end(),
                          [&](std::size_t i) { return order_[i].scheme == "tcp"; });
}

AddressSelector::Step AddressSelector::start() {
    has_unanswered_ = false;
    notes_.clear();
    identity_up_ = false;
    failed_.assign(order_.size(), false);
    identity_index_ = 0;
    current_ = 0;
    stage_.restart(local_count_ == 0 ? Stage::network
                   : has_networks()  ? Stage::identify
                                     : Stage::local);
    if (stage_ == Stage::identify) current_ = identity_networks_[0];
    return {Action::connect};
}

AddressSelector::Step AddressSelector::failed(const Status& why) {
    const Step next = next_after(std::string(why.text()));
    if (next.action != Action::give_up || !has_unanswered_) return next;
    return start();
}

AddressSelector::Step AddressSelector::timed_out() {
    has_unanswered_ = true;
    return failed(fail(Code::unavailable, "the listener does not answer yet"));
}

AddressSelector::Step AddressSelector::next_after(std::string what) {
    WEFT_ASSERT(current_ < order_.size() && failed_.size() == order_.size());
    WEFT_ASSERT(stage_ == Stage::local || identity_index_ < identity_networks_.size());
    note(order_[current_].uri() + ": " + std::move(what));
    failed_[current_] = true;
    if (stage_ == Stage::network && current_ == identity_networks_[identity_index_])
        identity_up_ = false;
    switch (stage_) {
        case Stage::identify:
            if (++identity_index_ == identity_networks_.size()) return {Action::give_up};
            current_ = identity_networks_[identity_index_];
            return {Action::connect};
        case Stage::local:
            if (++current_ < local_count_) return {Action::connect};
            return has_networks() ? next_network() : Step{Action::give_up};
        case Stage::network: ++current_; return next_network();
    }
    return {Action::give_up};
}

AddressSelector::Step AddressSelector::up(const na::Incarnation& incarnation) {
    WEFT_ASSERT(current_ < order_.size());
    switch (stage_) {
        case Stage::identify:
            identity_up_ = true;
            incarnation_ = incarnation;
            stage_.move_to(Stage::local);
            current_ = 0;
            return {Action::connect, true};
        case Stage::local:
            if (!identity_up_) return {Action::use};
            if (incarnation == incarnation_) {
                note("the same process as " + order_[identity_networks_[identity_index_]].uri());
                return {Action::use};
            }
            note(order_[current_].uri() + " is another process");
            return ++current_ < local_count_ ? Step{Action::connect} : next_network();
        case Stage::network: break;
    }
    return {Action::use};
}

// From `current_` on; the address that identified the process needs no second connection.
AddressSelector::Step AddressSelector::next_network() {
    WEFT_ASSERT(has_networks() && current_ >= local_count_);
    stage_.move_to(Stage::network);
    while (current_ < order_.size() && failed_[current_]) ++current_;
    if (current_ == order_.size()) return {Action::give_up};
    return {identity_up_ && current_ == identity_networks_[identity_index_] ? Action::use_kept
                                                                            : Action::connect};
}

void AddressSelector::note(std::string what) {
    notes_ += (notes_.empty() ? "" : "; ") + std::move(what);
}

Status AddressSelector::failure_status(const Status& last) const {
    if (order_.size() == 1) return last;
    std::string text = notes_;
    if (stage_ == Stage::identify) {
        text += "; nothing shows that " + order_[0].uri() + " is the same server";
    }
    return fail(last.code(), std::move(text));
}

std::string AddressSelector::reason() const {
    if (order_.size() == 1) return "";
    return notes_.empty() ? "the fastest of " + std::to_string(order_.size()) + " addresses"
                          : notes_;
}

}  // namespace weft::core
