// The closed loop of every measurement: `inflight` operations are in flight, and each completion
// issues the next one, on the same thread that also turns the transport.
//
// One reading of the tick counter per operation ends the latency of one and starts the next, so
// its cost (about 10 ns on virtual machines) is inside the figures, as is the issuing.
#pragma once

#include <vector>

#include "perf/options.h"
#include "perf/ticks.h"

namespace weft::tool {

class Loop;

// What is measured. Lifetime: outlives the Loop::run() it is given to.
class Operation {
  public:
    virtual ~Operation() = default;
    // Starts operation `slot`. Its end calls Loop::succeeded() or failed(), never within issue().
    virtual void issue(std::uint32_t slot) = 0;
    // Turns the transport; returns the number of events.
    virtual std::uint32_t turn() = 0;
    // The same, and sleeps until an event, or for `longest`.
    virtual void turn_and_sleep(Duration longest) = 0;
};

struct LoopOptions {
    std::uint32_t inflight = 1;
    WaitMode wait = WaitMode::adaptive;
    Duration warm_up = std::chrono::milliseconds(60);
    Duration window = std::chrono::seconds(1);
};

class Loop {
  public:
    explicit Loop(LoopOptions options);

    // Ends when the window is over and no operation is in flight; a failure ends the window.
    Measurement run(Operation& operation);

    void succeeded(std::uint32_t slot) {
        const Ticks now = read_ticks();
        if (now >= counts_from_) [[likely]] {
            if (now >= end_ && last_counted_ != 0) [[unlikely]] {
                --under_way_;
                return;
            }
            measured_.latencies.record(now - started_[slot]);
            last_counted_ = now;
        }
        issue(slot, now);
    }
    void failed(std::uint32_t slot, const Status& status);

  private:
    void issue(std::uint32_t slot, Ticks now) {
        started_[slot] = now;
        ++measured_.started;
        operation_->issue(slot);
    }
    template <class Done>
    void turn_until(Done&& done);

    const LoopOptions options_;
    Operation* operation_ = nullptr;
    std::vector<Ticks> started_;
    Ticks counts_from_ = ~Ticks{0};
    Ticks end_ = ~Ticks{0};
    Ticks last_counted_ = 0;  // 0: none yet; the window lasts until the first.
    std::uint32_t under_way_ = 0;
    Measurement measured_;
};

}  // namespace weft::tool
