// Drives one CollectiveState: over RPC (CollectiveDriver), and over simulated messages in tests and
// in the simulation of broadcasts.
#pragma once

#include <memory>
#include <utility>

#include "base/assert.h"
#include "coll/collective_state.h"
#include "coll/ready.h"

namespace weft::coll {

class StateDriver {
  public:
    StateDriver(const StateDriver&) = delete;
    StateDriver& operator=(const StateDriver&) = delete;

    const CollectiveState& state() const { return state_; }

  protected:
    StateDriver(std::shared_ptr<const Plan> plan, CollectiveKey key,
                const CollectiveState::Role& role)
        : state_(std::move(plan), key, role) {}
    ~StateDriver() = default;

    // For inputs that make nothing ready.
    CollectiveState& own_state() { return state_; }

    // One input, `(state.*input)(args..., ready)`, and what it makes ready. What an input within an
    // effect makes ready, as that of a method that completes in place, is carried out after all
    // effects of the present Ready.
    template <class Input, class... Args>
    void step(Input input, Args&&... args) {
        if (open_) return (state_.*input)(std::forward<Args>(args)..., *open_);
        Ready ready;
        const OpenGuard opened(open_, ready);
        (state_.*input)(std::forward<Args>(args)..., ready);
        while (!ready.is_empty()) carry_out(std::exchange(ready, {}));
    }

    // The effects of Ready, field by field.
    virtual void send_request(const ChildRequest& request) = 0;
    virtual void run_method() = 0;
    virtual void cancel_request(const Ready::Cancel& cancel) = 0;
    virtual void cancel_method() = 0;
    virtual void refresh(const Ready::Refresh& refresh) = 0;
    virtual void report() = 0;
    virtual void reply(const Ready::Reply& reply) = 0;
    virtual void on_done() = 0;

  private:
    class OpenGuard {
      public:
        OpenGuard(Ready*& open, Ready& ready) : open_(open) { open = &ready; }
        OpenGuard(const OpenGuard&) = delete;
        OpenGuard& operator=(const OpenGuard&) = delete;
        ~OpenGuard() { open_ = nullptr; }

      private:
        Ready*& open_;
    };

    void carry_out(const Ready& ready) {
        WEFT_ASSERT(open_ && (!ready.done || state_.is_done()));
        for (const ChildRequest& request : ready.sends) send_request(request);
        if (ready.run) run_method();
        for (const Ready::Cancel& cancel : ready.cancels) cancel_request(cancel);
        if (ready.cancel_method) cancel_method();
        if (ready.refresh) refresh(*ready.refresh);
        conclude(ready);
    }

    // No input follows the end, so nothing can make up for an effect that throws here.
    void conclude(const Ready& ready) noexcept {
        if (ready.report) {
            report();
            state_.on_reported(*open_);
        }
        for (const Ready::Reply& one : ready.replies) reply(one);
        WEFT_ASSERT(!ready.done || open_->is_empty());  // Nothing becomes ready after the end.
        if (ready.done) on_done();
    }

    CollectiveState state_;
    Ready* open_ = nullptr;  // Of the step that is being carried out.
};

}  // namespace weft::coll
