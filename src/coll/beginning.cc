// Where collectives begin.
#include <algorithm>

#include "base/mutant.h"
#include "coll/engine.h"

namespace weft::coll {

static constexpr Duration learn_timeout = 2s;

// Who takes part, and how.
struct Engine::Choice {
    Roster::Parts roster;
    std::uint32_t size = 0;
    bool runs_here = false;                // The root is this runtime.
    std::vector<std::uint32_t> strangers;  // Named, and no members.
};

Result<Engine::Choice> Engine::choose(const Beginning& beginning) const {
    const GroupCallOptions& options = beginning.options;
    const bool is_automatic = options.topology.shape == Topology::Shape::automatic;
    const bool by_host =
        options.topology.by_host || (is_automatic && beginning.group->shares_hosts());
    Choice choice{{beginning.group->view_here(), {}, 0, by_host}, 0, false, {}};
    const GroupView& view = choice.roster.view;
    const bool is_everybody =
        !beginning.include && beginning.exclude.empty() && beginning.group->takes_all();
    if (is_everybody) {  // Usual, and the others are not looked at.
        choice.size = view.size();
        const Member* const own =
            beginning.group->own_rank ? view.find(*beginning.group->own_rank) : nullptr;
        choice.runs_here = own && !options.reduction.ordered;
        if (choice.runs_here) {
            choice.roster.root = static_cast<std::uint32_t>(own - view.members().data());
        }
        if (options.reduction.ordered) choice.roster.by_host = false;
        return choice;
    }
    RankSet chosen;
    std::uint32_t in_front = 0;  // Of this runtime's own rank.
    bool is_in = false;
    for (const Member& member : view.members()) {
        bool is_out = beginning.exclude.contains(member.rank);
        if (base::is_mutated(base::Mutant::filter_inverted)) is_out ^= !beginning.exclude.empty();
        const bool is_named =
            beginning.include ? beginning.include->contains(member.rank) : !member.draining;
        if (!is_named || is_out) continue;
        const bool is_own = beginning.group->own_rank == member.rank;
        is_in |= is_own;
        if (!is_in) ++in_front;
        chosen.add(member.rank);
        ++choice.size;
    }
    if (beginning.include) {
        for (const RankSet::Range& range : beginning.include->ranges()) {
            for (std::uint64_t rank = range.first; rank <= range.last; ++rank) {
                if (choice.strangers.size() > GroupView::members_max) break;
                const auto one = static_cast<std::uint32_t>(rank);
                if (!view.find(one) && !beginning.exclude.contains(one)) {
                    choice.strangers.push_back(one);
                }
            }
        }
    }
    if (choice.size == 0) return fail(Code::invalid_argument, "no rank takes part");
    if (choice.size < view.size()) choice.roster.ranks = chosen.ranges();
    // In order of rank whoever comes first is the root; this runtime then stands outside.
    choice.runs_here = is_in && !options.reduction.ordered;
    if (choice.runs_here) choice.roster.root = in_front;
    if (options.reduction.ordered) choice.roster.by_host = false;
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

// Bodies by rank, as they go by position.
static std::vector<std::byte> in_order(const Roster& roster,
                                       const std::vector<std::vector<std::byte>>& bodies) {
    const Interval all = roster.all();
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t at = all.first; at < all.last; ++at) ranks.push_back(roster.at(at).rank);
    std::sort(ranks.begin(), ranks.end());
    std::vector<const std::vector<std::byte>*> by_position;
    std::size_t total = 0;
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const auto place = std::lower_bound(ranks.begin(), ranks.end(), roster.at(at).rank);
        by_position.push_back(&bodies[static_cast<std::size_t>(place - ranks.begin())]);
        total += sizeof(std::uint32_t) + by_position.back()->size();
    }
    std::vector<std::byte> pieces;
    pieces.reserve(total);
    for (const auto* body : by_position) {
        const auto bytes = static_cast<std::uint32_t>(body->size());
        const auto* const raw = reinterpret_cast<const std::byte*>(&bytes);
        pieces.insert(pieces.end(), raw, raw + sizeof bytes);
    }
    for (const auto* body : by_position) pieces.insert(pieces.end(), body->begin(), body->end());
    return pieces;
}

