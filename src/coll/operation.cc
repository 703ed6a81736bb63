#include "coll/operation.h"

#include <algorithm>

#include "base/mutant.h"
#include "coll/engine.h"

namespace weft::coll {

static constexpr std::size_t own_answer_max = 64 << 10;  // Else it is not kept.

Status Operation::no_memory() const {
    return fail(Code::resource_exhausted, "no memory to send a collective's request of " +
                                              std::to_string(body.size()) + " bytes on");
}

Operation::Operation(Engine& engine, std::shared_ptr<GroupImpl> with,
                     std::shared_ptr<const Plan> plan, Identity identity, std::uint16_t unsettled,
                     const Part::Role& role)
    : group(std::move(with)),
      engine_(engine),
      context_(engine.context()),
      part_(*this, std::move(plan), identity, role),
      unsettled_(unsettled) {
    timer_.of = this;
    timer_.fire = [](base::Timer& timer, TimePoint) { static_cast<Timer&>(timer).of->on_time(); };
}

Operation::~Operation() { forget(); }

// The context may be gone when nothing of ours is in it.
void Operation::forget() {
    if (timer_.is_linked()) context_.timers().cancel(timer_);
}

bool Operation::is_for(const ForwardHeader& header) const {
    const Plan& plan = part_.plan();
    return header.view == plan.view && header.method == plan.method &&
           header.root == plan.roster->root() && header.first == part_.role().mine.first &&
           header.tree == plan.tree && header.plan_flags() == plan.flags &&
           header.operation == static_cast<std::uint8_t>(plan.merge.reduction.operation) &&
           header.number == static_cast<std::uint8_t>(plan.merge.reduction.number);
}

void Operation::begin() {
    const auto kept = shared_from_this();
    begins_ = true;
    try {
        part_.begin(context_.clock().now());  // A handler may have kept this turn for long.
    } catch (const std::bad_alloc&) {
        part_.stop(no_memory().with_effect(Effect::unknown));
    }
    begins_ = false;
    wait();
}

// The timer may come too early, which does no harm.
void Operation::wait() {
    if (part_.is_over() || context_.is_closed()) return forget();
    const TimePoint due = part_.due();
    if (timer_.is_linked() && timer_.deadline <= due) return;
    context_.timers().cancel(timer_);
    context_.timers().arm(timer_, due);
}

void Operation::on_time() {
    const auto kept = shared_from_this();
    part_.on_time(context_.now());
    wait();
}

void Operation::stop(const Status& why) {
    const auto kept = shared_from_this();
    part_.stop(why);
    wait();
}

void Operation::give_up_waiting() {
    const auto kept = shared_from_this();
    part_.stop(fail(Code::resource_exhausted,
                    "not waited for: this rank needed its place for later collectives")
                   .with_effect(Effect::unknown)
                   .with_stage(Stage::sent),
               false);
    wait();
}

void Operation::use_own_view() {
    const auto kept = shared_from_this();
    part_.use_own_view(context_.now());
    wait();
}

void Operation::be_replaced() {
    later_.clear();
    part_.be_replaced();
    forget();
}

void Operation::desert(std::uint32_t asker) {
    part_.desert(asker);
    if (part_.interested() == 0) owed_until = {};
    wait();
}

// ---- itself ------------------------------------------------------------------------------------

void Operation::run(Part&) {
    ByteView mine = body;
    if (part_.plan().flags & ForwardHeader::scatters) {
        mine = piece_of(body, part_.role().mine.size(), 0).value();
    }
    has_run_ = true;
    Result<base::SlotId> started =
        engine_.run_here(part_.plan().method, mine, part_.role().until,
                         [self = shared_from_this()](Status status, ByteView reply) {
                             self->is_mine_over_ = true;
                             self->has_run();
                             // By the end of this runtime, in the middle of the handler.
                             if (status.code() == Code::cancelled) {
                                 status = std::move(status).with_effect(Effect::unknown);
                             }
                             self->part_.ran(std::move(status), reply);
                             self->tell_alone();
                             self->wait();
                         });
    if (!started) {
        has_run_ = false;
        has_run();
        part_.ran(std::move(started).status(), {});
        return tell_alone();
    }
    if (is_mine_over_) return;
    running_here_ = *started;
    if (is_stopped_) stop_running(part_);  // By its own handler.
}

// At a member: what the method took of the client's share is free.
void Operation::has_run() {
    if (origin) return;
    waits = true;
    room->has_run();
}

// In a turn of its own: the handler is told, and may end what this one is stopped with.
void Operation::stop_running(Part&) {
    is_stopped_ = true;
    const base::SlotId id = std::exchange(running_here_, {});
    if (!id) return;
    context_.post([&engine = engine_, id, room = room] { engine.stop_here(id, room); });
}

// ---- whom it answers ---------------------------------------------------------------------------

// Ranks that adopt this one are above it: at most the tree's depth, and again after each death.
static constexpr std::size_t askers_max = 64;
// Collectives that run here, of which each keeps a question open while it waits.
static constexpr std::size_t open_most = 256;
// Of one peer: a parent asks once, and of that rank alone.
static constexpr std::ptrdiff_t askers_of_one_max = 8;

void Operation::ask(const ForwardHeader& header, Call call) {
    const auto refuse = [&](Code code, const char* why) {
        call.fail(fail(code, why).with_effect(Effect::unknown).with_stage(Stage::executing));
    };
    // Of itself only: the same as all, where nobody is below.
    const bool alone = header.asking == Asking::alone && part_.role().mine.size() > 1;
    if (part_.is_over()) {
        const std::vector<std::byte>& kept = alone ? own_answer : answer;
        // Whoever asks then asks those below by himself.
        if (kept.empty()) return refuse(Code::aborted, "its outcomes were not kept");
        owed_until = {};
        return call.reply(kept);
    }
    if (alone && part_.outcomes().own()) {
        return call.reply(encode_answer(*part_.outcomes().own(), call.reply_bytes_max()));
    }
    const AskerId from = engine_.asker_of(call);
    const auto of_this = std::count_if(askers_.begin(), askers_.end(),
                                       [&](const Asker& one) { return one.from == from; });
    if (askers_.size() >= askers_max || of_this >= askers_of_one_max) {
        return refuse(Code::resource_exhausted, "too many ask for one collective");
    }
    const std::uint32_t id = next_asker_++;
    // A question that is open takes one of its peer's slots: where many collectives wait for ranks
    // that say nothing, these would leave none to the collectives that follow.
    const bool is_brief = part_.waits_for_silent() && engine_.running() > open_most;
    const Duration patience = is_brief ? Duration(0) : header.patience_us * 1us;
    // The call is ours as long as it is open, and so are we its.
    call.on_cancel([this, id] { lose(id); });
    part_.asked(id, header.asker, saturating_add(context_.now(), patience));
    askers_.push_back({id, alone, from, std::move(call)});
    owed_until = {};
    wait();
}

// Who wants to hear of this rank only has waited for nothing else.
void Operation::tell_alone() {
    const Answer* const own = part_.outcomes().own();
    if (!own || part_.is_over()) return;
    for (std::size_t i = 0; i < askers_.size();) {
        if (!askers_[i].alone) {
            ++i;
            continue;
        }
        Asker told = std::move(askers_[i]);
        askers_.erase(askers_.begin() + static_cast<std::ptrdiff_t>(i));
        told.call.reply(encode_answer(*own, told.call.reply_bytes_max()));
        part_.asker_left(told.id, context_.now());
    }
}

void Operation::lose(std::uint32_t asker) {
    const auto kept = shared_from_this();
    std::erase_if(askers_, [&](const Asker& one) { return one.id == asker; });
    part_.asker_left(asker, context_.now());
    if (part_.interested() > 0) engine_.owe(*this);  // Another parent may ask.
    wait();
}

void Operation::reply_to(Part&, std::uint32_t asker, Answer::Kind kind) {
    const auto at = std::find_if(askers_.begin(), askers_.end(),
                                 [&](const Asker& one) { return one.id == asker; });
    if (at == askers_.end()) return;
    Asker told = std::move(*at);
    askers_.erase(at);
    const std::size_t bytes_max = told.call.reply_bytes_max();
    const bool is_complete = kind == Answer::Kind::complete;
    if (!is_complete) engine_.owe(*this);  // The parent asks again.
    if (told.alone) {
        const Answer* const own = part_.outcomes().own();
        return told.call.reply(encode_answer(own ? *own : Outcomes::told_nothing(kind), bytes_max));
    }
    if (is_complete && !answer.empty()) return told.call.reply(answer);
    Answer all = is_complete ? all_told() : part_.outcomes().told(kind);
    // What would be cut off now may fit by itself later; but not where nothing more may come.
    const bool is_partial = kind == Answer::Kind::partial;
    if (is_partial && coll::bytes_of(all) > bytes_max) all = Outcomes::told_nothing(kind);
    all.clock = engine_.clock_reading();
    std::vector<std::byte> bytes = encode_answer(std::move(all), bytes_max);
    told.call.reply(bytes);
    if (is_complete) answer = std::move(bytes);
}

// With what asking costs, as far as it is known here.
Answer Operation::all_told() const {
    Answer all = part_.outcomes().told(Answer::Kind::complete);
    all.cost = measured_.told();
    return all;
}

void Operation::done(Part&) {
    running = false;
    forget();
    group->costs.note(body.size(), measured_.told());
    body = {};
    std::exchange(own_body, {});  // Its memory, too.
    if (origin) return engine_.on_origin_done(*this);
    room->has_no_request();
    if (!has_run_ || is_mine_over_) has_run();  // Else the handler may not have ended yet.
    if (answer.empty()) {
        answer = encode_answer(all_told(), engine_.reply_bytes_max());
    }
    if (const Answer* own = part_.outcomes().own(); own && coll::bytes_of(*own) <= own_answer_max) {
        own_answer = encode_answer(*own, own_answer_max);
    }
    // What is kept from here on is the answer, within the limits of those that are known.
    did_nothing_ = !has_run_ && part_.did_nothing();
    if (part_.was_awaited()) engine_.owe(*this);
    part_.release();
    engine_.on_member_done(*this);
}

// ---- where it began ----------------------------------------------------------------------------

void Operation::refresh(Part&, std::uint32_t position, std::uint64_t) {
    engine_.refresh(shared_from_this(), position);
}

void Operation::tell(Part&) { engine_.tell(*this); }

}  // namespace weft::coll
