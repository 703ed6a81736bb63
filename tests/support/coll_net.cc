#include "support/coll_net.h"

namespace weft::test {

void CollNet::inject(std::uint32_t at, Moment moment) {
    Rank& rank = ranks[at];
    if (!rank.fault || rank.fault->moment != moment) return;
    const Fault fault = *rank.fault;
    rank.fault.reset();
    switch (fault.kind) {
        case Kind::dies: return die(at, 0ns);
        case Kind::vanishes: return die(at, fault.lasts);
        case Kind::hangs: rank.hangs_until = now_ + fault.lasts; return;
        case Kind::restarts:
            die(at, 0ns);
            rank.is_dead = false;
            ++rank.incarnation;
            rank.runs.push_back(0);
            return;
    }
}

void CollNet::die(std::uint32_t at, Duration noticed_in) {
    Rank& rank = ranks[at];
    rank.is_dead = true;
    rank.noticed_in = noticed_in;
    ++rank.life;
    known_[at].clear();
    for (Call& call : calls_) {
        if (call.to == at && call.arrived && !call.replied) fail_at(call, lost(), noticed_in);
        if (call.from->rank == at && call.open) {
            call.open = false;
            push(now_ + noticed_in + setup_.latency, call.to,
                 [this, &call] { on_request_gone(call); });
        }
    }
}

Status CollNet::lost() {
    return fail(Code::unavailable, "the peer is lost")
        .with_effect(Effect::unknown)
        .with_stage(Stage::sent);
}

void CollNet::fail_at(Call& call, Status why, Duration later) {
    call.replied = true;
    push(now_ + later + setup_.latency, call.from->rank,
         [this, &call, why = std::move(why)] { fail_call(call, why); });
}

void CollNet::fail_call(Call& call, const Status& why) {
    if (!call.open) return;
    call.open = false;
    enter(*call.from, [&] {
        call.from->child_calls.erase(call.request);
        call.from->step(&CollectiveState::on_failure, call.request, why, now_);
    });
}

void CollNet::send_request(Instance& from, const coll::ChildRequest& request) {
    if (!is_live(from)) return;
    Call& call = calls_.emplace_back();
    call.from = &from;
    call.request = request.id;
    call.to = request.of.first;
    call.of = request.of;
    call.plan = from.state().shared_plan();
    call.kind = request.kind;
    call.named = request.named || from.state().plan().rank_order->is_named();
    call.progress_interval = coll::progress_interval_of(request);
    call.deadline = coll::share_of(now_, from.state().role().deadline);
    from.child_calls[request.id] = &call;
    sent.push_back({from.rank, call.to, request.kind, request.named});
    push(send_time(from.rank) + setup_.latency, call.to, [this, &call] { receive(call); });
    push(call.deadline, from.rank, [this, &call] {
        if (!call.open || !is_live(*call.from)) return;
        push(now_ + setup_.latency, call.to, [this, &call] { on_request_gone(call); });
        fail_call(call, fail(Code::deadline_exceeded, "no reply in time")
                            .with_effect(Effect::unknown)
                            .with_stage(Stage::sent));
    });
    Rank& rank = ranks[from.rank];
    if (!from.state().role().is_origin || !setup_.outside) {
        const std::size_t below =
            coll::split({from.state().role().subtree.first + 1, from.state().role().subtree.last},
                        from.state().plan().tree, from.state().plan().rank_order->hosts())
                .size();
        if (++rank.requests_sent == (below + 1) / 2) inject(from.rank, Moment::forwarding);
    }
}

void CollNet::cancel_request(Instance& from, const coll::Ready::Cancel& cancel) {
    if (!is_live(from)) return;
    const coll::ChildRequest& request = cancel.request;
    const TimePoint when = send_time(from.rank) + setup_.latency;
    if (cancel.cancel_child) {
        const std::uint64_t sequence = from.state().key().sequence;
        push(when, request.of.first,
             [this, to = request.of.first, sequence, parent = from.state().as_parent()] {
                 if (Instance* const there = find(to, sequence)) {
                     enter(*there, [&] { there->own_state().on_parent_cancelled(parent); });
                 }
             });
    }
    const auto at = from.child_calls.find(request.id);
    if (at == from.child_calls.end()) return;
    Call& call = *at->second;
    from.child_calls.erase(at);
    call.open = false;
    push(when, call.to, [this, &call] { on_request_gone(call); });
}

void CollNet::on_request_gone(Call& call) {
    if (!call.at || !is_live(*call.at) || call.at->parent_requests.erase(call.parent_request) == 0)
        return;
    enter(*call.at, [&] { call.at->own_state().on_request_gone(call.parent_request, now_); });
}

CollNet::Instance* CollNet::find(std::uint32_t rank, std::uint64_t sequence) {
    if (ranks[rank].is_dead) return nullptr;
    const auto at = known_[rank].find(sequence);
    return at == known_[rank].end() ? nullptr : at->second;
}

// As CollectiveMember::on_forward().
void CollNet::receive(Call& call) {
    Rank& rank = ranks[call.to];
    if (rank.is_dead) {
        const bool is_seen = rank.noticed_in == 0ns;
        return fail_at(call, lost().with_effect(is_seen ? Effect::none : Effect::unknown),
                       rank.noticed_in);
    }
    call.arrived = true;
    call.life = rank.life;
    const std::uint64_t sequence = call.from->state().key().sequence;
    if (Instance* const there = find(call.to, sequence)) return on_request(*there, call);
    if (call.kind != RequestKind::all) {
        return fail_at(call, fail(Code::aborted, "not known here").with_effect(Effect::unknown),
                       0ns);
    }
    const coll::Plan& plan = *call.plan;
    if (rank.epoch == 0 || (!call.named && rank.epoch != plan.epoch)) {
        SubtreeReply stale;
        stale.kind = SubtreeReply::Kind::stale;
        stale.epoch = rank.epoch;
        return reply(call, coll::encode_subtree_reply(stale, room));
    }
    Member member;
    if (plan.rank_order->at(call.of.first, member).incarnation != rank.incarnation) {
        return fail_at(call, rejected(Code::failed_precondition, "another incarnation"), 0ns);
    }
    CollectiveState::Role role;
    role.subtree = call.of;
    role.deadline = coll::share_of(now_, call.deadline);
    std::shared_ptr<const coll::Plan> its = call.plan;
    if (call.named) its = named(*its, call.of);
    Instance& made = make(call.to, std::move(its), sequence, role);
    known_[call.to][sequence] = &made;
    ++entered_;  // The request is received before the state begins.
    on_request(made, call);
    --entered_;
    enter(made, [&] { made.step(&CollectiveState::begin, now_); });
}

std::shared_ptr<const coll::Plan> CollNet::named(const coll::Plan& plan, Interval of) {
    std::vector<Member> members(of.size());
    std::vector<const Member*> all;
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        Member& one = members[at - of.first];
        all.push_back(&plan.rank_order->at(at, one));
    }
    auto its = std::make_shared<coll::Plan>(plan);
    its->rank_order = std::make_shared<coll::RankOrder>(
        of.first, coll::decode_members(coll::encode_members(all), of.size()).value(),
        plan.rank_order->root(), !plan.rank_order->hosts().empty());
    return its;
}

