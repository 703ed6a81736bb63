#include "na/sm/watchlist.h"

#include <algorithm>

namespace weft::na::sm {

void Watchlist::add(Connection& connection) {
    all_.push_back(&connection);
    connection.place = static_cast<std::uint32_t>(all_.size() - 1);
    make_active(connection);
}

void Watchlist::remove(Connection& connection) {
    WEFT_ASSERT(connection.place < all_.size() && all_[connection.place] == &connection);
    make_idle(connection);
    put(*all_.back(), connection.place);
    all_.pop_back();
    // Few enough for all to be active again.
    if (all_.size() <= always_active_max) active_ = all_.size();
}

void Watchlist::look_at_idle_ones() noexcept {
    std::size_t looks = std::min(all_.size() - active_, idle_looks_per_visit);
    for (; looks != 0 && active_ < all_.size(); --looks) {
        if (++idle_turn_ < active_ || idle_turn_ >= all_.size()) idle_turn_ = active_;
        Connection& connection = *all_[idle_turn_];
        if (connection.reader.has_records()) make_active(connection);
    }
}

void Watchlist::fall_idle(Connection& connection) noexcept {
    connection.idle_polls = 0;
    if (all_.size() > always_active_max) make_idle(connection);
}

void Watchlist::put(Connection& connection, std::size_t at) noexcept {
    all_[at] = &connection;
    connection.place = static_cast<std::uint32_t>(at);
}

void Watchlist::make_active(Connection& connection) noexcept {
    connection.idle_polls = 0;
    if (connection.place < active_) return;
    Connection& other = *all_[active_];
    put(other, connection.place);
    put(connection, active_++);
}

void Watchlist::make_idle(Connection& connection) noexcept {
    if (connection.place >= active_) return;
    Connection& other = *all_[--active_];
    put(other, connection.place);
    put(connection, active_);
}

}  // namespace weft::na::sm
