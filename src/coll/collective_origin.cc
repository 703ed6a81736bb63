// Collectives at their origin: choice of ranks and tree, begin, completion, later view.
#include <algorithm>

#include "coll/engine.h"

namespace weft::coll {

static constexpr Duration fetch_view_timeout = 2s;

// The ranks that take part, and the tree.
struct Engine::Choice {
    RankOrder::Params rank_order;
    Tree tree;
    std::uint32_t size = 0;                 // 0: no included rank is a member.
    bool runs_here = false;                 // The root is this runtime.
    std::vector<std::uint32_t> nonmembers;  // Included, but not members.

    // This runtime is at this place. An ordered reduction has the lowest rank as its root, and an
    // origin at any other place acts from outside.
    void place_self(std::uint32_t place, bool ordered) {
        runs_here = !ordered || place == 0;
        if (runs_here) rank_order.root = place;
    }
};

static std::vector<std::uint32_t> nonmembers_among(const RankSet& named, const RankSet& exclude,
                                                   const GroupView& view) {
    std::vector<std::uint32_t> nonmembers;
    for (const RankSet::Range& range : named.ranges()) {
        for (std::uint64_t rank = range.first; rank <= range.last; ++rank) {
            const auto one = static_cast<std::uint32_t>(rank);
            if (!view.find(one) && !exclude.contains(one)) nonmembers.push_back(one);
        }
    }
    return nonmembers;
}

Status validate(const std::optional<RankSet>& include) {
    const std::uint64_t named = include ? include->size() : 0;
    if (named <= GroupView::members_max) return {};
    return fail(Code::invalid_argument, "GroupCallOptions::include names " + std::to_string(named) +
                                            " ranks: expected at most " +
                                            std::to_string(GroupView::members_max));
}

Result<Engine::Choice> Engine::choose_ranks(const CollectiveRequest& request) const {
    const GroupCallOptions& options = request.options;
    GroupImpl& group = *request.group;
    Choice choice{
        {request.view ? *request.view : group.view_here(), {}, 0, false}, {}, 0, false, {}};
    const GroupView& view = choice.rank_order.view;
    const bool is_automatic = options.topology.shape == Topology::Shape::automatic;
    choice.rank_order.by_host =
        !options.reduction.ordered &&
        (options.topology.by_host || (is_automatic && group.shares_hosts(view)));
    const bool is_all = !request.include && request.exclude.empty() && group.all_participate(view);
    if (is_all) {  // The usual case: no walk over the members.
        choice.size = view.size();
        const Member* const own = group.own_rank ? view.find(*group.own_rank) : nullptr;
        if (own) {
            choice.place_self(static_cast<std::uint32_t>(own - view.members().data()),
                              options.reduction.ordered);
        }
        return choice;
    }
    if (Status status = validate(request.include); !status.ok()) return status;
    RankSet chosen;
    std::uint32_t in_front = 0;  // Chosen members before this runtime's own rank.
    bool is_in = false;
    for (const Member& member : view.members()) {
        if (!takes_part(member, request.include, request.exclude)) continue;
        const bool is_own = group.own_rank == member.rank;
        is_in |= is_own;
        if (!is_in) ++in_front;
        chosen.add(member.rank);
        ++choice.size;
    }
    if (request.include) {
        choice.nonmembers = nonmembers_among(*request.include, request.exclude, view);
    }
    if (choice.size == 0 && choice.nonmembers.empty()) {
        return fail(Code::invalid_argument,
                    "no rank takes part: all that are included are excluded or draining");
    }
    if (choice.size < view.size()) choice.rank_order.ranks = chosen.ranges();
    if (is_in) choice.place_self(in_front, options.reduction.ordered);
    return choice;
}

Tree tree_of(const Topology& topology, const Costs& costs, std::uint32_t ranks, std::size_t bytes) {
    Tree tree;
    tree.fanout = topology.fanout;
    switch (topology.shape) {
        case Topology::Shape::automatic: return costs.tree(ranks, bytes);
        case Topology::Shape::flat: tree.shape = Shape::flat; break;
        case Topology::Shape::k_ary: tree.shape = Shape::k_ary; break;
        case Topology::Shape::k_nomial: tree.shape = Shape::k_nomial; break;
        case Topology::Shape::greedy: tree.shape = Shape::greedy; break;
    }
    return tree;
}

// ---- scatter -----------------------------------------------------------------------------------

// So that each rank appears once. Errors: INVALID_ARGUMENT: two bodies for one rank.
static Status sort_by_rank(std::vector<Engine::RankBytes>& bodies) {
    const auto before = [](const Engine::RankBytes& a, const Engine::RankBytes& b) {
        return a.first < b.first;
    };
    std::sort(bodies.begin(), bodies.end(), before);
    for (std::size_t i = 1; i < bodies.size(); ++i) {
        if (bodies[i - 1].first != bodies[i].first) continue;
        return fail(Code::invalid_argument,
                    "two bodies for rank " + std::to_string(bodies[i].first));
    }
    return {};
}

// The bodies by position. Those that remain in `bodies` are for ranks that are not members.
static std::vector<std::byte> take_in_order(const RankOrder& rank_order,
                                            std::vector<Engine::RankBytes>& bodies) {
    const Interval all = rank_order.all();
    std::vector<std::vector<std::byte>> by_position;
    by_position.reserve(all.size());
    std::vector<char> taken(bodies.size(), 0);
    std::size_t total = 0;
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const auto body = std::lower_bound(
            bodies.begin(), bodies.end(), rank_order.at(at).rank,
            [](const Engine::RankBytes& one, std::uint32_t rank) { return one.first < rank; });
        taken[static_cast<std::size_t>(body - bodies.begin())] = 1;
        total += sizeof(std::uint32_t) + body->second.size();
        by_position.push_back(std::move(body->second));
    }
    std::vector<std::byte> pieces;
    pieces.reserve(total);
    for (const auto& body : by_position) {
        const auto bytes = static_cast<std::uint32_t>(body.size());
        const auto* const raw = reinterpret_cast<const std::byte*>(&bytes);
        pieces.insert(pieces.end(), raw, raw + sizeof bytes);
    }
    for (const auto& body : by_position) pieces.insert(pieces.end(), body.begin(), body.end());
    std::size_t at = 0;
    std::erase_if(bodies, [&](const Engine::RankBytes&) { return taken[at++] != 0; });
    return pieces;
}

