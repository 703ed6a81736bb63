// Whether a call that has to wait can be answered in time: learnt from the replies while calls
// wait, by method. Pure: the caller brings the time.
//
// A window is what was answered within some time, by method. While at least r times that waits
// before a call, the call waits for at least r such times, whatever each method costs: nothing is
// said of calls before which less waits of any of those methods. Of the last two windows the faster
// one counts, so that a server that stood still once is not taken for a slow one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <weft/time.h>

namespace weft::rpc {

class Pace {
  public:
    static constexpr std::size_t methods_max = 4;  // In a window; with more it says nothing.

    // A reply, while calls wait.
    void on_reply(TimePoint now, std::uint64_t method) {
        if (counted_ == 0) {
            since_ = now;
            window_ = {};
        }
        ++counted_;
        window_.count(method);
        // They come in bunches: a pace shows over many only.
        window_.time = now - since_;
        if (window_.time < span || counted_ < replies_least) return;
        before_ = last_;
        last_ = window_;
        counted_ = 0;
    }
    // Nothing waits any more, or the server was lost: it may be faster now.
    void on_idle() {
        counted_ = 0;
        last_ = before_ = {};
    }

    // When a call would be answered at the earliest that has ahead(method) calls before it; `now`
    // while that is not known.
    template <class Ahead>
    TimePoint expected(TimePoint now, Ahead&& ahead) const {
        return saturating_add(now, std::min(last_.least_for(ahead), before_.least_for(ahead)));
    }

  private:
    static constexpr Duration span = 20ms;
    static constexpr std::uint32_t replies_least = 16;

    struct Answered {
        std::uint64_t method = 0;
        std::uint32_t calls = 0;
    };
    struct Window {
        Duration time{};
        std::array<Answered, methods_max> answered{};
        bool has_more = false;  // Methods.

        void count(std::uint64_t method) {
            for (Answered& one : answered) {
                if (one.calls != 0 && one.method != method) continue;
                one.method = method;
                ++one.calls;
                return;
            }
            has_more = true;
        }
        template <class Ahead>
        Duration least_for(Ahead&& ahead) const {
            if (has_more || answered[0].calls == 0) return {};
            double times = -1;
            for (const Answered& one : answered) {
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

    Window last_, before_;  // Empty until they are known.
    Window window_;         // That is being counted.
    TimePoint since_{};
    std::uint32_t counted_ = 0;
};

}  // namespace weft::rpc
