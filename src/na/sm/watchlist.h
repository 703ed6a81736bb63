// The connections of a poll: the active ones in every poll, the idle ones a few per poll in turn.
// So the cost of a poll depends on the active connections, not on all.
#pragma once

#include <vector>

#include "na/sm/connection.h"

namespace weft::na::sm {

class Watchlist {
  public:
    bool empty() const { return all_.empty(); }
    std::size_t size() const { return all_.size(); }
    Connection& operator[](std::size_t at) const { return *all_[at]; }

    void add(Connection& connection);
    void remove(Connection& connection);
    bool contains(const Connection& connection) const {
        return connection.watch_index < all_.size() && all_[connection.watch_index] == &connection;
    }
    bool is_active(const Connection& connection) const { return connection.watch_index < active_; }
    // Call when records are expected from the connection.
    void activate(Connection& connection) noexcept {
        if (connection.watch_index >= active_) make_active(connection);
    }

    enum class VisitResult : std::uint8_t {
        next,
        stop_after,  // No room is left, or the list changed: the next walk starts behind it.
        stop_before  // The connection was not served: the next walk starts with it.
    };

    // Calls `visit(Connection&, published)` for each active connection that has records, so that
    // none starves the others.
    template <class Visit>
    void visit_ready(Visit&& visit) {
        std::size_t at = 0;
        if (needs_walk_) [[unlikely]] {
            at = begin_walk();
        }
        while (at < active_) {
            Connection& connection = *all_[at];
            const std::uint64_t published = connection.reader.published();
            if (published != connection.reader.taken()) {
                const VisitResult result = visit(connection, published);
                if (result != VisitResult::next) [[unlikely]] {
                    return cut_walk(result == VisitResult::stop_before ? at : at + 1);
                }
            } else if (++connection.empty_polls > empty_polls_max) [[unlikely]] {
                if (demote(connection)) continue;  // Another took its place.
            }
            ++at;
        }
    }

  private:
    // Up to this number, all connections are active.
    static constexpr std::size_t always_active_max = 16;
    static constexpr std::size_t idle_scans_per_visit = 16;
    // After this number of empty polls, a connection without a record since the last check becomes
    // idle.
    static constexpr std::uint32_t empty_polls_max = 1024;

    std::size_t begin_walk() noexcept;
    void cut_walk(std::size_t next) noexcept;
    void scan_idle() noexcept;
    bool demote(Connection& connection) noexcept;
    void make_active(Connection& connection) noexcept;
    void make_idle(Connection& connection) noexcept;
    void put(Connection& connection, std::size_t at) noexcept;
    void set_active(std::size_t active) noexcept;

    std::vector<Connection*> all_;  // [0, active_) are active.
    std::size_t active_ = 0;
    std::size_t start_ = 0;    // Of the next walk, when the last one was cut short.
    bool needs_walk_ = false;  // Some are idle, or start_ is not 0.
    std::size_t next_idle_ = 0;
};

}  // namespace weft::na::sm
