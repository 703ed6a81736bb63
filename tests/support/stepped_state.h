// A CollectiveState without other ranks: each input is carried out at once, and its effects do
// nothing unless a test overrides them.
#pragma once

#include <memory>
#include <utility>

#include "coll/state_driver.h"

namespace weft::test {

class SteppedState : public coll::StateDriver {
    using State = coll::CollectiveState;

  public:
    SteppedState(std::shared_ptr<const coll::Plan> plan, const State::Role& role)
        : StateDriver(std::move(plan), {1, 1}, role) {}

    void begin(TimePoint now) { step(&State::begin, now); }
    void on_reply(std::uint32_t request, coll::SubtreeReply reply, TimePoint now) {
        step(&State::on_reply, request, std::move(reply), now);
    }
    void on_failure(std::uint32_t request, Status why, TimePoint now) {
        step(&State::on_failure, request, std::move(why), now);
    }
    void on_method_done() { step(&State::on_method_done, Status(), ByteView()); }
    void on_timer(TimePoint now) { step(&State::on_timer, now); }
    void cancel(const Status& why) { step(&State::cancel, why, true); }
    void on_request(std::uint32_t request, std::uint32_t parent, TimePoint reply_by) {
        own_state().on_request(request, parent, reply_by);
    }
    void on_request_gone(std::uint32_t request, TimePoint now) {
        own_state().on_request_gone(request, now);
    }
    void on_parent_cancelled(std::uint32_t parent) { own_state().on_parent_cancelled(parent); }

  protected:
    ~SteppedState() = default;

  private:
    void send_request(const coll::ChildRequest&) override {}
    void run_method() override {}
    void cancel_request(const coll::Ready::Cancel&) override {}
    void cancel_method() override {}
    void refresh(const coll::Ready::Refresh&) override {}
    void report() override {}
    void reply(const coll::Ready::Reply&) override {}
    void on_done() override {}
};

}  // namespace weft::test