// As MemberDriver::on_request().
void CollNet::on_request(Instance& there, Call& call) {
    const bool self_only =
        call.kind == RequestKind::self_only && there.state().role().subtree.size() > 1;
    if (there.state().is_done()) {
        const std::vector<std::byte>& kept = self_only ? there.own_reply : there.subtree_reply;
        if (kept.empty()) {
            return fail_at(call, fail(Code::aborted, "not kept").with_effect(Effect::unknown), 0ns);
        }
        return reply(call, kept);
    }
    if (self_only && there.state().outcomes().own()) {
        return reply(call, coll::encode_subtree_reply(*there.state().outcomes().own(), room));
    }
    call.at = &there;
    call.parent_request = there.next_request++;
    there.parent_requests[call.parent_request] = {self_only, &call};
    enter(there, [&] {
        there.own_state().on_request(call.parent_request, call.from->state().as_parent(),
                                     now_ + call.progress_interval);
    });
}

void CollNet::reply(Call& call, std::vector<std::byte> bytes) {
    call.replied = true;
    push(send_time(call.to) + setup_.latency, call.from->rank,
         [this, &call, bytes = std::move(bytes)] {
             if (!call.open) return;
             call.open = false;
             enter(*call.from, [&] {
                 call.from->child_calls.erase(call.request);
                 call.from->step(&CollectiveState::on_reply, call.request,
                                 coll::decode_subtree_reply(bytes).value(), now_);
             });
         });
}

