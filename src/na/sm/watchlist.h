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
    // An answer or more is expected from it.
    void touch(Connection& connection) noexcept {
        if (connection.place >= active_) make_active(connection);
    }

    // Calls `visit(Connection&)` for each active connection that has records, starting after the
    // one that was visited last, so that none starves the others; ends when it answers false.
    template <class Visit>
    void visit_ready(Visit&& visit) {
        if (all_.size() > always_active_max) look_at_idle_ones();
        for (std::size_t looks = active_; looks != 0 && active_ != 0; --looks) {
            if (++turn_ >= active_) turn_ = 0;
            Connection& connection = *all_[turn_];
            if (connection.reader.has_records()) {
                connection.idle_polls = 0;
                if (!visit(connection)) return;
            } else if (++connection.idle_polls > idle_polls_max) [[unlikely]] {
                fall_idle(connection);
            }
        }
    }

  private:
    // Up to this many are all active.
    static constexpr std::size_t always_active_max = 16;
    static constexpr std::size_t idle_looks_per_visit = 16;
    static constexpr std::uint32_t idle_polls_max = 1024;

    void look_at_idle_ones() noexcept;
    void fall_idle(Connection& connection) noexcept;
    void make_active(Connection& connection) noexcept;
    void make_idle(Connection& connection) noexcept;
    void put(Connection& connection, std::size_t at) noexcept;

    std::vector<Connection*> all_;  // [0, active_) are active.
    std::size_t active_ = 0;
    std::size_t turn_ = 0;
    std::size_t idle_turn_ = 0;
};

}  // namespace weft::na::sm
