// The few sockets that are read with each poll ("hot"); the others are left to epoll.
#pragma once

#include "na/tcp/bulk_throttle.h"
#include "na/tcp/connection.h"

namespace weft::na::tcp {

class HotSockets {
  public:
    using List = base::IntrusiveList<PolledSocket, Listed>;
    // Sockets for which a turn has no room are first in the next.
    struct Lane {
        List sockets;
        FairShare share;
    };
    // Reads without a byte after which a hot socket may be replaced by another.
    static constexpr std::uint32_t misses_replaceable = 16;

    Lane& lane(PolledSocket::Kind kind) {
        WEFT_DCHECK(kind != PolledSocket::Kind::pending);
        return kind == PolledSocket::Kind::messages ? messages_ : bulk_;
    }
    void end_turn() {
        messages_.share.end_turn();
        bulk_.share.end_turn();
    }

    bool empty() const { return count_ == 0; }
    bool is_crowded() const { return count_ > count_max; }
    // Call when bytes may arrive soon. A socket that is closed, or of a connection that is down, is
    // not watched and stays cold.
    void touch(PolledSocket& polled);
    void add(PolledSocket& polled);
    void remove(PolledSocket& polled);

  private:
    // More sockets stay hot only as long as each read fills its buffers.
    static constexpr std::uint32_t count_max = 4;

    bool evict_idle();

    Lane messages_;
    Lane bulk_;
    std::uint32_t count_ = 0;
};

}  // namespace weft::na::tcp
