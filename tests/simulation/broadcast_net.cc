#include "simulation/broadcast_net.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coll/time_budget.h"

namespace weft::scenarios {

namespace {

constexpr coll::CollectiveKey key{0x5eed, 1};
constexpr std::size_t subtree_reply_bytes_max = 64 << 20;

}  // namespace

class BroadcastNet::Driver final : public coll::StateDriver {
  public:
    Driver(BroadcastNet& net, std::uint32_t rank, const coll::CollectiveState::Role& role)
        : StateDriver(net.setup_.plan, key, role), net_(net), rank_(rank) {}
    using StateDriver::own_state;
    using StateDriver::step;

  private:
    void send_request(const coll::ChildRequest& request) override {
        net_.send_request(rank_, request);
    }
    void run_method() override { net_.nodes_[rank_].run_pending = true; }
    void cancel_request(const coll::Ready::Cancel& cancel) override {
        net_.cancel_request(rank_, cancel);
    }
    void cancel_method() override { net_.nodes_[rank_].run_pending = false; }
    // All ranks have the same view: no request is refused for it.
    void refresh(const coll::Ready::Refresh&) override {}
    void report() override { net_.report(state()); }
    void reply(const coll::Ready::Reply& reply) override { net_.reply(rank_, reply); }
    void on_done() override { --net_.running_; }