void CollNet::reply_to(Instance& from, const coll::Ready::Reply& to) {
    if (!is_live(from)) return;
    const auto at = from.parent_requests.find(to.request);
    if (at == from.parent_requests.end()) return;
    const Instance::ParentRequest parent_request = at->second;
    from.parent_requests.erase(at);
    const coll::Outcomes& outcomes = from.state().outcomes();
    if (parent_request.self_only) {
        const SubtreeReply* const own = outcomes.own();
        return reply(
            *parent_request.call,
            coll::encode_subtree_reply(own ? *own : coll::Outcomes::empty_snapshot(to.kind), room));
    }
    reply(*parent_request.call, coll::encode_subtree_reply(outcomes.snapshot(to.kind), room));
}

void CollNet::run_method(Instance& one) {
    if (!is_live(one)) return;
    inject(one.rank, Moment::forwarded);
    if (!is_live(one)) return;
    Rank& rank = ranks[one.rank];
    const auto end = [this, &one] {
        if (!is_live(one) || one.stopped) return;
        inject(one.rank, Moment::ran);
        if (ranks[one.rank].hangs_until > now_) {  // It finishes when it resumes.
            return push(now_, one.rank, [this, &one] { finish(one); });
        }
        finish(one);
    };
    const auto begin = [this, &one, &rank, end] {
        if (!is_live(one) || one.stopped) return;
        ++rank.runs[rank.runs.size() - 1];
        if (rank.runs_for == never_ends) return;
        if (setup_.in_place && rank.runs_for == 0ns) return end();
        push(now_ + rank.runs_for, one.rank, end);
    };
    if (rank.hangs_until > now_) return push(now_, one.rank, begin);
    begin();
}

void CollNet::finish(Instance& one) {
    if (one.stopped) return;
    const Rank& rank = ranks[one.rank];
    const std::uint32_t position = one.state().role().subtree.first;
    const Status status = rank.fails
                              ? rejected(Code::internal, "it can't").with_effect(Effect::applied)
                              : Status().with_effect(Effect::applied).with_stage(Stage::executing);
    enter(one, [&] {
        one.step(&CollectiveState::on_method_done, status,
                 rank.fails ? std::vector<std::byte>() : reply_of(one.state().plan(), position));
    });
}

// As MemberDriver::on_done().
void CollNet::done(Instance& one) {
    if (!is_live(one)) return;
    if (&one == origin_) done_at = now_;
    if (one.state().child_requests() > 0 || !one.child_calls.empty()) {
        left_at_end_ += " requests at the end of " + std::to_string(one.rank);
    }
    if (one.state().role().is_origin) return;
    one.subtree_reply = coll::encode_subtree_reply(
        one.state().outcomes().snapshot(coll::SubtreeReply::Kind::complete), room);
    if (const SubtreeReply* own = one.state().outcomes().own()) {
        one.own_reply = coll::encode_subtree_reply(*own, room);
    }
    const bool did_nothing = one.state().did_nothing();
    one.own_state().release();
    if (one.state().plan().rank_order->heap_bytes() > 0) left_at_end_ += " members";
    if (did_nothing) known_[one.rank].erase(one.state().key().sequence);
}

}  // namespace weft::test
