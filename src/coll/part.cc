#include "coll/part.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/mutant.h"

namespace weft::coll {

static_assert(sizeof(Part) <= 192);

Part::Part(Port& port, std::shared_ptr<const Plan> plan, Identity identity, const Role& role)
    : port_(port),
      plan_(std::move(plan)),
      identity_(identity),
      role_(role),
      outcomes_(plan_->merge),
      may_refresh_(role.is_origin && !role.runs) {}

void Part::begin(TimePoint now) {
    const Step step(*this, now);
    if (now >= role_.until) {
        stopped_ = true;
        return outcomes_.add_missing(
            role_.mine, fail(Code::deadline_exceeded, "its time was over before it began"));
    }
    ask_below({role_.mine.first + (role_.runs ? 1u : 0u), role_.mine.last}, false, now);
    if (!role_.runs) return;
    runs_ = true;
    port_.run(*this);
}

// ---- whom it asks ------------------------------------------------------------------------------

void Part::ask_below(Interval below, bool again, TimePoint now) {
    std::vector<Interval> children = split(below, plan_->tree, plan_->roster->hosts());
    if (again) {
        // Of some something is known already, and of others all.
        outcomes_.doubt(below);
        std::erase_if(children, [&](Interval child) { return outcomes_.contains(child); });
    }
    if (base::is_mutated(base::Mutant::child_forgotten) && children.size() > 2) {
        children.pop_back();
    }
    asks_.expect(children.size());
    for (const Interval child : children) ask(child, Asking::all, again, false, now);
}

void Part::ask(Interval of, Asking asking, bool again, bool named, TimePoint now) {
    Ask made;
    made.of = of;
    made.asking = asking;
    made.again = again;
    made.named = named;
    send(asks_.add(made), now);
}

void Part::send(Ask& ask, TimePoint now) {
    asks_.change(ask, [&](Ask& sent) {
        sent.parked = false;
        sent.paused = false;
        sent.sent_at = now;
    });
    port_.ask(*this, Ask(ask));
}

// Twice as long each time: a handler that takes long costs few messages.
Duration Part::patience_of(const Ask& ask) {
    const Duration first = least_patience + level_patience * std::bit_width(ask.of.size());
    return std::min<Duration>(first * (1 << std::min<int>(ask.rounds, 8)), last_patience);
}

// Whose outcomes its end will tell: of one that is silent those below have been asked since.
static Interval awaited_by(const Part::Ask& ask) {
    return ask.is_silent ? Interval{ask.of.first, ask.of.first + 1} : ask.of;
}

// Its question is over; `why` then says no more than is sure.
std::optional<Part::Ask> Part::take_failed(std::uint32_t id, Status& why, TimePoint now) {
    Ask* const found = asks_.find(id);
    if (!found) return std::nullopt;
    const Ask ask = asks_.take(*found);
    unpark(now);
    // That we did not reach it does not say that nobody did, or that we had not before.
    const bool is_doubtful = ask.again || ask.is_silent || ask.asking != Asking::all;
    if (is_doubtful && why.effect() == Effect::none) {
        why = std::move(why).with_effect(Effect::unknown);
    }
    return ask;
}

void Part::failed(std::uint32_t id, Status why, TimePoint now) {
    const Step step(*this, now);
    const std::optional<Ask> ask = take_failed(id, why, now);
    if (!ask) return;
    if (ask->is_silent || ask->asking == Asking::alone) {
        outcomes_.add(ask->of.first, std::move(why), {});
    } else {
        adopt(*ask, std::move(why), now);
    }
}

void Part::refuse(std::uint32_t id, Status why, TimePoint now) {
    const Step step(*this, now);
    if (const auto ask = take_failed(id, why, now)) outcomes_.add_missing(awaited_by(*ask), why);
}

// What is said of those below one that is not asked for them any more.
static Status not_reached(const Member& above, const Status& why) {
    const bool keeps = why.code() == Code::deadline_exceeded ||
                       why.code() == Code::invalid_argument || why.code() == Code::cancelled;
    const Effect effect = why.effect() == Effect::none ? Effect::none : Effect::unknown;
    return fail(keeps ? why.code() : Code::unavailable,
                "not reached: below rank " + std::to_string(above.rank) + " (" +
                    std::string(why.peer()) + "), which failed with " +
                    std::string(name_of(why.code())))
        .with_effect(effect)
        .with_stage(effect == Effect::none ? Stage::queued : Stage::sent);
}

// Its own outcome is that of asking it. Those below it are asked by us, whether it has done so or
// not, while there is time and anybody waits for them.
void Part::adopt(const Ask& ask, Status why, TimePoint now) {
    const Interval below{ask.of.first + 1, ask.of.last};
    // These would be said by all of them.
    const bool is_everybodys =
        why.code() == Code::cancelled || why.code() == Code::invalid_argument;
    const bool goes_on = !is_everybodys && !stopped_ && now < role_.until;
    if (!goes_on && below.size() > 0) {
        Member room;
        outcomes_.add_missing(below, not_reached(plan_->roster->at(ask.of.first, room), why));
    }
    const bool again = ask.again || why.effect() != Effect::none;
    outcomes_.add(ask.of.first, std::move(why), {});
    if (goes_on && !outcomes_.contains(below)) ask_below(below, again, now);
}

// Another one may have asked all of them before, and himself in another life.
static void doubt(Answer& answer) {
    for (Outcome& outcome : answer.outcomes) {
        if (outcome.status.ok() || outcome.status.effect() != Effect::none) continue;
        outcome.status = std::move(outcome.status).with_effect(Effect::unknown);
    }
}

void Part::answered(std::uint32_t id, Answer answer, TimePoint now) {
    const Step step(*this, now);
    Ask* const ask = asks_.find(id);
    if (!ask || ask->paused) return;
    if (answer.kind == Answer::Kind::stale) return refused(id, answer.epoch, now);
    if (ask->again || ask->is_silent) doubt(answer);
    const bool is_all = answer.kind == Answer::Kind::complete;
    asks_.change(*ask, [&](Ask& told) {
        told.has_silent = answer.kind == Answer::Kind::silent;
        if (is_all) return;
        if (told.asking == Asking::all) told.asking = Asking::rest;
        told.paused = true;
    });
    outcomes_.add(ask->of, std::move(answer));
    if (!is_all) {
        unpark(now);
        return ask_on(id, now);
    }
    const Ask ended = asks_.take(*ask);
    unpark(now);
    ask_missing(ended, now);
}

// For the rest. Whoever says at once that there is more to come would be asked without end.
void Part::ask_on(std::uint32_t id, TimePoint now) {
    Ask* const ask = asks_.find(id);
    if (!ask || !ask->paused || due_of(*ask) > now) return;
    asks_.change(*ask, [](Ask& again) {
        if (again.rounds < 255) ++again.rounds;
    });
    send(*ask, now);
}

void Part::ask_paused(TimePoint now) {
    for (const std::uint32_t id : asks_.due_by(now)) ask_on(id, now);
}

// One past those, from this one on, that others will tell of; `position`: none will.
std::uint32_t Part::asked_until(std::uint32_t position) const {
    std::uint32_t until = position;
    asks_.for_each([&](const Ask& ask) {
        const Interval awaited = awaited_by(ask);
        if (!ask.waits && awaited.contains(position)) until = std::max(until, awaited.last);
    });
    return until;
}

// Those of whom the answer did not say anything that could be taken. Merged with some of whom
// others have told already, a reply can be had from its rank only.
void Part::ask_missing(const Ask& ask, TimePoint now) {
    if (outcomes_.contains(ask.of)) return;
    const bool is_merged = !plan_->merge.is_list() && ask.asking != Asking::alone;
    if (is_merged && !stopped_ && now < role_.until) {
        Ask rest;
        rest.of = ask.of;
        rest.asking = Asking::alone;
        rest.again = true;
        rest.named = ask.named;
        rest.waits = true;
        asks_.add(rest);
        return;
    }
    Member room;
    const Status why =
        fail(Code::internal, "rank " + std::to_string(plan_->roster->at(ask.of.first, room).rank) +
                                 " answered without an outcome for this rank")
            .with_effect(Effect::unknown)
            .with_stage(Stage::sent);
    IntervalSet asked;
    asks_.for_each([&](const Ask& other) { asked.add(awaited_by(other)); });
    for (const Interval& open : asked.missing(ask.of)) outcomes_.add_missing(open, why);
}

// Whoever answers at once makes room for the next one in this loop, and not in one of his own.
void Part::ask_waiting(TimePoint now) {
    while (!over_ && asks_.alone() < alone_most) {
        Ask* const rest = asks_.first_that_waits();
        if (!rest) return;
        const std::uint32_t next = outcomes_.first_missing(rest->of);
        if (next == rest->of.last) {
            asks_.take(*rest);
            continue;
        }
        // Those that a question is under way about are passed over together.
        const std::uint32_t until = asked_until(next);
        rest->of.first = std::min(std::max(until, next + 1), rest->of.last);
        if (until == next) ask({next, next + 1}, Asking::alone, true, rest->named, now);
    }
}

// ---- whose view is another one -----------------------------------------------------------------

void Part::refused(std::uint32_t id, std::uint64_t epoch, TimePoint now) {
    Ask& ask = *asks_.find(id);
    const bool is_hopeless = epoch == 0 || ask.named || ask.asking != Asking::all;
    if (is_hopeless) {
        return failed(
            id,
            rejected(Code::failed_precondition,
                     epoch == 0
                         ? "this rank serves no group of this name (Runtime::join() there comes "
                           "before the call; every view has the same name): '" +
                               plan_->name + "'"
                         : "stale view: the caller's has epoch " + std::to_string(plan_->epoch) +
                               "; here: epoch " + std::to_string(epoch)),
            now);
    }
    ask.named = true;
    if (!may_refresh_ || epoch <= plan_->epoch) {
        unpark(now);
        return send(*asks_.find(id), now);
    }
    asks_.change(ask, [](Ask& refused) { refused.parked = true; });
    if (asks_.all_parked()) port_.refresh(*this, ask.of.first, epoch);
}

void Part::use_own_view(TimePoint now) {
    const Step step(*this, now);
    unpark(now);
}

void Part::be_replaced() {
    asks_.take_all();
    over_ = true;
}

// Somebody has begun, or there is nothing to be learnt: the others are told who is who.
void Part::unpark(TimePoint now) {
    if (!std::exchange(may_refresh_, false)) return;
    std::vector<std::uint32_t> parked;
    asks_.for_each([&](const Ask& ask) {
        if (ask.parked) parked.push_back(ask.id);
    });
    for (const std::uint32_t id : parked) {
        if (Ask* const ask = asks_.find(id)) send(*ask, now);
    }
}

// ---- itself ------------------------------------------------------------------------------------

void Part::ran(Status status, ByteView reply) {
    const Step step(*this);
    if (!std::exchange(runs_, false)) return;
    if (role_.mine.size() > 1 && !role_.is_origin) {  // Whom nobody asks.
        outcomes_.keep_own(role_.mine.first, status, reply);
    }
    outcomes_.add(role_.mine.first, std::move(status), reply);
}

// ---- time --------------------------------------------------------------------------------------

TimePoint Part::due() const {
    if (over_) return never;
    TimePoint at = std::min({role_.until, orphaned_at(), asks_.due()});
    for (const Asker& asker : askers_) {
        if (asker.question) at = std::min(at, asker.until);
    }
    return at;
}

// Whoever says nothing within his patience stands still, or can't be heard: those below him don't
// wait for him any more. He himself may still answer.
void Part::fall_silent(TimePoint now) {
    std::vector<Interval> below;
    for (const std::uint32_t id : asks_.due_by(now)) {
        Ask& ask = *asks_.find(id);
        if (ask.paused) continue;
        asks_.change(ask, [](Ask& silent) { silent.is_silent = true; });
        below.push_back({ask.of.first + 1, ask.of.last});
    }
    if (!below.empty()) unpark(now);  // He may have begun.
    for (const Interval& one : below) {
        if (one.size() > 0 && !outcomes_.contains(one)) ask_below(one, true, now);
    }
}

void Part::on_time(TimePoint now) {
    const Step step(*this, now);
    if (over_) return;
    if (now >= role_.until) {
        stopped_ = true;
        give_up_all(false);
        const Status late =
            fail(Code::deadline_exceeded, "no answer in time").with_effect(Effect::unknown);
        if (std::exchange(runs_, false)) {
            port_.stop_running(*this);
            outcomes_.add(role_.mine.first, Status(late).with_stage(Stage::executing), {});
        }
        return outcomes_.add_missing(role_.mine, Status(late).with_stage(Stage::sent));
    }
    if (now >= orphaned_at()) {
        return stop(
            fail(Code::cancelled, "the caller of this collective is gone, and no rank waits for it")
                .with_effect(Effect::unknown)
                .with_stage(Stage::executing));
    }
    fall_silent(now);
    ask_paused(now);
    answer_impatient(now);
}

void Part::stop(const Status& why, bool stops_others) {
    const Step step(*this);
    if (over_ || stopped_) return;
    stopped_ = true;
    give_up_all(stops_others);
    if (std::exchange(runs_, false)) port_.stop_running(*this);
    outcomes_.add_missing(role_.mine, why);
}

void Part::give_up_all(bool stop) {
    for (const Ask& ask : asks_.take_all()) {
        const bool has_heard = !ask.parked && !ask.waits;
        if (has_heard && (stop || !ask.paused)) port_.give_up(*this, ask, stop);
    }
}

// ---- its end -----------------------------------------------------------------------------------

// Of the origin: that nothing which is still missing would change the verdict.
bool Part::is_decided() const {
    if (!plan_->merge.is_list() || role_.policy == Policy::all) return false;
    if (role_.policy == Policy::quorum && outcomes_.ok_count() >= role_.quorum) return true;
    const std::uint32_t missing = role_.mine.size() - outcomes_.known_count();
    // Those who can't be enough any more are heard all the same.
    const bool may_be =
        role_.policy == Policy::quorum && outcomes_.ok_count() + missing >= role_.quorum;
    return !may_be && waits_for_silent();
}

bool Part::waits_for_silent() const { return !runs_ && asks_.all_quiet(); }

void Part::leave() {
    if (over_) return;
    const bool is_complete = outcomes_.known_count() == role_.mine.size();
    if (is_complete) return end();
    if (role_.is_origin && !told_ && is_decided()) {
        told_ = true;
        port_.tell(*this);
        if (!role_.abandons && !base::is_mutated(base::Mutant::rest_abandoned)) return;
        stop(fail(Code::cancelled, "abandoned by its caller, which has an outcome")
                 .with_effect(Effect::unknown));
    }
}

void Part::end() {
    over_ = true;
    // Where it began no other rank asks in its place: ranks that were asked again, and of which
    // another one has told meanwhile, hear of the end.
    give_up_all(role_.is_origin);
    if (std::exchange(runs_, false)) port_.stop_running(*this);
    outcomes_.finish();
    if (role_.is_origin && !std::exchange(told_, true)) port_.tell(*this);
    was_awaited_ = !askers_.empty() && askers() == 0;
    for (const Asker& asker : std::exchange(askers_, {})) {
        if (asker.question) port_.reply_to(*this, asker.question, Answer::Kind::complete);
    }
    port_.done(*this);
}

bool Part::awaits_all() const {
    IntervalSet awaited = outcomes_.known();
    if (runs_) awaited.add({role_.mine.first, role_.mine.first + 1});
    asks_.for_each([&](const Ask& ask) { awaited.add(awaited_by(ask)); });
    return over_ || awaited.contains(role_.mine);
}

bool Part::did_nothing() const {
    return role_.mine.size() == 1 && outcomes_.notable().size() == 1 &&
           !outcomes_.notable().front().status.ok() &&
           outcomes_.notable().front().status.effect() == Effect::none;
}

void Part::release() {
    outcomes_ = Outcomes(plan_->merge);
    // What is not in a view that all share goes: members that were named, who stands where.
    if (plan_->roster->heap_bytes() == 0) return;
    auto plan = std::make_shared<Plan>(*plan_);
    plan->roster =
        std::make_shared<Roster>(role_.mine.first, MemberList(), plan_->roster->root(), false);
    plan_ = std::move(plan);
}

std::vector<Outcome> Part::take_all(const Status& missing) const {
    std::vector<Outcome> all(role_.mine.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i].position = role_.mine.first + i;
    for (const Interval& known : outcomes_.known().intervals()) {
        for (std::uint32_t at = known.first; at < known.last; ++at) {
            all[at - role_.mine.first].status =
                Status().with_effect(Effect::applied).with_stage(Stage::executing);
        }
    }
    for (const Interval& gap : outcomes_.missing(role_.mine)) {
        for (std::uint32_t at = gap.first; at < gap.last; ++at) {
            all[at - role_.mine.first].status = missing;
        }
    }
    for (const Outcome& outcome : outcomes_.notable()) {
        all[outcome.position - role_.mine.first] = outcome;
    }
    return all;
}

}  // namespace weft::coll