    BroadcastNet& net_;
    const std::uint32_t rank_;
};

BroadcastNet::BroadcastNet(Setup setup)
    : setup_(std::move(setup)), nodes_(setup_.plan->rank_order->all().size()) {
    for (const Death& death : setup_.deaths) plan(death.at, Kind::kill, death.rank);
}

BroadcastNet::~BroadcastNet() = default;

RankHistory BroadcastNet::history(std::uint32_t rank) const { return nodes_[rank].history; }

coll::Cost BroadcastNet::measured() const {
    return nodes_[setup_.plan->rank_order->at(0).rank].cost_meter.snapshot();
}

// ---- time --------------------------------------------------------------------------------------

void BroadcastNet::plan(TimePoint at, Kind kind, std::uint32_t what) {
    events_.push_back({at, next_order_++, kind, what});
    std::push_heap(events_.begin(), events_.end(), is_later);
}

void BroadcastNet::run() {
    coll::CollectiveState::Role role;
    role.subtree = setup_.plan->rank_order->all();
    role.is_origin = true;
    role.deadline = start + setup_.timeout;
    begin(setup_.plan->rank_order->at(0).rank, role, nullptr, {});
    // Events that are left in the heap are timers of completed states.
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
    if (node.wakes_at != now_) return;  // A stale event: it was rearmed.
    node.wakes_at = never;
    if (!node.driver || node.driver->state().is_done()) return;
    if (node.driver->state().due() <= now_) {
        node.driver->step(&coll::CollectiveState::on_timer, now_);
    }
    after_step(event.what);
}

// After each step of a state: runs its method, which takes no time, measures its size, and arms its
// timer.
void BroadcastNet::after_step(std::uint32_t rank) {
    Node& node = nodes_[rank];
    const coll::CollectiveState& state = node.driver->state();
    const auto weigh = [&] {
        const auto bytes = static_cast<std::uint32_t>(state.state_bytes());
        node.history.state_bytes = std::max(node.history.state_bytes, bytes);
    };
    weigh();
    if (std::exchange(node.run_pending, false)) {
        ++node.history.runs;
        node.driver->step(&coll::CollectiveState::on_method_done, Status(), ByteView());
        weigh();
    }
    if (state.is_done()) return;
    const TimePoint due = state.due();
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
    requests_ += kind == Kind::request;
    deliver_at(kind, std::move(message), from.sends_at + setup_.cost.latency);
}

void BroadcastNet::deliver_at(Kind kind, Message message, TimePoint at) {
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
    // A report of the network about a dead rank has no sender that could have died before.
    const bool never_left =
        message.sent != TimePoint{} && nodes_[message.from].history.died < message.sent;
    if (never_left || is_dead(message.to)) return on_lost(kind, message);
    switch (kind) {
        case Kind::request: on_request(message); break;
        case Kind::answer: on_reply(message); break;
        case Kind::cancel: on_cancel(message); break;
        case Kind::failure: on_failure(message); break;
        case Kind::kill:
        case Kind::wake: return;
    }
    if (nodes_[message.to].driver) after_step(message.to);
}

// One end died first: the network notifies the other end.
void BroadcastNet::on_lost(Kind kind, const Message& message) {
    const TimePoint from_died = nodes_[message.from].history.died;
    if (kind == Kind::request && is_dead(message.to) && !is_dead(message.from)) {
        // Dead before the request was sent: no connection could have carried it.
        const bool was_dead = nodes_[message.to].history.died < message.sent - setup_.cost.busy;
        Message failed;
        failed.from = message.to;
        failed.to = message.from;
        failed.request = message.request;
        failed.effect = was_dead ? Effect::none : Effect::unknown;
        return deliver_at(Kind::failure, std::move(failed), now_ + setup_.detection);
    }
    if (is_dead(message.to) || from_died == never) return;
    if (kind != Kind::answer && kind != Kind::cancel) return;
    Message broken;
    broken.from = message.from;
    broken.to = message.to;
    broken.request = message.request;
    deliver_at(kind == Kind::answer ? Kind::failure : Kind::cancel, std::move(broken),
               std::max(now_, from_died + setup_.detection));
}

void BroadcastNet::kill(std::uint32_t rank) {
    Node& node = nodes_[rank];
    node.history.died = now_;
    if (node.driver && !node.driver->state().is_done()) --running_;
    for (const ParentRequest& parent : node.parent_requests) {
        Message failed;
        failed.from = rank;
        failed.to = parent.from;
        failed.request = parent.request;
        deliver_at(Kind::failure, std::move(failed), now_ + setup_.detection);
    }
    for (const ChildCall& child_call : node.child_calls) {
        Message left;
        left.from = rank;
        left.to = child_call.to;
        left.request = child_call.request;
        deliver_at(Kind::cancel, std::move(left), now_ + setup_.detection);
    }
    std::exchange(node.parent_requests, {});
    std::exchange(node.child_calls, {});
    node.driver.reset();
}

// ---- requests of parents -----------------------------------------------------------------------

void BroadcastNet::begin(std::uint32_t rank, const coll::CollectiveState::Role& role,
                         const ParentRequest* parent, Duration progress_interval) {
    Node& node = nodes_[rank];
    delivered_ = std::max(delivered_, now_);
    ++running_;
    node.driver = std::make_unique<Driver>(*this, rank, role);
    if (parent) {
        node.parent_requests.push_back(*parent);
        node.driver->own_state().on_request(parent->id, parent->position,
                                            saturating_add(now_, progress_interval));
    }
    node.in_begin = true;
    node.driver->step(&coll::CollectiveState::begin, now_);
    node.in_begin = false;
    after_step(rank);
}

void BroadcastNet::on_request(const Message& message) {
    Node& node = nodes_[message.to];
    const Result<coll::ForwardView> view = coll::decode_forward(message.bytes);
    const coll::Plan& plan = *setup_.plan;
    if (view && view->header.kind == coll::RequestKind::cancel) {
        if (node.driver) node.driver->own_state().on_parent_cancelled(view->header.parent);
        return;
    }
    const bool is_ours = view && view->header.view == plan.view && view->header.tree == plan.tree &&
                         view->header.method == plan.method &&
                         plan.rank_order->at(view->header.first).rank == message.to;
    if (!is_ours) {
        ++malformed_;
        return;
    }
    const Duration progress_interval = view->header.progress_interval_us * 1us;
    const ParentRequest parent{node.next_request++, message.from, message.request,
                               view->header.parent};
    if (!node.driver) {
        coll::CollectiveState::Role role;
        role.subtree = view->header.subtree();
        role.deadline = coll::share_of(now_, message.deadline);
        return begin(message.to, role, &parent, progress_interval);
    }
    node.parent_requests.push_back(parent);
    if (node.driver->state().is_done())
        return reply(message.to, {parent.id, coll::SubtreeReply::Kind::complete});
    node.driver->own_state().on_request(parent.id, parent.position,
                                        saturating_add(now_, progress_interval));
}

void BroadcastNet::on_cancel(const Message& message) {
    Node& node = nodes_[message.to];
    const auto at = std::find_if(
        node.parent_requests.begin(), node.parent_requests.end(), [&](const ParentRequest& one) {
            return one.from == message.from && one.request == message.request;
        });
    if (at == node.parent_requests.end() || !node.driver) return;
    const std::uint32_t id = at->id;
    node.parent_requests.erase(at);
    node.driver->own_state().on_request_gone(id, now_);
}

void BroadcastNet::reply(std::uint32_t rank, const coll::Ready::Reply& reply) {
    Node& node = nodes_[rank];
    const auto at = std::find_if(node.parent_requests.begin(), node.parent_requests.end(),
                                 [&](const ParentRequest& one) { return one.id == reply.request; });
    if (at == node.parent_requests.end()) return;
    Message answer;
    answer.from = rank;
    answer.to = at->from;
    answer.request = at->request;
    coll::SubtreeReply decoded = node.driver->state().outcomes().snapshot(reply.kind);
    if (reply.kind == coll::SubtreeReply::Kind::complete) decoded.cost = node.cost_meter.snapshot();
    answer.bytes = coll::encode_subtree_reply(std::move(decoded), subtree_reply_bytes_max);
    node.parent_requests.erase(at);
    if (node.parent_requests.empty()) std::exchange(node.parent_requests, {});
    send(Kind::answer, std::move(answer));
    if (node.history.runs > 0)
        node.history.answered = std::min(node.history.answered, node.sends_at);
}

// ---- requests to children ----------------------------------------------------------------------

std::vector<std::byte> BroadcastNet::encode(const coll::ForwardHeader& header) {
    coll::ForwardParts parts;
    parts.header = header;
    std::vector<std::byte> bytes(parts.bytes());
    coll::encode_forward(parts, bytes);
    return bytes;
}

void BroadcastNet::send_request(std::uint32_t rank, const coll::ChildRequest& request) {
    const coll::CollectiveState& state = nodes_[rank].driver->state();
    Message message;
    message.from = rank;
    message.to = setup_.plan->rank_order->at(request.of.first).rank;
    message.request = request.id;
    message.deadline = coll::share_of(now_, state.role().deadline);
    message.bytes =
        encode(state.header_for(request.of, request.kind, coll::progress_interval_of(request)));
    Node& node = nodes_[message.from];
    const bool is_leaf = node.in_begin && request.of.size() == 1;
    if (is_leaf) node.cost_meter.on_sent(std::max(node.sends_at, now_));
    node.child_calls.push_back({request.id, message.to, is_leaf});
    send(Kind::request, std::move(message));
}

std::optional<BroadcastNet::ChildCall> BroadcastNet::take_child_call(Node& node,
                                                                     std::uint32_t request) {
    const auto at = std::find_if(node.child_calls.begin(), node.child_calls.end(),
                                 [&](const ChildCall& one) { return one.request == request; });
    if (at == node.child_calls.end() || !node.driver) return std::nullopt;
    const ChildCall taken = *at;
    node.child_calls.erase(at);
    if (node.child_calls.empty()) std::exchange(node.child_calls, {});
    return taken;
}

void BroadcastNet::on_reply(const Message& message) {
    Node& node = nodes_[message.to];
    const std::optional<ChildCall> child_call = take_child_call(node, message.request);
    if (!child_call) return;
    Result<coll::SubtreeReply> decoded = coll::decode_subtree_reply(message.bytes);
    if (decoded) {
        if (decoded->kind == coll::SubtreeReply::Kind::complete) {
            if (child_call->is_leaf) node.cost_meter.on_reply(now_);
            node.cost_meter.add_reported(decoded->cost);
        }
        return node.driver->step(&coll::CollectiveState::on_reply, message.request,
                                 *std::move(decoded), now_);
    }
    ++malformed_;
    node.driver->step(&coll::CollectiveState::on_failure, message.request,
                      std::move(decoded).status(), now_);
}

void BroadcastNet::on_failure(const Message& message) {
    Node& node = nodes_[message.to];
    if (!take_child_call(node, message.request)) return;
    const Stage stage = message.effect == Effect::none ? Stage::resolving : Stage::sent;
    node.driver->step(&coll::CollectiveState::on_failure, message.request,
                      fail(Code::unavailable, "peer died")
                          .with_effect(message.effect)
                          .with_stage(stage)
                          .with_peer("sim://" + std::to_string(message.from)),
                      now_);
}

void BroadcastNet::cancel_request(std::uint32_t rank, const coll::Ready::Cancel& cancelled) {
    Node& node = nodes_[rank];
    const coll::ChildRequest& request = cancelled.request;
    const auto at = std::find_if(node.child_calls.begin(), node.child_calls.end(),
                                 [&](const ChildCall& one) { return one.request == request.id; });
    const std::uint32_t to = setup_.plan->rank_order->at(request.of.first).rank;
    const bool is_open = at != node.child_calls.end();
    if (is_open) node.child_calls.erase(at);
    if (cancelled.cancel_child) {
        const coll::CollectiveState& state = node.driver->state();
        const std::uint32_t own = state.role().subtree.first;
        Message message;
        message.from = rank;
        message.to = to;
        message.bytes =
            encode(state.header_for({own, own + 1}, coll::RequestKind::cancel, Duration(0)));
        send(Kind::request, std::move(message));
    }
    if (!is_open) return;
    Message cancel;
    cancel.from = rank;
    cancel.to = to;
    cancel.request = request.id;
    send(Kind::cancel, std::move(cancel));
}

void BroadcastNet::report(const coll::CollectiveState& state) {
    ++reports_;
    acknowledged_ = now_;
    outcomes_ =
        state.outcomes_for_caller(fail(Code::unknown, "the broadcast completed without this rank"));
}

}  // namespace weft::scenarios
