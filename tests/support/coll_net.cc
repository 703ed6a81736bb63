#include "support/coll_net.h"

namespace weft::test {

void CollNet::strike(std::uint32_t at, Moment moment) {
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
        if (call.to == at && call.came && !call.replied) fail_at(call, lost(), noticed_in);
        if (call.from->rank == at && call.open) {
            call.open = false;
            push(now_ + noticed_in + setup_.latency, call.to, [this, &call] { leave(call); });
        }
    }
}

Status CollNet::lost() {
    return fail(Code::unavailable, "the peer is gone")
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
        call.from->questions.erase(call.ask);
        call.from->part.failed(call.ask, why, now_);
    });
}

void CollNet::ask(Instance& from, const Part::Ask& ask) {
    if (!is_live(from)) return;
    Call& call = calls_.emplace_back();
    call.from = &from;
    call.ask = ask.id;
    call.to = ask.of.first;
    call.of = ask.of;
    call.plan = from.part.shared_plan();
    call.asking = ask.asking;
    call.named = ask.named || from.part.plan().roster->is_named();
    call.patience = Part::patience_of(ask);
    call.deadline = coll::share_of(now_, from.part.role().until);
    from.questions[ask.id] = &call;
    sent.push_back({from.rank, call.to, ask.asking, ask.named});
    push(leaves(from.rank) + setup_.latency, call.to, [this, &call] { come(call); });
    push(call.deadline, from.rank, [this, &call] {
        if (!call.open || !is_live(*call.from)) return;
        push(now_ + setup_.latency, call.to, [this, &call] { leave(call); });
        fail_call(call, fail(Code::deadline_exceeded, "no reply in time")
                            .with_effect(Effect::unknown)
                            .with_stage(Stage::sent));
    });
    Rank& rank = ranks[from.rank];
    if (!from.part.role().is_origin || !setup_.outside) {
        const std::size_t below =
            coll::split({from.part.role().mine.first + 1, from.part.role().mine.last},
                        from.part.plan().tree, from.part.plan().roster->hosts())
                .size();
        if (++rank.asked == (below + 1) / 2) strike(from.rank, Moment::forwarding);
    }
}

void CollNet::give_up(Instance& from, const Part::Ask& ask, bool stop) {
    if (!is_live(from)) return;
    const TimePoint when = leaves(from.rank) + setup_.latency;
    if (stop) {
        const std::uint64_t sequence = from.part.identity().sequence;
        push(when, ask.of.first, [this, to = ask.of.first, sequence, asker = from.part.as_asker()] {
            if (Instance* const there = find(to, sequence)) {
                enter(*there, [&] { there->part.desert(asker); });
            }
        });
    }
    const auto at = from.questions.find(ask.id);
    if (at == from.questions.end()) return;
    Call& call = *at->second;
    from.questions.erase(at);
    call.open = false;
    push(when, call.to, [this, &call] { leave(call); });
}

void CollNet::leave(Call& call) {
    if (!call.at || !is_live(*call.at) || call.at->askers.erase(call.asker) == 0) return;
    enter(*call.at, [&] { call.at->part.asker_left(call.asker, now_); });
}

CollNet::Instance* CollNet::find(std::uint32_t rank, std::uint64_t sequence) {
    if (ranks[rank].is_dead) return nullptr;
    const auto at = known_[rank].find(sequence);
    return at == known_[rank].end() ? nullptr : at->second;
}

// As Engine::on_forward().
void CollNet::come(Call& call) {
    Rank& rank = ranks[call.to];
    if (rank.is_dead) {
        const bool is_seen = rank.noticed_in == 0ns;
        return fail_at(call, lost().with_effect(is_seen ? Effect::none : Effect::unknown),
                       rank.noticed_in);
    }
    call.came = true;
    call.life = rank.life;
    const std::uint64_t sequence = call.from->part.identity().sequence;
    if (Instance* const there = find(call.to, sequence)) return join(*there, call);
    if (call.asking != Asking::all) {
        return fail_at(call, fail(Code::aborted, "not known here").with_effect(Effect::unknown),
                       0ns);
    }
    const coll::Plan& plan = *call.plan;
    if (rank.epoch == 0 || (!call.named && rank.epoch != plan.epoch)) {
        Answer stale;
        stale.kind = Answer::Kind::stale;
        stale.epoch = rank.epoch;
        return reply(call, coll::encode_answer(stale, room));
    }
    Member member;
    if (plan.roster->at(call.of.first, member).incarnation != rank.incarnation) {
        return fail_at(call, rejected(Code::failed_precondition, "another incarnation"), 0ns);
    }
    Part::Role role;
    role.mine = call.of;
    role.until = coll::share_of(now_, call.deadline);
    std::shared_ptr<const coll::Plan> its = call.plan;
    if (call.named) its = named(*its, call.of);
    Instance& made = make(call.to, std::move(its), sequence, role);
    known_[call.to][sequence] = &made;
    ++entered_;  // It is asked before it begins.
    join(made, call);
    --entered_;
    enter(made, [&] { made.part.begin(now_); });
}

