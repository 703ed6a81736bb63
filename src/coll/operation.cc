#include "coll/operation.h"

#include <algorithm>

#include "base/mutant.h"
#include "coll/engine.h"

namespace weft::coll {

// What is kept back at each hop, so that the rank that is late is named by its parent, and not its
// parent by the grandparent: enough for an answer and two timer ticks.
static Duration share(Duration left) {
    if (base::is_mutated(base::Mutant::level_budget_ignored)) return left;
    if (left < 8ms) return left / 2;
    return left - std::clamp<Duration>(left / 32, 3ms, 500ms);
}

TimePoint share_of(TimePoint now, TimePoint deadline) {
    return deadline == never ? never : now + share(std::max(deadline - now, Duration(0)));
}

// What an old reading of a rank's clock takes from a collective must be less than what is kept back
// at each hop: it ends the time there.
static bool is_exact(const PeerClock& clock, TimePoint began, Duration lasts) {
    return clock.is_known() && clock.loss(began) <= (lasts - share(lasts)) / 2;
}

static constexpr Duration stop_timeout = 2s;
static constexpr std::size_t own_answer_max = 64 << 10;  // Else it is not kept.

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
    part_.begin(context_.clock().now());  // A handler may have kept this turn for long.
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

// ---- whom it asks ------------------------------------------------------------------------------

ForwardHeader Operation::header_for(Interval of, Asking asking, Duration patience) const {
    const Plan& plan = part_.plan();
    ForwardHeader header;
    header.view = plan.view;
    header.group = plan.group;
    header.epoch = plan.epoch;
    header.identity = part_.identity();
    header.method = plan.method;
    header.lasts_ns =
        lasts == Duration::max() ? UINT64_MAX : static_cast<std::uint64_t>(lasts.count());
    header.unsettled = unsettled_;
    header.client = brought_by.number;
    header.asker = part_.as_asker();
    header.root = plan.roster->root();
    header.first = of.first;
    header.last = of.last;
    header.tree = plan.tree;
    header.patience_us = static_cast<std::uint32_t>(patience / 1us);
    header.asking = asking;
    header.flags =
        static_cast<std::uint8_t>(plan.flags | priority << ForwardHeader::priority_shift);
    header.operation = static_cast<std::uint8_t>(plan.merge.reduction.operation);
    header.number = static_cast<std::uint8_t>(plan.merge.reduction.number);
    return header;
}

std::vector<std::byte> Operation::members_of(Interval of) const {
    const Roster& roster = *part_.plan().roster;
    if (roster.is_named()) {
        const ByteView bytes = roster.named(of);
        return {bytes.begin(), bytes.end()};
    }
    std::vector<const Member*> members;
    members.reserve(of.size());
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        members.push_back(&roster.at(at));
    }
    return encode_members(members);
}

CallOptions Operation::options_for_calls() const {
    CallOptions options;
    // Who asked may die, and who adopts this rank waits for the rest. Where it began it is the
    // collective that ends with its scope, and not the calls one by one.
    options.detached = true;
    options.priority = priority;
    const TimePoint until = share_of(context_.now(), part_.role().until);
    options.timeout = until == never ? no_timeout : std::max(until - context_.now(), Duration(1));
    return options;
}

void Operation::ask(Part&, const Part::Ask& ask) {
    // What began here is bounded by its own program.
    if (origin || engine_.later_asks().may_ask(bytes_of(ask))) return ask_now(ask);
    put_off({ask, Status()});
}

std::size_t Operation::bytes_of(const Part::Ask& ask) const {
    return ask.asking == Asking::all ? body.size() : 0;
}

void Operation::put_off(Later later) {
    later_.push_back(std::move(later));
    if (!std::exchange(is_in_line_, true)) engine_.later_asks().add(shared_from_this());
}

bool Operation::go_on() {
    if (later_.empty()) return is_in_line_ = false;
    const Later next = std::move(later_.back());
    later_.pop_back();
    engine_.later_asks().count(next.why.ok() ? bytes_of(next.ask) : 0);
    if (next.why.ok()) {
        ask_now(next.ask);
    } else if (next.whole) {
        part_.refuse(next.ask.id, next.why, context_.now());
    } else {
        part_.failed(next.ask.id, next.why, context_.now());
    }
    wait();
    return is_in_line_ = !later_.empty();
}