// The reverse of take_in_order().
static std::vector<Engine::RankBytes> bodies_by_rank(const CollectiveDriver& collective) {
    std::vector<Engine::RankBytes> bodies = collective.origin->spare_bodies;
    const RankOrder& rank_order = *collective.state().plan().rank_order;
    const Interval all = rank_order.all();
    PieceReader pieces(collective.body, all.size());
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const ByteView body = pieces.next();
        bodies.emplace_back(rank_order.at(at).rank,
                            std::vector<std::byte>(body.begin(), body.end()));
    }
    return bodies;
}

// The ranks with a body take part.
static Status choose_by_bodies(Engine::CollectiveRequest& request) {
    if (request.include || !request.exclude.empty()) {
        return fail(Code::invalid_argument, "a scatter takes neither include nor exclude");
    }
    if (Status status = sort_by_rank(request.bodies); !status.ok()) return status;
    request.include.emplace();
    for (const auto& [rank, body] : request.bodies) request.include->add(rank);
    return {};
}

// ---- begin -------------------------------------------------------------------------------------

Status validate(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
                std::size_t nonmembers, bool runs_here) {
    if (Status status = validate(options.reduction); !status.ok()) return status;
    if (!tree.is_possible({runs_here ? 1u : 0u, ranks})) {
        return fail(Code::invalid_argument,
                    "GroupCallOptions::topology.shape is flat, which has at most " +
                        std::to_string(flat_max) + " children: " + std::to_string(ranks) +
                        " ranks take part; leave it automatic");
    }
    if (options.policy == Policy::quorum && options.quorum > ranks + nonmembers) {
        return fail(Code::invalid_argument, "GroupCallOptions::quorum is " +
                                                std::to_string(options.quorum) +
                                                ": expected at most the ranks that take part, " +
                                                std::to_string(ranks + nonmembers));
    }
    return {};
}