std::shared_ptr<const coll::Plan> CollNet::named(const coll::Plan& plan, Interval of) {
    std::vector<Member> members(of.size());
    std::vector<const Member*> all;
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        Member& one = members[at - of.first];
        all.push_back(&plan.roster->at(at, one));
    }
    auto its = std::make_shared<coll::Plan>(plan);
    its->roster = std::make_shared<coll::Roster>(
        of.first, coll::decode_members(coll::encode_members(all), of.size()).value(),
        plan.roster->root(), !plan.roster->hosts().empty());
    return its;
}

// As Operation::ask().
void CollNet::join(Instance& there, Call& call) {
    const bool alone = call.asking == Asking::alone && there.part.role().mine.size() > 1;
    if (there.part.is_over()) {
        const std::vector<std::byte>& kept = alone ? there.own_answer : there.answer;
        if (kept.empty()) {
            return fail_at(call, fail(Code::aborted, "not kept").with_effect(Effect::unknown), 0ns);
        }
        return reply(call, kept);
    }
    if (alone && there.part.outcomes().own()) {
        return reply(call, coll::encode_answer(*there.part.outcomes().own(), room));
    }
    call.at = &there;
    call.asker = there.next_asker++;
    there.askers[call.asker] = {alone, &call};
    enter(there,
          [&] { there.part.asked(call.asker, call.from->part.as_asker(), now_ + call.patience); });
}

void CollNet::reply(Call& call, std::vector<std::byte> bytes) {
    call.replied = true;
    push(leaves(call.to) + setup_.latency, call.from->rank,
         [this, &call, bytes = std::move(bytes)] {
             if (!call.open) return;
             call.open = false;
             enter(*call.from, [&] {
                 call.from->questions.erase(call.ask);
                 call.from->part.answered(call.ask, coll::decode_answer(bytes).value(), now_);
             });
         });
}

void CollNet::reply_to(Instance& from, std::uint32_t asker, Answer::Kind kind) {
    if (!is_live(from)) return;
    const auto at = from.askers.find(asker);
    if (at == from.askers.end()) return;
    const Instance::Asker who = at->second;
    from.askers.erase(at);
    const coll::Outcomes& outcomes = from.part.outcomes();
    if (who.alone) {
        const Answer* const own = outcomes.own();
        return reply(*who.call,
                     coll::encode_answer(own ? *own : coll::Outcomes::told_nothing(kind), room));
    }
    reply(*who.call, coll::encode_answer(outcomes.told(kind), room));
}

void CollNet::run_method(Instance& one) {
    if (!is_live(one)) return;
    strike(one.rank, Moment::forwarded);
    if (!is_live(one)) return;
    Rank& rank = ranks[one.rank];
    const auto end = [this, &one] {
        if (!is_live(one) || one.stopped) return;
        strike(one.rank, Moment::ran);
        if (ranks[one.rank].hangs_until > now_) {  // What it does next, when it goes on.
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
    const std::uint32_t position = one.part.role().mine.first;
    const Status status = rank.fails
                              ? rejected(Code::internal, "it can't").with_effect(Effect::applied)
                              : Status().with_effect(Effect::applied).with_stage(Stage::executing);
    enter(one, [&] {
        one.part.ran(status,
                     rank.fails ? std::vector<std::byte>() : reply_of(one.part.plan(), position));
    });
}

// As Operation::done().
void CollNet::done(Instance& one) {
    if (!is_live(one)) return;
    if (&one == origin_) done_at = now_;
    if (one.part.asks() > 0 || !one.questions.empty()) {
        left_at_end_ += " questions at the end of " + std::to_string(one.rank);
    }
    if (one.part.role().is_origin) return;
    one.answer = coll::encode_answer(one.part.outcomes().told(coll::Answer::Kind::complete), room);
    if (const Answer* own = one.part.outcomes().own()) {
        one.own_answer = coll::encode_answer(*own, room);
    }
    const bool did_nothing = one.part.did_nothing();
    one.part.release();
    if (one.part.plan().roster->heap_bytes() > 0) left_at_end_ += " members";
    if (did_nothing) known_[one.rank].erase(one.part.identity().sequence);
}

}  // namespace weft::test
