#include "sim/broadcast_net.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coll/engine.h"

namespace weft::tool {

namespace {

constexpr coll::Identity identity{0x5eed, 1};
constexpr std::size_t answer_bytes_most = 64 << 20;

}  // namespace

BroadcastNet::BroadcastNet(Setup setup)
    : setup_(std::move(setup)), nodes_(setup_.plan->roster->all().size()) {
    for (const Death& death : setup_.deaths) plan(death.at, Kind::kill, death.rank);
}

BroadcastNet::~BroadcastNet() = default;

std::uint32_t BroadcastNet::rank_of(const coll::Part& part) const {
    return setup_.plan->roster->at(part.role().mine.first).rank;
}

RankStory BroadcastNet::story(std::uint32_t rank) const { return nodes_[rank].story; }

coll::Cost BroadcastNet::measured() const {
    return nodes_[setup_.plan->roster->at(0).rank].measured.told();
}

// ---- time --------------------------------------------------------------------------------------

void BroadcastNet::plan(TimePoint at, Kind kind, std::uint32_t what) {
    events_.push_back({at, next_order_++, kind, what});
    std::push_heap(events_.begin(), events_.end(), is_later);
}

void BroadcastNet::run() {
    coll::Part::Role role;
    role.mine = setup_.plan->roster->all();
    role.is_origin = true;
    role.until = start + setup_.timeout;
    begin(setup_.plan->roster->at(0).rank, role, nullptr, {});
    // What then is left in the heap are timers of parts that are over.
    while (!events_.empty() && (running_ > 0 || under_way_ > 0)) {
        std::pop_heap(events_.begin(), events_.end(), is_later);
        const Event event = events_.back();
        events_.pop_back();
        now_ = event.at;
        handle(event);
    }
}

void BroadcastNet::handle(const Event& event) {
    if (event.kind == Kind::kill) return kill(event.what);
    if (event.kind != Kind::wake) return receive(event.kind, event.what);
    Node& node = nodes_[event.what];
    if (node.wakes_at != now_) return;  // It had to wake up earlier.
    node.wakes_at = never;
    if (!node.part || node.part->is_over()) return;
    if (node.part->due() <= now_) node.part->on_time(now_);
    look_after(event.what);
}

// After each step of a part: runs its method, which takes no time, weighs it, sets its timer.
void BroadcastNet::look_after(std::uint32_t rank) {
    Node& node = nodes_[rank];
    const auto weigh = [&] {
        const auto bytes = static_cast<std::uint32_t>(node.part->state_bytes());
        node.story.state_bytes = std::max(node.story.state_bytes, bytes);
    };
    weigh();
    if (std::exchange(node.wants_to_run, false)) {
        ++node.story.runs;
        node.part->ran(Status(), {});
        weigh();
    }
    if (node.part->is_over()) return;
    const TimePoint due = node.part->due();
    if (due >= node.wakes_at) return;
    node.wakes_at = due;
    plan(due, Kind::wake, rank);
}

// ---- messages ----------------------------------------------------------------------------------

void BroadcastNet::send(Kind kind, Message message) {
    Node& from = nodes_[message.from];
    from.sends_at = std::max(from.sends_at, now_) + setup_.cost.busy;
    message.sent = from.sends_at;
    ++messages_;
    questions_ += kind == Kind::request;
    report(kind, std::move(message), from.sends_at + setup_.cost.latency);
}

void BroadcastNet::report(Kind kind, Message message, TimePoint at) {
    if (free_messages_.empty()) {
        free_messages_.push_back(static_cast<std::uint32_t>(messages_under_way_.size()));
        messages_under_way_.emplace_back();
    }
    const std::uint32_t index = free_messages_.back();
    free_messages_.pop_back();
    messages_under_way_[index] = std::move(message);
    ++under_way_;
    plan(at, kind, index);
}

// The receiver's port takes one message at a time.
void BroadcastNet::receive(Kind kind, std::uint32_t index) {
    Message& waiting = messages_under_way_[index];
    Node& to = nodes_[waiting.to];
    if (kind != Kind::failure && !std::exchange(waiting.is_received, true)) {
        const TimePoint at = std::max(now_, to.receives_at);
        to.receives_at = at + setup_.cost.busy;
        if (at > now_) return plan(at, kind, index);
    }
    Message message = std::move(waiting);
    free_messages_.push_back(index);
    --under_way_;
    arrive(kind, message);
}

void BroadcastNet::arrive(Kind kind, Message& message) {
    trace_.mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    trace_.mix(std::uint64_t{message.from} << 32 | message.to);
    // What the network reports of one that died has no sender that could have died before.
    const bool never_left =
        message.sent != TimePoint{} && nodes_[message.from].story.died < message.sent;
    if (never_left || is_dead(message.to)) return be_lost(kind, message);
    switch (kind) {
        case Kind::request: on_request(message); break;
        case Kind::answer: on_answer(message); break;
        case Kind::cancel: on_cancel(message); break;
        case Kind::failure: on_failure(message); break;
        case Kind::kill:
        case Kind::wake: return;
    }
    if (nodes_[message.to].part) look_after(message.to);
}

// One of its ends died first: the other one hears of that.
void BroadcastNet::be_lost(Kind kind, const Message& message) {
    const TimePoint from_died = nodes_[message.from].story.died;
    if (kind == Kind::request && is_dead(message.to) && !is_dead(message.from)) {
        // Dead before it was asked: there is no connection that could have carried it.
        const bool was_dead = nodes_[message.to].story.died < message.sent - setup_.cost.busy;
        Message failed;
        failed.from = message.to;
        failed.to = message.from;
        failed.ask = message.ask;
        failed.effect = was_dead ? Effect::none : Effect::unknown;
        return report(Kind::failure, std::move(failed), now_ + setup_.detection);
    }
    if (is_dead(message.to) || from_died == never) return;
    if (kind != Kind::answer && kind != Kind::cancel) return;
    Message broken;
    broken.from = message.from;
    broken.to = message.to;
    broken.ask = message.ask;
    report(kind == Kind::answer ? Kind::failure : Kind::cancel, std::move(broken),
           std::max(now_, from_died + setup_.detection));
}

void BroadcastNet::kill(std::uint32_t rank) {
    Node& node = nodes_[rank];
    node.story.died = now_;
    if (node.part && !node.part->is_over()) --running_;
    for (const Asker& asker : node.askers) {
        Message failed;
        failed.from = rank;
        failed.to = asker.from;
        failed.ask = asker.ask;
        report(Kind::failure, std::move(failed), now_ + setup_.detection);
    }
    for (const Question& question : node.questions) {
        Message left;
        left.from = rank;
        left.to = question.to;
        left.ask = question.ask;
        report(Kind::cancel, std::move(left), now_ + setup_.detection);
    }
    std::exchange(node.askers, {});
    std::exchange(node.questions, {});
    node.part.reset();
}

// ---- a rank that is asked ----------------------------------------------------------------------

void BroadcastNet::begin(std::uint32_t rank, const coll::Part::Role& role, const Asker* asker,
                         Duration patience) {
    Node& node = nodes_[rank];
    told_ = std::max(told_, now_);
    ++running_;
    Port& port = *this;
    node.part = std::make_unique<coll::Part>(port, setup_.plan, identity, role);
    if (asker) {
        node.askers.push_back(*asker);
        node.part->asked(asker->id, asker->position, saturating_add(now_, patience));
    }
    node.begins = true;
    node.part->begin(now_);
    node.begins = false;
    look_after(rank);
}

void BroadcastNet::on_request(const Message& message) {
    Node& node = nodes_[message.to];
    const Result<coll::ForwardView> view = coll::decode_forward(message.bytes);
    const coll::Plan& plan = *setup_.plan;
    if (view && view->header.asking == coll::Asking::stop) {
        if (node.part) node.part->desert(view->header.asker);
        return;
    }
    const bool is_ours = view && view->header.view == plan.view && view->header.tree == plan.tree &&
                         view->header.method == plan.method &&
                         plan.roster->at(view->header.first).rank == message.to;
    if (!is_ours) {
        ++malformed_;
        return;
    }
    const Duration patience = view->header.patience_us * 1us;
    const Asker asker{node.next_asker++, message.from, message.ask, view->header.asker};
    if (!node.part) {
        coll::Part::Role role;
        role.mine = view->header.subtree();
        role.until = coll::share_of(now_, message.deadline);
        return begin(message.to, role, &asker, patience);
    }
    node.askers.push_back(asker);
    if (node.part->is_over()) return reply_to(*node.part, asker.id, coll::Answer::Kind::complete);
    node.part->asked(asker.id, asker.position, saturating_add(now_, patience));
}

void BroadcastNet::on_cancel(const Message& message) {
    Node& node = nodes_[message.to];
    const auto at = std::find_if(node.askers.begin(), node.askers.end(), [&](const Asker& one) {
        return one.from == message.from && one.ask == message.ask;
    });
    if (at == node.askers.end() || !node.part) return;
    const std::uint32_t id = at->id;
    node.askers.erase(at);
    node.part->asker_left(id, now_);
}

void BroadcastNet::reply_to(coll::Part& part, std::uint32_t asker, coll::Answer::Kind kind) {
    const std::uint32_t rank = rank_of(part);
    Node& node = nodes_[rank];
    const auto at = std::find_if(node.askers.begin(), node.askers.end(),
                                 [&](const Asker& one) { return one.id == asker; });
    if (at == node.askers.end()) return;
    Message answer;
    answer.from = rank;
    answer.to = at->from;
    answer.ask = at->ask;
    coll::Answer told = part.outcomes().told(kind);
    if (kind == coll::Answer::Kind::complete) told.cost = node.measured.told();
    answer.bytes = coll::encode_answer(std::move(told), answer_bytes_most);
    node.askers.erase(at);
    if (node.askers.empty()) std::exchange(node.askers, {});
    send(Kind::answer, std::move(answer));
    if (node.story.runs > 0) node.story.answered = std::min(node.story.answered, node.sends_at);
}

void BroadcastNet::run(coll::Part& part) { nodes_[rank_of(part)].wants_to_run = true; }
void BroadcastNet::stop_running(coll::Part& part) { nodes_[rank_of(part)].wants_to_run = false; }

// ---- a rank that asks --------------------------------------------------------------------------

coll::ForwardHeader BroadcastNet::header_for(const coll::Part& part,
                                             const coll::Part::Ask& ask) const {
    const coll::Plan& plan = part.plan();
    coll::ForwardHeader header;
    header.view = plan.view;
    header.group = plan.group;
    header.epoch = plan.epoch;
    header.identity = part.identity();
    header.asker = part.as_asker();
    header.method = plan.method;
    header.root = plan.roster->root();
    header.first = ask.of.first;
    header.last = ask.of.last;
    header.tree = plan.tree;
    header.patience_us = static_cast<std::uint32_t>(coll::Part::patience_of(ask) / 1us);
    header.asking = ask.asking;
    return header;
}

void BroadcastNet::ask(coll::Part& part, const coll::Part::Ask& ask) {
    Message request;
    request.from = rank_of(part);
    request.to = setup_.plan->roster->at(ask.of.first).rank;
    request.ask = ask.id;
    request.deadline = coll::share_of(now_, part.role().until);
    coll::ForwardParts parts;
    parts.header = header_for(part, ask);
    request.bytes.resize(parts.bytes());
    coll::encode_forward(parts, request.bytes);
    Node& node = nodes_[request.from];
    const bool is_leaf = node.begins && ask.of.size() == 1;
    if (is_leaf) node.measured.asked(std::max(node.sends_at, now_));
    node.questions.push_back({ask.id, request.to, is_leaf});
    send(Kind::request, std::move(request));
}

std::optional<BroadcastNet::Question> BroadcastNet::take_question(Node& node, std::uint32_t ask) {
    const auto at = std::find_if(node.questions.begin(), node.questions.end(),
                                 [&](const Question& one) { return one.ask == ask; });
    if (at == node.questions.end() || !node.part) return std::nullopt;
    const Question taken = *at;
    node.questions.erase(at);
    if (node.questions.empty()) std::exchange(node.questions, {});
    return taken;
}

void BroadcastNet::on_answer(const Message& message) {
    Node& node = nodes_[message.to];
    const std::optional<Question> question = take_question(node, message.ask);
    if (!question) return;
    Result<coll::Answer> told = coll::decode_answer(message.bytes);
    if (told) {
        if (told->kind == coll::Answer::Kind::complete) {
            if (question->is_leaf) node.measured.answered(now_);
            node.measured.hear(told->cost);
        }
        return node.part->answered(message.ask, *std::move(told), now_);
    }
    ++malformed_;
    node.part->failed(message.ask, std::move(told).status(), now_);
}

void BroadcastNet::on_failure(const Message& message) {
    Node& node = nodes_[message.to];
    if (!take_question(node, message.ask)) return;
    const Stage stage = message.effect == Effect::none ? Stage::resolving : Stage::sent;
    node.part->failed(message.ask,
                      fail(Code::unavailable, "peer died")
                          .with_effect(message.effect)
                          .with_stage(stage)
                          .with_peer("sim://" + std::to_string(message.from)),
                      now_);
}

void BroadcastNet::give_up(coll::Part& part, const coll::Part::Ask& ask, bool stop) {
    const std::uint32_t rank = rank_of(part);
    Node& node = nodes_[rank];
    const auto at = std::find_if(node.questions.begin(), node.questions.end(),
                                 [&](const Question& one) { return one.ask == ask.id; });
    const std::uint32_t to = setup_.plan->roster->at(ask.of.first).rank;
    const bool is_open = at != node.questions.end();
    if (is_open) node.questions.erase(at);
    if (stop) {
        coll::Part::Ask last;
        last.of = {part.role().mine.first, part.role().mine.first + 1};
        last.asking = coll::Asking::stop;
        Message message;
        message.from = rank;
        message.to = to;
        coll::ForwardParts parts;
        parts.header = header_for(part, last);
        message.bytes.resize(parts.bytes());
        coll::encode_forward(parts, message.bytes);
        send(Kind::request, std::move(message));
    }
    if (!is_open) return;
    Message cancel;
    cancel.from = rank;
    cancel.to = to;
    cancel.ask = ask.id;
    send(Kind::cancel, std::move(cancel));
}

// All have the same view: nobody refuses.
void BroadcastNet::refresh(coll::Part&, std::uint32_t, std::uint64_t) {}

void BroadcastNet::tell(coll::Part& part) {
    ++tells_;
    acknowledged_ = now_;
    outcomes_ = part.take_all(fail(Code::unknown, "not waited for"));
}

void BroadcastNet::done(coll::Part&) { --running_; }

}  // namespace weft::tool