std::pair<CollectiveKey, std::uint16_t> Engine::next_key() {
    const std::uint64_t sequence = next_sequence_++;
    const auto first = begun_.lower_bound(origin_first_);
    std::uint64_t unacknowledged = first == begun_.end() ? 0 : sequence - first->first;
    if (unacknowledged >= unacknowledged_max) {
        origin_ = context_.random().next();
        origin_first_ = sequence;
        unacknowledged = 0;
    }
    return {{origin_, sequence}, static_cast<std::uint16_t>(unacknowledged)};
}

Result<Engine::Choice> Engine::choose(CollectiveRequest& request) const {
    const GroupCallOptions& options = request.options;
    if (Status status = validate_ranges(options); !status.ok()) return status;
    if (request.scatters) {
        if (Status status = choose_by_bodies(request); !status.ok()) return status;
    }
    Result<Choice> choice = choose_ranks(request);
    if (!choice) return choice;
    std::size_t bytes = request.body.size();
    for (const RankBytes& one : request.bodies) bytes += one.second.size();
    choice->tree = tree_of(options.topology, request.group->costs, choice->size, bytes);
    Status status =
        validate(options, choice->tree, choice->size, choice->nonmembers.size(), choice->runs_here);
    if (!status.ok()) return status;
    return choice;
}

// Among the ranks that take part.
static std::uint32_t quorum_of(const GroupCallOptions& options, std::size_t ranks) {
    return options.quorum != 0 ? options.quorum : static_cast<std::uint32_t>(ranks / 2 + 1);
}

std::shared_ptr<CollectiveDriver> Engine::make(CollectiveRequest& request, Choice choice) {
    const GroupCallOptions& options = request.options;
    const std::uint32_t n = choice.size;
    Merge merge{options.reduction, server_.merge_of(request.method)};
    if (!merge.function) merge.function = options.merge;
    std::uint8_t flags = 0;
    if (request.scatters) flags |= ForwardHeader::scatters;
    if (choice.rank_order.by_host) flags |= ForwardHeader::by_host;
    if (options.reduction.ordered) flags |= ForwardHeader::ordered;
    CollectiveState::Role role;
    role.subtree = {0, n};
    role.is_origin = true;
    role.runs_method = choice.runs_here;
    role.policy = options.policy;
    role.abandons = options.abandon_rest;
    role.quorum = quorum_of(options, n + choice.nonmembers.size());
    role.deadline = request.deadline;
    auto plan = request.group->plan(request.group->rank_order(std::move(choice.rank_order)),
                                    request.method, choice.tree, merge, flags);
    const auto [key, unacknowledged] = next_key();
    auto collective = std::make_shared<CollectiveDriver>(*this, request.group, std::move(plan), key,
                                                         unacknowledged, role);
    collective->priority = options.priority;
    collective->began = context_.now();
    if (role.deadline != never) collective->time_limit = role.deadline - collective->began;
    collective->own_body =
        request.scatters ? take_in_order(*collective->state().plan().rank_order, request.bodies)
                         : std::move(request.body);
    collective->body = collective->own_body;
    collective->origin = std::make_unique<CollectiveDriver::Origin>();
    CollectiveDriver::Origin& origin = *collective->origin;
    origin.id = request.id;
    origin.options = options;
    origin.include = request.include;
    origin.exclude = request.exclude;
    origin.nonmembers = std::move(choice.nonmembers);
    origin.spare_bodies = std::move(request.bodies);
    origin.delivers_rest = request.delivers_rest;
    begun_.emplace(key.sequence, collective);
    ++running_;
    return collective;
}

static Status no_such_member() { return fail(Code::not_found, "the group lacks this rank"); }

static void add_nonmembers(const std::vector<std::uint32_t>& nonmembers, GroupOutcome& to) {
    for (const std::uint32_t rank : nonmembers) to.ranks.push_back({rank, no_such_member(), {}, 0});
}

GroupOutcome Engine::outcome_without_members(const GroupCallOptions& options,
                                             const Choice& choice) {
    GroupOutcome outcome;
    outcome.epoch = choice.rank_order.view.epoch();
    add_nonmembers(choice.nonmembers, outcome);
    const std::uint32_t quorum = quorum_of(options, choice.nonmembers.size());
    outcome.status = policy_status(options.policy, quorum, outcome.ranks);
    return outcome;
}

void Engine::start(CollectiveRequest request) {
    in_turn([&] { start_in_turn(std::move(request)); });
}