Result<std::shared_ptr<Operation>> Engine::make(Beginning& beginning) {
    const GroupCallOptions& options = beginning.options;
    if (Status status = judge(options.reduction); !status.ok()) return status;
    Result<Choice> choice = choose(beginning);
    if (!choice) return std::move(choice).status();
    const std::uint32_t n = choice->size;
    const Tree tree = tree_of(options.topology, beginning.group->costs, n, beginning.body.size());
    if (!tree.is_possible({choice->runs_here ? 1u : 0u, n})) {
        return fail(Code::invalid_argument, "no such tree over " + std::to_string(n) +
                                                " ranks with a fanout of " +
                                                std::to_string(tree.fanout));
    }
    if (options.policy == Policy::quorum && options.quorum > n + choice->strangers.size()) {
        return fail(Code::invalid_argument, "a quorum of " + std::to_string(options.quorum) +
                                                " among " + std::to_string(n) + " ranks");
    }
    if (beginning.scatters && beginning.bodies.size() != n) {
        return fail(Code::invalid_argument, std::to_string(beginning.bodies.size()) +
                                                " bodies for " + std::to_string(n) + " ranks");
    }
    Merge merge{options.reduction, server_.merge_of(beginning.method)};
    if (!merge.function) merge.function = options.merge;
    std::uint8_t flags = 0;
    if (beginning.scatters) flags |= ForwardHeader::scatters;
    if (choice->roster.by_host) flags |= ForwardHeader::by_host;
    if (options.reduction.ordered) flags |= ForwardHeader::ordered;
    Part::Role role;
    role.mine = {0, n};
    role.is_origin = true;
    role.runs = choice->runs_here;
    role.policy = options.policy;
    role.quorum = options.quorum == 0 ? n / 2 + 1 : options.quorum;
    role.until = beginning.deadline;
    auto plan =
        beginning.group->plan(std::move(choice->roster), beginning.method, tree, merge, flags);
    const std::uint64_t sequence = next_sequence_++;
    const std::uint64_t first = begun_.empty() ? sequence : begun_.begin()->first;
    auto operation =
        std::make_shared<Operation>(*this, beginning.group, std::move(plan),
                                    Identity{origin_, sequence}, sequence - first, role);
    operation->own_body = beginning.scatters
                              ? in_order(*operation->part().plan().roster, beginning.bodies)
                              : std::move(beginning.body);
    operation->body = operation->own_body;
    operation->detached = options.detached;
    operation->origin = std::make_unique<Operation::Origin>();
    operation->origin->id = sequence + 1;
    operation->origin->options = options;
    operation->origin->include = beginning.include;
    operation->origin->exclude = beginning.exclude;
    operation->origin->strangers = std::move(choice->strangers);
    begun_.emplace(sequence, operation);
    ++running_;
    return operation;
}

CollectiveId Engine::start(Beginning beginning) {
    // Between turns the context's time stands still.
    if (!context_.in_turn()) context_.refresh_time();
    context_.rouse();
    Result<std::shared_ptr<Operation>> made = make(beginning);
    if (!made) {
        fail_all(std::move(beginning), made.status());
        return 0;
    }
    const std::shared_ptr<Operation> operation = *std::move(made);
    Operation::Origin& origin = *operation->origin;
    core::Scope* const scope =
        context_.in_turn() && !origin.options.detached ? context_.scope() : nullptr;
    if (scope) scope->add(origin.made_in);
    origin.done = std::move(beginning.done);
    operation->begin();
    return operation->origin->id;
}

void Engine::cancel(CollectiveId id) {
    // One that began anew has another number than the id says.
    const auto at = std::find_if(begun_.begin(), begun_.end(),
                                 [&](const auto& one) { return one.second->origin->id == id; });
    if (at == begun_.end()) return;
    const std::shared_ptr<Operation> operation = at->second;
    operation->stop(fail(Code::cancelled, "cancelled by the caller").with_effect(Effect::unknown));
}

GroupOutcome failed_outcome(const GroupImpl& group, const Status& why) {
    GroupOutcome outcome;
    const GroupView& view = group.view_here();
    outcome.status = why;
    outcome.epoch = view.epoch();
    for (const Member& member : view.members()) {
        outcome.ranks.push_back({member.rank, why, {}, member.incarnation});
    }
    return outcome;
}

// ---- its end -----------------------------------------------------------------------------------

void Engine::fail_all(Beginning beginning, const Status& why) {
    context_.post([outcome = failed_outcome(*beginning.group, why),
                   done = std::move(beginning.done)]() mutable { done(std::move(outcome)); });
}

