#include "na/sm/watchlist.h"

#include <algorithm>
#include <utility>

namespace weft::na::sm {

void Watchlist::add(Connection& connection) {
    WEFT_ASSERT(!contains(connection));
    all_.push_back(&connection);
    connection.watch_index = static_cast<std::uint32_t>(all_.size() - 1);
    make_active(connection);
}

void Watchlist::remove(Connection& connection) {
    WEFT_ASSERT(contains(connection));
    make_idle(connection);
    put(*all_.back(), connection.watch_index);
    all_.pop_back();
    // Few enough for all connections to be active again.
    set_active(all_.size() <= always_active_max ? all_.size() : active_);
}

void Watchlist::scan_idle() noexcept {
    std::size_t scans = std::min(all_.size() - active_, idle_scans_per_visit);
    for (; scans != 0 && active_ < all_.size(); --scans) {
        if (++next_idle_ < active_ || next_idle_ >= all_.size()) next_idle_ = active_;
        Connection& connection = *all_[next_idle_];
        if (connection.reader.has_records()) make_active(connection);
    }
}

// Where the walk begins.
std::size_t Watchlist::begin_walk() noexcept {
    if (active_ < all_.size()) scan_idle();
    const std::size_t start = std::exchange(start_, 0);
    needs_walk_ = active_ < all_.size();
    return start < active_ ? start : 0;
}

void Watchlist::cut_walk(std::size_t next) noexcept {
    start_ = next;
    needs_walk_ = true;
}

bool Watchlist::demote(Connection& connection) noexcept {
    WEFT_DCHECK(contains(connection) && is_active(connection));
    connection.empty_polls = 0;
    const bool had_records = std::exchange(connection.taken_before, connection.reader.taken()) !=
                             connection.reader.taken();
    if (had_records || all_.size() <= always_active_max) return false;
    make_idle(connection);
    return true;
}

void Watchlist::set_active(std::size_t active) noexcept {
    WEFT_DCHECK(active <= all_.size());
    active_ = active;
    needs_walk_ = active_ < all_.size() || start_ != 0;
}

void Watchlist::put(Connection& connection, std::size_t at) noexcept {
    WEFT_DCHECK(at < all_.size());
    all_[at] = &connection;
    connection.watch_index = static_cast<std::uint32_t>(at);
}

void Watchlist::make_active(Connection& connection) noexcept {
    WEFT_DCHECK(contains(connection));
    connection.empty_polls = 0;
    if (connection.watch_index < active_) return;
    Connection& other = *all_[active_];
    put(other, connection.watch_index);
    put(connection, active_);
    set_active(active_ + 1);
}

void Watchlist::make_idle(Connection& connection) noexcept {
    if (connection.watch_index >= active_) return;
    set_active(active_ - 1);
    Connection& other = *all_[active_];
    put(other, connection.watch_index);
    put(connection, active_);
}

}  // namespace weft::na::sm