void Engine::start_in_turn(CollectiveRequest request) {
    context_.request_turn();
    Result<Choice> choice = choose(request);
    if (!choice) {
        return refuse(*request.group, request.options, choice.status(), std::move(request.done));
    }
    if (choice->size == 0) {
        return complete_later(request.options, outcome_without_members(request.options, *choice),
                              std::move(request.done));
    }
    const std::shared_ptr<CollectiveDriver> collective = make(request, *std::move(choice));
    collective->origin->done = std::move(request.done);
    core::CallScope* const scope = scope_of(collective->origin->options);
    if (!scope) return collective->begin();
    cancel_with_scope(*scope, *collective);
    // A collective that is started within a cancelled call ends at once.
    if (scope->cancelled)
        return collective->cancel(fail(Code::cancelled, core::scope_cancelled_text));
    collective->begin();
}

// The scope cancels the collective, and the completion runs in that scope.
void Engine::cancel_with_scope(core::CallScope& scope, CollectiveDriver& collective) {
    CollectiveDriver::ScopeHook& scope_hook = collective.origin->scope_hook;
    scope_hook.of = &collective;
    scope_hook.cancel = [](core::ScopedOperation& in) {
        static_cast<CollectiveDriver::ScopeHook&>(in).of->cancel(
            fail(Code::cancelled, core::scope_cancelled_text).with_effect(Effect::unknown));
    };
    scope.add(scope_hook);
}

std::size_t Engine::delivering() const {
    return static_cast<std::size_t>(
        std::count_if(begun_.begin(), begun_.end(), [](const auto& one) {
            return one.second->origin->delivers_rest && one.second->state().is_delivering();
        }));
}

bool Engine::cancel(CollectiveId id) {
    const auto at = std::find_if(begun_.begin(), begun_.end(),
                                 [&](const auto& one) { return one.second->origin->id == id; });
    if (at == begun_.end()) return member_collectives_.cancel(id);
    const std::shared_ptr<CollectiveDriver> collective = at->second;
    collective->cancel(
        fail(Code::cancelled, "the caller cancelled the collective").with_effect(Effect::unknown));
    return true;
}

GroupOutcome failed_outcome(const GroupImpl& group, const Status& why) {
    GroupOutcome outcome;
    outcome.status = why;
    outcome.epoch = group.view().epoch();
    return outcome;
}

// ---- completion --------------------------------------------------------------------------------

namespace {
struct DeferredCompletion {
    core::ScopedOperation scope_hook;
    GroupOutcome outcome;
    GroupCompletion done;
};
}  // namespace

void Engine::refuse(const GroupImpl& group, const GroupCallOptions& options, const Status& why,
                    GroupCompletion done) {
    complete_later(options, failed_outcome(group, why), std::move(done));
}

void Engine::complete_later(const GroupCallOptions& options, GroupOutcome outcome,
                            GroupCompletion done) {
    auto completion = std::make_unique<DeferredCompletion>();
    completion->outcome = std::move(outcome);
    completion->done = std::move(done);
    if (core::CallScope* const scope = scope_of(options)) scope->add(completion->scope_hook);
    context_.post([this, completion = std::move(completion)] {
        const core::Context::ScopeGuard scope_guard(context_, completion->scope_hook.scope);
        completion->scope_hook.detach();
        completion->done(std::move(completion->outcome));
    });
}

// Missing outcomes are not waited for: the policy is met, or can't be met any more.
void Engine::report(CollectiveDriver& collective) {
    CollectiveDriver::Origin& origin = *collective.origin;
    const CollectiveState& state = collective.state();
    const Status missing = fail(Code::unknown, "the collective completed without this rank")
                               .with_effect(Effect::unknown)
                               .with_stage(Stage::sent);
    GroupOutcome outcome;
    outcome.epoch = state.plan().epoch;
    outcome.ranks.reserve(state.role().subtree.size() + origin.nonmembers.size());
    for (Outcome& one : state.outcomes_for_caller(missing)) {
        const Member& member = state.plan().rank_order->at(one.position);
        // Names the failed rank: a rank that forwards the status does not take it for its own.
        if (!one.status.ok() && one.status.peer().empty()) {
            one.status = std::move(one.status).with_peer(member.uris.front());
        }
        outcome.ranks.push_back(
            {member.rank, std::move(one.status), std::move(one.reply), member.incarnation});
    }
    add_nonmembers(origin.nonmembers, outcome);
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.status = policy_status(origin.options.policy, state.role().quorum, outcome.ranks);
    outcome.merged = state.outcomes().value();
    // Posted: a group of one may be complete inside start().
    context_.post(
        [this, collective = collective.shared_from_this(), outcome = std::move(outcome)]() mutable {
            CollectiveDriver::Origin& its = *collective->origin;
            const core::Context::ScopeGuard scope_guard(context_, its.scope_hook.scope);
            its.scope_hook.detach();
            its.done(std::move(outcome));
        });
}

