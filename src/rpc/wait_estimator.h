// Estimates whether a waiting call can be answered in time, from the replies per method that arrive
// while calls wait. Pure: the caller passes the time.
//
// A window counts the replies within some time, by method. If r times the replies of each method
// are ahead of a call, the call waits at least r times that time, whatever each method costs. The
// largest such r counts: it is 0 if any of the methods has no call ahead. The faster of the last
// two windows counts, so that a server that was suspended once does not count as slow.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <weft/time.h>

namespace weft::rpc {

class WaitEstimator {
  public:
    static constexpr std::size_t methods_max = 4;  // In a window; beyond, no estimate.

    // A reply, while calls wait.
    void on_reply(TimePoint now, std::uint64_t method) {
        if (counted_ == 0) {
            since_ = now;
            window_ = {};
        }
        ++counted_;
        window_.count(method);
        // Replies arrive in bunches: only many of them show a rate.
        window_.time = now - since_;
        if (window_.time < span || counted_ < replies_min) return;
        previous_ = last_;
        last_ = window_;
        counted_ = 0;
    }
    // No call waits any more, or the server was lost: it may be faster now.
    void on_idle() {
        counted_ = 0;
        last_ = previous_ = {};
    }

    // The earliest time of a reply to a call that has ahead(method) calls before it; `now` if there
    // is no estimate.
    template <class Ahead>
    TimePoint expected(TimePoint now, Ahead&& ahead) const {
        return saturating_add(now, std::min(last_.min_wait(ahead), previous_.min_wait(ahead)));
    }

  private:
    static constexpr Duration span = 20ms;
    static constexpr std::uint32_t replies_min = 16;

    struct MethodReplies {
        std::uint64_t method = 0;
        std::uint32_t calls = 0;
    };
    struct Window {
        Duration time{};
        std::array<MethodReplies, methods_max> by_method{};
        bool has_more = false;  // More than methods_max methods.

        void count(std::uint64_t method) {
            for (MethodReplies& one : by_method) {
                if (one.calls != 0 && one.method != method) continue;
                one.method = method;
                ++one.calls;
                return;
            }
            has_more = true;
        }
        template <class Ahead>
        Duration min_wait(Ahead&& ahead) const {
            if (has_more || by_method[0].calls == 0) return {};
            double times = -1;
            for (const MethodReplies& one : by_method) {
                if (one.calls == 0) break;
                const double share = static_cast<double>(ahead(one.method)) / one.calls;
                times = times < 0 ? share : std::min(times, share);
            }
            const double wait = times * static_cast<double>(time.count());
            constexpr Duration longest = 24h * 36500;
            return wait < static_cast<double>(longest.count())
                       ? Duration(static_cast<std::int64_t>(wait))
                       : longest;
        }
    };

    Window last_, previous_;  // Empty until measured.
    Window window_;           // The current window.
    TimePoint since_{};
    std::uint32_t counted_ = 0;
};

}  // namespace weft::rpc
