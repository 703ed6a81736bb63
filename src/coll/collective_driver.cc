#include "coll/collective_driver.h"

#include "base/assert.h"

namespace weft::coll {

Status CollectiveDriver::no_memory() const {
    return fail(Code::resource_exhausted, "no memory to forward a collective's request of " +
                                              std::to_string(body_.size()) + " bytes");
}

CollectiveDriver::CollectiveDriver(CollectiveHost& host, Setup setup)
    : StateDriver(std::move(setup.plan), setup.key, setup.role),
      client(setup.client),
      host_(host),
      group_(std::move(setup.group)),
      began_(setup.began),
      time_limit_(setup.time_limit),
      unacknowledged_(setup.unacknowledged),
      priority_(setup.priority),
      reservation_(std::move(setup.reservation)) {
    timer_.of = this;
    timer_.fire = [](base::Timer& timer, TimePoint) {
        CollectiveDriver& of = *static_cast<Timer&>(timer).of;
        of.advance(&CollectiveState::on_timer, of.now());
    };
}

CollectiveDriver::~CollectiveDriver() { cancel_timer(); }

// The context may be destroyed already if no timer is linked.
void CollectiveDriver::cancel_timer() {
    if (timer_.is_linked()) host_.context().timers().cancel(timer_);
}

void CollectiveDriver::begin() {
    in_begin_ = true;
    try {  // The processor's time: a handler may have delayed this turn.
        advance(&CollectiveState::begin, host_.context().clock().now());
    } catch (const std::bad_alloc&) {
        cancel(no_memory().with_effect(Effect::unknown));
    }
    in_begin_ = false;
}

// An early timer does no harm.
void CollectiveDriver::arm_timer() {
    if (state().is_done() || host_.context().is_closed()) return cancel_timer();
    const TimePoint due = state().due();
    WEFT_DCHECK(due != TimePoint::min());
    if (timer_.is_linked() && timer_.deadline <= due) return;
    host_.context().timers().cancel(timer_);
    host_.context().timers().arm(timer_, due);
}

void CollectiveDriver::on_done() {
    WEFT_ASSERT(state().is_done() && child_calls_.empty());
    cancel_timer();
    group_->costs.note(body_.size(), measured());
    body_ = {};
    std::exchange(own_body_, {});  // Frees the memory, too.
    if (reservation_) reservation_->release_request();
    if (!method_entered_ || method_ended_) release_method();  // Else the handler may still run.
}

// ---- the local method --------------------------------------------------------------------------

void CollectiveDriver::run_method() {
    WEFT_ASSERT(!method_entered_);
    ByteView mine = body_;
    if (state().plan().flags & ForwardHeader::scatters) {
        mine = piece_of(body_, state().role().subtree.size(), 0).value();
    }
    method_entered_ = true;
    Result<base::SlotId> started =
        host_.run_here(state().plan().method, mine, state().role().deadline, client,
                       [self = shared_from_this()](Status status, ByteView reply) {
                           self->method_ended_ = true;
                           // The runtime shut down in the middle of the handler.
                           if (status.code() == Code::cancelled) {
                               status = std::move(status).with_effect(Effect::unknown);
                           }
                           self->on_method_done(std::move(status), reply);
                       });
    if (!started) {
        method_entered_ = false;
        on_method_done(std::move(started).status(), {});
    } else if (!method_ended_) {
        running_method_ = *started;
    }
}

void CollectiveDriver::on_method_done(Status status, ByteView reply) {
    release_method();
    advance(&CollectiveState::on_method_done, std::move(status), reply);
}

void CollectiveDriver::release_method() {
    if (reservation_) reservation_->release_method();
}

// In a later turn: the notified handler may end the operation that cancels it. The handler may
// ignore the cancel: the reservation is held until it replies.
void CollectiveDriver::cancel_method() {
    const base::SlotId id = std::exchange(running_method_, {});
    if (!id) return;
    host_.context().post([&server = host_.server(), id, reservation = reservation_] {
        server.cancel_local(id, [reservation](const Status&, ByteView) {
            if (reservation) reservation->release_method();
        });
    });
}

}  // namespace weft::coll
