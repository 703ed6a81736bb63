#include "na/sm/watchlist.h"

#include <algorithm>
#include <utility>

namespace weft::na::sm {

void Watchlist::add(Connection& connection) {
    all_.push_back(&connection);
    connection.place = static_cast<std::uint32_t>(all_.size() - 1);
    make_active(connection);
}

void Watchlist::remove(Connection& connection) {
    WEFT_ASSERT(holds(connection));
    make_idle(connection);
    put(*all_.back(), connection.place);
    all_.pop_back();
    // Few enough for all to be active again.
    set_active(all_.size() <= always_active_max ? all_.size() : active_);
}

void Watchlist::look_at_idle_ones() noexcept {
    std::size_t looks = std::min(all_.size() - active_, idle_looks_per_visit);
    for (; looks != 0 && active_ < all_.size(); --looks) {
        if (++idle_turn_ < active_ || idle_turn_ >= all_.size()) idle_turn_ = active_;
        Connection& connection = *all_[idle_turn_];
        if (connection.reader.has_records()) make_active(connection);
    }
}

// Where the walk begins.
std::size_t Watchlist::begin_walk() noexcept {
    if (active_ < all_.size()) look_at_idle_ones();
    const std::size_t start = std::exchange(start_, 0);
    is_unusual_ = active_ < all_.size();
    return start < active_ ? start : 0;
}

void Watchlist::cut_walk(std::size_t next) noexcept {
    start_ = next;
    is_unusual_ = true;
}

bool Watchlist::fall_idle(Connection& connection) noexcept {
    connection.empty_polls = 0;
    const bool had_records = std::exchange(connection.taken_before, connection.reader.taken()) !=
                             connection.reader.taken();
    if (had_records || all_.size() <= always_active_max) return false;
    make_idle(connection);
    return true;
}

void Watchlist::set_active(std::size_t active) noexcept {
    active_ = active;
    is_unusual_ = active_ < all_.size() || start_ != 0;
}

void Watchlist::put(Connection& connection, std::size_t at) noexcept {
    all_[at] = &connection;
    connection.place = static_cast<std::uint32_t>(at);
}

void Watchlist::make_active(Connection& connection) noexcept {
    connection.empty_polls = 0;
    if (connection.place < active_) return;
    Connection& other = *all_[active_];
    put(other, connection.place);
    put(connection, active_);
    set_active(active_ + 1);
}

void Watchlist::make_idle(Connection& connection) noexcept {
    if (connection.place >= active_) return;
    set_active(active_ - 1);
    Connection& other = *all_[active_];
    put(other, connection.place);
    put(connection, active_);
}

}  // namespace weft::na::sm
