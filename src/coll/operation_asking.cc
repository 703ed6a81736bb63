// Whom a collective asks at one rank: those below it, and what comes of their answers.
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
    // The asker may die, and the rank that adopts this one waits for the rest. Where it began it is
    // the collective that ends with its scope, and not the calls one by one.
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
    if (is_in_line_) return;
    engine_.later_asks().add(shared_from_this());
    is_in_line_ = true;
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
    Member scratch;
    const Member& member = part_.plan().roster->at(ask.of.first, scratch);
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
    try {
        send_or_throw(question, clock);
    } catch (const std::bad_alloc&) {
        const Part::Ask ask = question.ask;
        questions_.erase(ask.id);
        put_off({ask, no_memory()});
    }
}

void Operation::send_or_throw(Question& question, const PeerClock& clock) {
    const Plan& plan = part_.plan();
    const Part::Ask ask = question.ask;
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
    // Before the call begins: nothing fails behind that.
    Question& asked = questions_.try_emplace(ask.id, std::move(question)).first->second;
    asked.call = asked.channel.call_with(
        forward_method, writer, options_for_calls(),
        [self = shared_from_this(), id = ask.id](const Status& status, ByteView reply) {
            self->on_answer(id, status, reply);
        });
}

void Operation::on_answer(std::uint32_t ask, const Status& status, ByteView reply) {
    const auto at = questions_.find(ask);
    if (at == questions_.end()) return;  // Given up.
    const TimePoint now = context_.now();
    Question question = std::move(at->second);
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
        Member scratch;
        if (PeerClock* clock = group->clock_of(part_.plan().roster->at(position, scratch))) {
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
    Member scratch;
    const Member& member = part_.plan().roster->at(question.ask.of.first, scratch);
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
    later_.clear();  // Those that are put off are given up as well.
    const bool tells = stop && !context_.is_closed();
    const auto at = questions_.find(ask.id);
    if (at == questions_.end()) {
        // Nothing of it was sent; else it has said so far, and waits to be asked.
        if (!tells || ask.asking == Asking::all) return;
        Member scratch;
        const Result<Channel> channel =
            group->channel(part_.plan().roster->at(ask.of.first, scratch));
        if (channel) tell_to_stop(*channel);
        return;
    }
    const Question question = std::move(at->second);
    questions_.erase(at);
    if (tells) tell_to_stop(question.channel);
    question.channel.cancel_call(question.call);
}

// Ahead of the cancel, which alone might mean that this rank died and another one will ask.
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

}  // namespace weft::coll
