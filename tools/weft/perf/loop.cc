#include "perf/loop.h"

#include <algorithm>

#include "core/spin_yield.h"

namespace weft::tool {

// As long as a context with WaitMode::adaptive spins.
static constexpr Duration spin_before_sleep = 20us;

Loop::Loop(LoopOptions options) : options_(options), started_(options.inflight) {}

template <class Done>
void Loop::turn_until(Done&& done) {
    TimePoint last_event = std::chrono::steady_clock::now();
    core::SpinYield spin_yield;
    while (!done()) {
        if (options_.wait == WaitMode::block) {
            operation_->turn_and_sleep(10ms);
        } else if (operation_->turn() > 0) {
            spin_yield.on_event();
            if (options_.wait == WaitMode::adaptive) {
                last_event = std::chrono::steady_clock::now();
            }
        } else if (options_.wait == WaitMode::adaptive) {
            const TimePoint now = std::chrono::steady_clock::now();
            if (now - last_event < spin_before_sleep) {
                spin_yield.on_idle_poll();
                continue;
            }
            operation_->turn_and_sleep(10ms);
            last_event = std::chrono::steady_clock::now();
        } else {
            spin_yield.on_idle_poll();
        }
    }
}

Measurement Loop::run(Operation& operation) {
    operation_ = &operation;
    const TickScale scale;
    under_way_ = options_.inflight;
    for (std::uint32_t slot = 0; slot < options_.inflight; ++slot) issue(slot, read_ticks());
    turn_until([&] { return under_way_ == 0 || scale.elapsed() >= options_.warm_up; });

    const double ns_per_tick = scale.ns_per_tick();
    if (measured_.failed == 0) {
        counts_from_ = read_ticks();
        end_ = counts_from_ +
               static_cast<Ticks>(static_cast<double>(options_.window.count()) / ns_per_tick);
    }
    turn_until([&] { return under_way_ == 0; });

    measured_.ns_per_tick = scale.ns_per_tick();
    if (measured_.latencies.count() > 0) {
        // A first operation longer than the window extends it.
        const Ticks until = std::max(end_, last_counted_);
        measured_.elapsed_s =
            static_cast<double>(until - counts_from_) * measured_.ns_per_tick / 1e9;
    }
    return std::move(measured_);
}

void Loop::failed(std::uint32_t, const Status& status) {
    if (measured_.failed++ == 0) {
        measured_.first_failure = status;
        // Nothing more is issued: each later success ends its slot.
        counts_from_ = 0;
        end_ = 0;
        last_counted_ = 1;
    }
    --under_way_;
}

}  // namespace weft::tool
