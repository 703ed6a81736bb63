// The connections that a poll looks at: the active ones with every poll, the idle ones a few per
// poll in turn, so that a poll costs what is active and not what is connected.
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
    bool holds(const Connection& connection) const {
        return connection.place < all_.size() && all_[connection.place] == &connection;
    }
    bool is_active(const Connection& connection) const { return connection.place < active_; }
    // An answer or more is expected from it.
    void touch(Connection& connection) noexcept {
        if (connection.place >= active_) make_active(connection);
    }

    enum class Visited : std::uint8_t {
        go_on,
        end_here,   // No room is left, or the list changed: the next walk starts behind this one.
        end_before  // It was not served at all: the next walk starts with it.
    };

    // Calls `visit(Connection&, published)` for each active connection that has records, so that
    // none starves the others.
    template <class Visit>
    void visit_ready(Visit&& visit) {
        std::size_t at = 0;
        if (is_unusual_) [[unlikely]] {
            at = begin_walk();
        }
        while (at < active_) {
            Connection& connection = *all_[at];
            const std::uint64_t published = connection.reader.published();
            if (published != connection.reader.taken()) {
                const Visited visited = visit(connection, published);
                if (visited != Visited::go_on) [[unlikely]] {
                    return cut_walk(visited == Visited::end_before ? at : at + 1);
                }
            } else if (++connection.empty_polls > empty_polls_max) [[unlikely]] {
                if (fall_idle(connection)) continue;  // Another one took its place.
            }
            ++at;
        }
    }

  private:
    // Up to this many are all active.
    static constexpr std::size_t always_active_max = 16;
    static constexpr std::size_t idle_looks_per_visit = 16;
    // So often without a record: it is asked whether it had any since it was asked last.
    static constexpr std::uint32_t empty_polls_max = 1024;

    std::size_t begin_walk() noexcept;
    void cut_walk(std::size_t next) noexcept;
    void look_at_idle_ones() noexcept;
    bool fall_idle(Connection& connection) noexcept;
    void make_active(Connection& connection) noexcept;
    void make_idle(Connection& connection) noexcept;
    void put(Connection& connection, std::size_t at) noexcept;
    void set_active(std::size_t active) noexcept;

    std::vector<Connection*> all_;  // [0, active_) are active.
    std::size_t active_ = 0;
    std::size_t start_ = 0;    // Of the next walk, when the last one was cut short.
    bool is_unusual_ = false;  // Some are idle, or start_ is not 0.
    std::size_t idle_turn_ = 0;
};

}  // namespace weft::na::sm
