#include "coll/origin_driver.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/policy.h"
#include "coll/scatter_bodies.h"

namespace weft::coll {

OriginDriver::OriginDriver(CollectiveHost& host, Owner& owner, Setup setup,
                           CollectiveRequest request, std::vector<std::uint32_t> nonmembers)
    : CollectiveDriver(host, std::move(setup)),
      owner_(owner),
      request_(std::move(request)),
      nonmembers_(std::move(nonmembers)) {
    WEFT_ASSERT(state().role().is_origin);
}

void OriginDriver::cancel_with(core::CallScope& scope) {
    WEFT_ASSERT(!scope_hook_.scope);
    scope_hook_.of = this;
    scope_hook_.cancel = [](core::ScopedOperation& in) {
        static_cast<ScopeHook&>(in).of->cancel(
            fail(Code::cancelled, core::scope_cancelled_text).with_effect(Effect::unknown));
    };
    scope.add(scope_hook_);
}

void OriginDriver::supersede(OriginDriver& before) {
    WEFT_ASSERT(!request_.done && before.request_.done);
    if (core::CallScope* const scope = before.scope_hook_.scope) {
        before.scope_hook_.detach();
        cancel_with(*scope);
    }
    request_.done = std::move(before.request_.done);
    before.drop_deferred();
    before.own_state().supersede();
    before.cancel_timer();
}

CollectiveRequest OriginDriver::request_again() const {
    WEFT_ASSERT(!state().is_done());
    CollectiveRequest again;
    again.id = request_.id;
    again.group = group();
    again.method = request_.method;
    again.options = request_.options;
    again.delivers_rest = request_.delivers_rest;
    again.scatters = request_.scatters;
    again.deadline = request_.deadline;
    if (again.scatters) {
        again.bodies = bodies_by_rank(*state().plan().rank_order, body(), request_.bodies);
    } else {
        again.include = request_.include;
        again.exclude = request_.exclude;
        again.body.assign(body().begin(), body().end());
    }
    return again;
}

void OriginDriver::refresh(const Ready::Refresh& refresh) {
    owner_.refresh(std::static_pointer_cast<OriginDriver>(shared_from_this()), refresh.position);
}

void OriginDriver::on_later_view(std::uint32_t position, std::uint64_t epoch) {
    WEFT_ASSERT(epoch > state().plan().epoch);
    later_at_ = position;
    later_epoch_ = epoch;
}

void OriginDriver::on_done() {
    CollectiveDriver::on_done();
    owner_.on_done(*this);
}

// ---- the outcome -------------------------------------------------------------------------------

Status no_such_member() { return fail(Code::not_found, "the group lacks this rank"); }

void add_nonmembers(const std::vector<std::uint32_t>& nonmembers, GroupOutcome& to) {
    for (const std::uint32_t rank : nonmembers) to.ranks.push_back({rank, no_such_member(), {}, 0});
}

// Missing outcomes are not waited for: the policy is met, or can't be met any more.
GroupOutcome OriginDriver::outcome() const {
    const Status missing = fail(Code::unknown, "the collective completed without this rank")
                               .with_effect(Effect::unknown)
                               .with_stage(Stage::sent);
    GroupOutcome outcome;
    outcome.epoch = state().plan().epoch;
    outcome.ranks.reserve(state().role().subtree.size() + nonmembers_.size());
    for (Outcome& one : state().outcomes_for_caller(missing)) {
        const Member& member = state().plan().rank_order->at(one.position);
        // Names the failed rank: a rank that forwards the status does not take it for its own.
        if (!one.status.ok() && one.status.peer().empty()) {
            one.status = std::move(one.status).with_peer(member.uris.front());
        }
        outcome.ranks.push_back(
            {member.rank, std::move(one.status), std::move(one.reply), member.incarnation});
    }
    add_nonmembers(nonmembers_, outcome);
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.status = policy_status(request_.options.policy, state().role().quorum, outcome.ranks);
    outcome.merged = state().outcomes().value();
    return outcome;
}

// Posted: a group of one may be complete inside the call that begins it.
void OriginDriver::report() {
    host().context().post([self = std::static_pointer_cast<OriginDriver>(shared_from_this()),
                           all = outcome()]() mutable { self->complete(std::move(all)); });
}

void OriginDriver::complete(GroupOutcome outcome) {
    const core::Context::ScopeGuard scope_guard(host().context(), scope_hook_.scope);
    scope_hook_.detach();
    WEFT_ASSERT(request_.done);
    request_.done(std::move(outcome));
}

}  // namespace weft::coll