void Operation::ask_now(const Part::Ask& ask) {
    Member room;
    const Member& member = part_.plan().roster->at(ask.of.first, room);
    Result<Channel> channel = group->channel(member);
    if (!channel) return put_off({ask, channel.status()});
    Question question;
    question.ask = ask;
    // Those that are asked later are asked for other reasons, and some of them a second time.
    question.is_leaf = begins_ && ask.of.size() == 1;
    question.channel = *std::move(channel);
    const PeerClock* const clock = group->clock_of(member);
    if (!clock && !origin) {
        std::optional<Shares::Place> place = engine_.place_for_stranger(brought_by);
        if (!place) {
            return put_off({ask,
                            fail(Code::resource_exhausted,
                                 "too many members that are named and in no view here"),
                            ask.asking == Asking::all});
        }
        question.place = *std::move(place);
    }
    const bool is_asked_first = !clock || !is_exact(*clock, began, lasts);
    send(std::move(question), is_asked_first ? PeerClock() : *clock);
}

void Operation::send(Question question, const PeerClock& clock) {
    const Plan& plan = part_.plan();
    const Part::Ask& ask = question.ask;
    const bool begins = ask.asking == Asking::all;
    question.asks_clock = begins && !clock.is_known();
    const bool has_body = begins && !question.asks_clock;
    std::vector<std::byte> pieces;
    if (has_body && (plan.flags & ForwardHeader::scatters)) {
        append_pieces(pieces, body, part_.role().mine, ask.of);
    }
    std::vector<std::byte> named;
    if (has_body && (ask.named || plan.roster->is_named())) named = members_of(ask.of);
    ForwardParts parts;
    parts.header = header_for(ask.of, question.asks_clock ? Asking::clock : ask.asking,
                              Part::patience_of(ask));
    if (has_body) parts.header.began = clock.time_there(began);
    if (has_body && named.empty()) parts.ranges = plan.roster->ranks();
    parts.named = named;
    if (has_body) parts.body = (plan.flags & ForwardHeader::scatters) ? ByteView(pieces) : body;
    const BodyWriter writer{parts.bytes(), &parts, [](void* object, std::byte* to) {
                                const auto& from = *static_cast<ForwardParts*>(object);
                                encode_forward(from, {to, from.bytes()});
                            }};
    if (question.is_leaf && has_body) measured_.asked(context_.clock().now());
    question.call = question.channel.call_with(
        forward_method, writer, options_for_calls(),
        [self = shared_from_this(), id = ask.id](const Status& status, ByteView reply) {
            self->on_answer(id, status, reply);
        });
    questions_.push_back(std::move(question));
}

void Operation::on_answer(std::uint32_t ask, const Status& status, ByteView reply) {
    const auto at = std::find_if(questions_.begin(), questions_.end(),
                                 [&](const Question& one) { return one.ask.id == ask; });
    if (at == questions_.end()) return;  // Given up.
    const TimePoint now = context_.now();
    Question question = std::move(*at);
    questions_.erase(at);
    if (!status.ok()) {
        // What time it is there could be asked without any effect.
        const Effect effect = question.asks_clock ? Effect::none : status.effect();
        part_.failed(ask, Status(status).with_effect(effect), now);
    } else if (Result<Answer> told = decode_answer(reply, question.ask.of.size())) {
        if (told->kind == Answer::Kind::late) {
            on_late(std::move(question), told->clock);
            return wait();
        }
        const std::uint32_t position = question.ask.of.first;
        Member room;
        if (PeerClock* clock = group->clock_of(part_.plan().roster->at(position, room))) {
            clock->note(told->clock, context_.clock().now());
        }
        const bool is_later = told->kind == Answer::Kind::stale && told->epoch > part_.plan().epoch;
        if (is_later && origin) {
            origin->later_at = position;
            origin->later_epoch = told->epoch;
        }
        if (told->kind == Answer::Kind::complete) {
            if (question.is_leaf) measured_.answered(context_.clock().now());
            measured_.hear(told->cost);
        }
        part_.answered(ask, *std::move(told), now);
    } else {  // It ran, and can't say what came of it.
        part_.failed(
            ask, std::move(told).status().with_effect(Effect::unknown).with_stage(Stage::executing),
            now);
    }
    wait();
}