void Engine::on_origin_done(CollectiveDriver& collective) {
    --running_;
    const std::shared_ptr<CollectiveDriver> kept = collective.shared_from_this();
    begun_.erase(collective.state().key().sequence);
    if (collective.origin->later_epoch <= collective.group->view_here().epoch()) return;
    // For the next collective. A member takes views from its own program alone.
    if (context_.is_closed() || collective.group->own_rank) return;
    fetch_view(collective.group,
               collective.state().plan().rank_order->at(collective.origin->later_at), [] {});
}

// ---- stale views -------------------------------------------------------------------------------

void Engine::fetch_view(const std::shared_ptr<GroupImpl>& group, const Member& from,
                        Function<void()> done) {
    if (!group->wait_for_view(std::move(done))) return;
    CallOptions options;
    options.detached = true;
    options.timeout = fetch_view_timeout;
    try {
        Result<Channel> channel = group->channel(from);
        if (!channel) return group->on_view_fetched();
        const std::string name = group->view_here().name();
        channel->call(view_method, as_bytes(name), options,
                      [group, held = *channel](const Status& status, ByteView reply) {
                          if (status.ok()) {
                              Result<GroupView> view = GroupView::decode(as_text(reply));
                              if (view)
                                  (void)group->install_from_peer(*view);  // Ignored if not later.
                          }
                          group->on_view_fetched();
                      });
    } catch (const std::bad_alloc&) {  // Otherwise all later waiters would hang.
        group->on_view_fetched();
    }
}

void Engine::refresh(const std::shared_ptr<CollectiveDriver>& collective, std::uint32_t position) {
    if (collective->group->own_rank) return collective->use_own_view();
    const Member from = collective->state().plan().rank_order->at(position);
    fetch_view(collective->group, from, [this, collective] {
        if (collective->state().is_done()) return;
        if (context_.is_closed()) {
            return collective->cancel(fail(Code::cancelled, "the runtime is shutting down"));
        }
        // Another collective may have learnt a later view meanwhile.
        if (collective->group->view_here().epoch() <= collective->state().plan().epoch) {
            return collective->use_own_view();
        }
        restart(collective);
    });
}

// No rank has begun: restarts with another number, in the latest known view.
void Engine::restart(const std::shared_ptr<CollectiveDriver>& collective) {
    CollectiveDriver::Origin& origin = *collective->origin;
    CollectiveRequest request;
    request.id = origin.id;
    request.group = collective->group;
    request.method = collective->state().plan().method;
    request.options = origin.options;
    request.delivers_rest = origin.delivers_rest;
    request.scatters = (collective->state().plan().flags & ForwardHeader::scatters) != 0;
    if (request.scatters) {
        request.bodies = bodies_by_rank(*collective);
    } else {
        request.include = origin.include;
        request.exclude = origin.exclude;
        request.body = collective->own_body;
    }
    request.deadline = collective->state().role().deadline;
    Result<Choice> choice = choose(request);
    if (!choice) return collective->cancel(choice.status());  // For example, an impossible quorum.
    if (choice->size == 0) return collective->cancel(no_such_member());  // All members left.
    const std::shared_ptr<CollectiveDriver> next = make(request, *std::move(choice));
    CollectiveDriver::Origin& its = *next->origin;
    if (core::CallScope* const scope = origin.scope_hook.scope) {
        origin.scope_hook.detach();
        cancel_with_scope(*scope, *next);
    }
    its.done = std::move(origin.done);
    collective->supersede();
    --running_;
    begun_.erase(collective->state().key().sequence);
    next->begin();
}

}  // namespace weft::coll