// Those that are missing are not waited for: its policy is content, or can't be any more.
void Engine::tell(Operation& operation) {
    Operation::Origin& origin = *operation.origin;
    const Part& part = operation.part();
    const Status missing =
        fail(Code::unknown, "not waited for").with_effect(Effect::unknown).with_stage(Stage::sent);
    GroupOutcome outcome;
    outcome.epoch = part.plan().epoch;
    outcome.ranks.reserve(part.role().mine.size() + origin.strangers.size());
    for (Outcome& one : part.take_all(missing)) {
        const Member& member = part.plan().roster->at(one.position);
        outcome.ranks.push_back(
            {member.rank, std::move(one.status), std::move(one.reply), member.incarnation});
    }
    for (const std::uint32_t rank : origin.strangers) {
        outcome.ranks.push_back({rank, fail(Code::not_found, "no member has this rank"), {}, 0});
    }
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.status = verdict(origin.options, outcome.ranks);
    outcome.merged = part.outcomes().value();
    // Posted: a group of one may be complete inside start().
    context_.post(
        [this, operation = operation.shared_from_this(), outcome = std::move(outcome)]() mutable {
            Operation::Origin& told = *operation->origin;
            const core::Context::Within within(context_, told.made_in.scope);
            told.made_in.leave();
            told.done(std::move(outcome));
        });
}

void Engine::on_origin_done(Operation& operation) {
    --running_;
    const std::shared_ptr<Operation> kept = operation.shared_from_this();
    begun_.erase(operation.part().identity().sequence);
    if (operation.origin->later_epoch <= operation.group->view_here().epoch()) return;
    // For the next one.
    if (context_.is_closed()) return;
    learn(operation.group, operation.part().plan().roster->at(operation.origin->later_at),
          [](bool) {});
}

// ---- whose view is old -------------------------------------------------------------------------

void Engine::learn(const std::shared_ptr<GroupImpl>& group, const Member& from,
                   Function<void(bool)> done) {
    Result<Channel> channel = group->channel(from);
    if (!channel) return done(false);
    CallOptions options;
    options.detached = true;
    options.timeout = learn_timeout;
    const std::string name = group->view_here().name();
    channel->call(view_method, as_bytes(name), options,
                  [group, done = std::move(done)](const Status& status, ByteView reply) mutable {
                      if (!status.ok()) return done(false);
                      Result<GroupView> view = GroupView::decode(as_text(reply));
                      done(view.ok() && group->install(*view).ok());
                  });
}

void Engine::refresh(const std::shared_ptr<Operation>& operation, std::uint32_t position) {
    const Member from = operation->part().plan().roster->at(position);
    const std::uint64_t epoch = operation->part().plan().epoch;
    // Bodies for each are for the ranks of the view that it has.
    if (operation->part().plan().flags & ForwardHeader::scatters) return operation->use_own_view();
    learn(operation->group, from, [this, operation, epoch](bool) {
        if (operation->part().is_over() || context_.is_closed()) return;
        // Perhaps another collective has learnt it meanwhile.
        if (operation->group->view_here().epoch() <= epoch) return operation->use_own_view();
        begin_anew(operation);
    });
}

// Nobody has begun: another number, in the view that is known now.
void Engine::begin_anew(const std::shared_ptr<Operation>& operation) {
    Operation::Origin& origin = *operation->origin;
    Beginning beginning;
    beginning.group = operation->group;
    beginning.method = operation->part().plan().method;
    beginning.options = origin.options;
    beginning.include = origin.include;
    beginning.exclude = origin.exclude;
    beginning.body = operation->own_body;
    beginning.deadline = operation->part().role().until;
    Result<std::shared_ptr<Operation>> made = make(beginning);
    if (!made) return operation->stop(made.status());  // A quorum that can't be any more, say.
    const std::shared_ptr<Operation> next = *std::move(made);
    Operation::Origin& its = *next->origin;
    if (origin.made_in.scope) {
        core::Scope* const scope = origin.made_in.scope;
        origin.made_in.leave();
        scope->add(its.made_in);
    }
    its.done = std::move(origin.done);
    its.id = origin.id;
    operation->be_replaced();
    --running_;
    begun_.erase(operation->part().identity().sequence);
    next->begin();
}

}  // namespace weft::coll