// Nothing was done there. It is asked again with the time that it is now, while it can be in time.
void Operation::on_late(Question question, Ticks reading) {
    static constexpr std::uint8_t refused_most = 2;
    Member room;
    const Member& member = part_.plan().roster->at(question.ask.of.first, room);
    const TimePoint now = context_.clock().now();
    const PeerClock clock(reading, now);
    if (PeerClock* const known = group->clock_of(member)) *known = clock;
    if (!question.asks_clock) ++question.refused;
    if (clock.is_known() && may_begin(now - began, lasts) && question.refused < refused_most) {
        return send(std::move(question), clock);
    }
    const Duration within = begin_within(lasts);
    part_.failed(question.ask.id,
                 fail(Code::deadline_exceeded,
                      "rank " + std::to_string(member.rank) + " begins a collective within " +
                          std::to_string(within / 1ms) + " ms of its start, and this one is older")
                     .with_stage(Stage::sent)
                     .with_peer(question.channel.uri()),
                 context_.now());
}

void Operation::give_up(Part&, const Part::Ask& ask, bool stop) {
    const bool is_put_off =
        std::erase_if(later_, [&](const Later& one) { return one.ask.id == ask.id; }) > 0;
    if (is_put_off && ask.asking == Asking::all) return;  // Nothing of it was sent.
    const bool tells = stop && !context_.is_closed();
    const auto at = std::find_if(questions_.begin(), questions_.end(),
                                 [&](const Question& one) { return one.ask.id == ask.id; });
    if (at == questions_.end()) {  // He has said so far, and waits to be asked for the rest.
        if (!tells) return;
        Member room;
        const Result<Channel> channel = group->channel(part_.plan().roster->at(ask.of.first, room));
        if (channel) tell_to_stop(*channel);
        return;
    }
    const Question question = std::move(*at);
    questions_.erase(at);
    if (tells) tell_to_stop(question.channel);
    question.channel.cancel_call(question.call);
}

// Ahead of the cancel, which alone might mean that we died and somebody else will ask.
void Operation::tell_to_stop(const Channel& channel) const {
    ForwardParts parts;
    parts.header = header_for({part_.role().mine.first, part_.role().mine.first + 1}, Asking::stop,
                              Duration(0));
    std::vector<std::byte> bytes(parts.bytes());
    encode_forward(parts, bytes);
    CallOptions options;
    options.detached = true;
    options.priority = priority;
    options.timeout = stop_timeout;
    channel.call(forward_method, bytes, options, [held = channel](const Status&, ByteView) {});
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
    if (!origin && !std::exchange(waits, true)) engine_.has_run(*this);
}

// In a turn of its own: the handler is told, and may end what this one is stopped with.
void Operation::stop_running(Part&) {
    is_stopped_ = true;
    const base::SlotId id = std::exchange(running_here_, {});
    if (id) context_.post([&engine = engine_, id] { engine.stop_here(id); });
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
    askers_.push_back({id, alone, from, std::move(call)});
    owed_until = {};
    part_.asked(id, header.asker, saturating_add(context_.now(), patience));
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
    const std::size_t room = told.call.reply_bytes_max();
    const bool is_complete = kind == Answer::Kind::complete;
    if (!is_complete) engine_.owe(*this);  // The parent asks again.
    if (told.alone) {
        const Answer* const own = part_.outcomes().own();
        return told.call.reply(encode_answer(own ? *own : Outcomes::told_nothing(kind), room));
    }
    if (is_complete && !answer.empty()) return told.call.reply(answer);
    Answer all = is_complete ? all_told() : part_.outcomes().told(kind);
    // What would be cut off now may fit by itself later; but not where nothing more may come.
    const bool is_partial = kind == Answer::Kind::partial;
    if (is_partial && coll::bytes_of(all) > room) all = Outcomes::told_nothing(kind);
    all.clock = engine_.clock_reading();
    std::vector<std::byte> bytes = encode_answer(std::move(all), room);
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
    has_run();
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
