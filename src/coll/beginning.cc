// Where collectives begin.
#include <algorithm>

#include "base/mutant.h"
#include "coll/engine.h"

namespace weft::coll {

static constexpr Duration learn_timeout = 2s;

// Who takes part, and how.
struct Engine::Choice {
    Roster::Parts roster;
    Tree tree;
    std::uint32_t size = 0;                // 0: all that are named are strangers.
    bool runs_here = false;                // The root is this runtime.
    std::vector<std::uint32_t> strangers;  // Named, and no members.

    // This runtime is the one at this place. In order of rank whoever comes first is the root, and
    // any other stands outside.
    void stand_at(std::uint32_t place, bool ordered) {
        runs_here = !ordered || place == 0;
        if (runs_here) roster.root = place;
    }
};

// Those who are named, and no members.
static std::vector<std::uint32_t> strangers_among(const RankSet& named, const RankSet& exclude,
                                                  const GroupView& view) {
    std::vector<std::uint32_t> strangers;
    for (const RankSet::Range& range : named.ranges()) {
        for (std::uint64_t rank = range.first; rank <= range.last; ++rank) {
            const auto one = static_cast<std::uint32_t>(rank);
            if (!view.find(one) && !exclude.contains(one)) strangers.push_back(one);
        }
    }
    return strangers;
}

Status judge(const std::optional<RankSet>& include) {
    const std::uint64_t named = include ? include->size() : 0;
    if (named <= GroupView::members_max) return {};
    return fail(Code::invalid_argument, "GroupCallOptions::include names " + std::to_string(named) +
                                            " ranks: expected at most " +
                                            std::to_string(GroupView::members_max));
}

Result<Engine::Choice> Engine::choose_ranks(const Beginning& beginning) const {
    const GroupCallOptions& options = beginning.options;
    GroupImpl& group = *beginning.group;
    Choice choice{
        {beginning.view ? *beginning.view : group.view_here(), {}, 0, false}, {}, 0, false, {}};
    const GroupView& view = choice.roster.view;
    const bool is_automatic = options.topology.shape == Topology::Shape::automatic;
    choice.roster.by_host =
        !options.reduction.ordered &&
        (options.topology.by_host || (is_automatic && group.shares_hosts(view)));
    const bool is_everybody =
        !beginning.include && beginning.exclude.empty() && group.takes_all(view);
    if (is_everybody) {  // Usual, and the others are not looked at.
        choice.size = view.size();
        const Member* const own = group.own_rank ? view.find(*group.own_rank) : nullptr;
        if (own) {
            choice.stand_at(static_cast<std::uint32_t>(own - view.members().data()),
                            options.reduction.ordered);
        }
        return choice;
    }
    if (Status status = judge(beginning.include); !status.ok()) return status;
    RankSet chosen;
    std::uint32_t in_front = 0;  // Of this runtime's own rank.
    bool is_in = false;
    for (const Member& member : view.members()) {
        bool is_in_it = takes_part(member, beginning.include, beginning.exclude);
        if (base::is_mutated(base::Mutant::filter_inverted)) {
            is_in_it ^= !beginning.exclude.empty();
        }
        if (!is_in_it) continue;
        const bool is_own = group.own_rank == member.rank;
        is_in |= is_own;
        if (!is_in) ++in_front;
        chosen.add(member.rank);
        ++choice.size;
    }
    if (beginning.include) {
        choice.strangers = strangers_among(*beginning.include, beginning.exclude, view);
    }
    if (choice.size == 0 && choice.strangers.empty()) {
        return fail(Code::invalid_argument,
                    "no rank takes part: all that are included are excluded or draining");
    }
    if (choice.size < view.size()) choice.roster.ranks = chosen.ranges();
    if (is_in) choice.stand_at(in_front, options.reduction.ordered);
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

// ---- a body for each ---------------------------------------------------------------------------

// So that each rank is named once. Errors: INVALID_ARGUMENT.
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

// As they go by position; those that are left are for ranks that are no members.
static std::vector<std::byte> take_in_order(const Roster& roster,
                                            std::vector<Engine::RankBytes>& bodies) {
    const Interval all = roster.all();
    std::vector<std::vector<std::byte>> by_position;
    by_position.reserve(all.size());
    std::vector<char> taken(bodies.size(), 0);
    std::size_t total = 0;
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const auto body = std::lower_bound(
            bodies.begin(), bodies.end(), roster.at(at).rank,
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

// The same, taken back.
static std::vector<Engine::RankBytes> bodies_by_rank(const Operation& operation) {
    std::vector<Engine::RankBytes> bodies = operation.origin->spare_bodies;
    const Roster& roster = *operation.part().plan().roster;
    const Interval all = roster.all();
    PieceReader pieces(operation.body, all.size());
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const ByteView body = pieces.next();
        bodies.emplace_back(roster.at(at).rank, std::vector<std::byte>(body.begin(), body.end()));
    }
    return bodies;
}

// Who has a body takes part.
static Status choose_by_bodies(Engine::Beginning& beginning) {
    if (beginning.include || !beginning.exclude.empty()) {
        return fail(Code::invalid_argument, "a scatter names those who take part by their bodies");
    }
    if (Status status = sort_by_rank(beginning.bodies); !status.ok()) return status;
    beginning.include.emplace();
    for (const auto& [rank, body] : beginning.bodies) beginning.include->add(rank);
    return {};
}

// ---- its beginning -----------------------------------------------------------------------------

Status judge(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
             std::size_t strangers, bool runs_here) {
    if (Status status = judge(options.reduction); !status.ok()) return status;
    if (!tree.is_possible({runs_here ? 1u : 0u, ranks})) {
        return fail(Code::invalid_argument,
                    "GroupCallOptions::topology.shape is flat, which has at most " +
                        std::to_string(flat_max) + " children: " + std::to_string(ranks) +
                        " ranks take part; leave it automatic");
    }
    if (options.policy == Policy::quorum && options.quorum > ranks + strangers) {
        return fail(Code::invalid_argument, "GroupCallOptions::quorum is " +
                                                std::to_string(options.quorum) +
                                                ": expected at most the ranks that take part, " +
                                                std::to_string(ranks + strangers));
    }
    return {};
}

std::pair<Identity, std::uint16_t> Engine::number_it() {
    const std::uint64_t sequence = next_sequence_++;
    const auto first = begun_.lower_bound(origin_first_);
    std::uint64_t unsettled = first == begun_.end() ? 0 : sequence - first->first;
    if (unsettled >= unsettled_most) {
        origin_ = context_.random().next();
        origin_first_ = sequence;
        unsettled = 0;
    }
    return {{origin_, sequence}, static_cast<std::uint16_t>(unsettled)};
}

Result<Engine::Choice> Engine::choose(Beginning& beginning) const {
    const GroupCallOptions& options = beginning.options;
    if (Status status = judge_ranges(options); !status.ok()) return status;
    if (beginning.scatters) {
        if (Status status = choose_by_bodies(beginning); !status.ok()) return status;
    }
    Result<Choice> choice = choose_ranks(beginning);
    if (!choice) return choice;
    std::size_t bytes = beginning.body.size();
    for (const RankBytes& one : beginning.bodies) bytes += one.second.size();
    choice->tree = tree_of(options.topology, beginning.group->costs, choice->size, bytes);
    Status status =
        judge(options, choice->tree, choice->size, choice->strangers.size(), choice->runs_here);
    if (!status.ok()) return status;
    return choice;
}

// Of the ranks that take part.
static std::uint32_t quorum_of(const GroupCallOptions& options, std::size_t ranks) {
    return options.quorum != 0 ? options.quorum : static_cast<std::uint32_t>(ranks / 2 + 1);
}

std::shared_ptr<Operation> Engine::make(Beginning& beginning, Choice choice) {
    const GroupCallOptions& options = beginning.options;
    const std::uint32_t n = choice.size;
    Merge merge{options.reduction, server_.merge_of(beginning.method)};
    if (!merge.function) merge.function = options.merge;
    std::uint8_t flags = 0;
    if (beginning.scatters) flags |= ForwardHeader::scatters;
    if (choice.roster.by_host) flags |= ForwardHeader::by_host;
    if (options.reduction.ordered) flags |= ForwardHeader::ordered;
    Part::Role role;
    role.mine = {0, n};
    role.is_origin = true;
    role.runs = choice.runs_here;
    role.policy = options.policy;
    role.abandons = options.abandon_rest;
    role.quorum = quorum_of(options, n + choice.strangers.size());
    role.until = beginning.deadline;
    auto plan = beginning.group->plan(beginning.group->roster(std::move(choice.roster)),
                                      beginning.method, choice.tree, merge, flags);
    const auto [identity, unsettled] = number_it();
    auto operation = std::make_shared<Operation>(*this, beginning.group, std::move(plan), identity,
                                                 unsettled, role);
    operation->priority = options.priority;
    operation->began = context_.now();
    if (role.until != never) operation->lasts = role.until - operation->began;
    operation->own_body = beginning.scatters
                              ? take_in_order(*operation->part().plan().roster, beginning.bodies)
                              : std::move(beginning.body);
    operation->body = operation->own_body;
    operation->origin = std::make_unique<Operation::Origin>();
    Operation::Origin& origin = *operation->origin;
    origin.id = beginning.id;
    origin.options = options;
    origin.include = beginning.include;
    origin.exclude = beginning.exclude;
    origin.strangers = std::move(choice.strangers);
    origin.spare_bodies = std::move(beginning.bodies);
    origin.is_owed = beginning.is_owed;
    begun_.emplace(identity.sequence, operation);
    ++running_;
    return operation;
}

static Status no_such_member() { return fail(Code::not_found, "no member has this rank"); }

static void add_strangers(const std::vector<std::uint32_t>& strangers, GroupOutcome& to) {
    for (const std::uint32_t rank : strangers) to.ranks.push_back({rank, no_such_member(), {}, 0});
}

GroupOutcome Engine::outcome_without_members(const GroupCallOptions& options,
                                             const Choice& choice) {
    GroupOutcome outcome;
    outcome.epoch = choice.roster.view.epoch();
    add_strangers(choice.strangers, outcome);
    const std::uint32_t quorum = quorum_of(options, choice.strangers.size());
    outcome.status = verdict(options.policy, quorum, outcome.ranks);
    return outcome;
}

void Engine::start(Beginning beginning) {
    in_turn([&] { start_in_turn(std::move(beginning)); });
}

void Engine::start_in_turn(Beginning beginning) {
    context_.rouse();
    Result<Choice> choice = choose(beginning);
    if (!choice) {
        return refuse(*beginning.group, beginning.options, choice.status(),
                      std::move(beginning.done));
    }
    if (choice->size == 0) {
        return settle(beginning.options, outcome_without_members(beginning.options, *choice),
                      std::move(beginning.done));
    }
    const std::shared_ptr<Operation> operation = make(beginning, *std::move(choice));
    operation->origin->done = std::move(beginning.done);
    core::Scope* const scope = scope_of(operation->origin->options);
    if (!scope) return operation->begin();
    end_with(*scope, *operation);
    // What is started for the sake of a call that was cancelled ends at once.
    if (scope->cancelled) return operation->stop(fail(Code::cancelled, core::scope_cancelled_text));
    operation->begin();
}

// It ends with that, and completes in it.
void Engine::end_with(core::Scope& scope, Operation& operation) {
    Operation::MadeIn& made_in = operation.origin->made_in;
    made_in.of = &operation;
    made_in.cancel = [](core::InScope& in) {
        static_cast<Operation::MadeIn&>(in).of->stop(
            fail(Code::cancelled, core::scope_cancelled_text).with_effect(Effect::unknown));
    };
    scope.add(made_in);
}

std::size_t Engine::delivering() const {
    return static_cast<std::size_t>(
        std::count_if(begun_.begin(), begun_.end(), [](const auto& one) {
            return one.second->origin->is_owed && one.second->part().is_delivering();
        }));
}

bool Engine::cancel(CollectiveId id) {
    const auto at = std::find_if(begun_.begin(), begun_.end(),
                                 [&](const auto& one) { return one.second->origin->id == id; });
    if (at == begun_.end()) return meetings_.cancel(id);
    const std::shared_ptr<Operation> operation = at->second;
    operation->stop(fail(Code::cancelled, "cancelled by the caller").with_effect(Effect::unknown));
    return true;
}

GroupOutcome failed_outcome(const GroupImpl& group, const Status& why) {
    GroupOutcome outcome;
    outcome.status = why;
    outcome.epoch = group.view().epoch();
    return outcome;
}

// ---- its end -----------------------------------------------------------------------------------

namespace {
struct Settled {
    core::InScope made_in;
    GroupOutcome outcome;
    GroupCompletion done;
};
}  // namespace

void Engine::refuse(const GroupImpl& group, const GroupCallOptions& options, const Status& why,
                    GroupCompletion done) {
    settle(options, failed_outcome(group, why), std::move(done));
}

void Engine::settle(const GroupCallOptions& options, GroupOutcome outcome, GroupCompletion done) {
    auto settled = std::make_unique<Settled>();
    settled->outcome = std::move(outcome);
    settled->done = std::move(done);
    if (core::Scope* const scope = scope_of(options)) scope->add(settled->made_in);
    context_.post([this, settled = std::move(settled)] {
        const core::Context::Within within(context_, settled->made_in.scope);
        settled->made_in.leave();
        settled->done(std::move(settled->outcome));
    });
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
        // Names the failed rank: a rank that forwards the status does not take it for its own.
        if (!one.status.ok() && one.status.peer().empty()) {
            one.status = std::move(one.status).with_peer(member.uris.front());
        }
        outcome.ranks.push_back(
            {member.rank, std::move(one.status), std::move(one.reply), member.incarnation});
    }
    add_strangers(origin.strangers, outcome);
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.status = verdict(origin.options.policy, part.role().quorum, outcome.ranks);
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
    // For the next one. A member takes views from its own program alone.
    if (context_.is_closed() || operation.group->own_rank) return;
    learn(operation.group, operation.part().plan().roster->at(operation.origin->later_at), [] {});
}

// ---- whose view is old -------------------------------------------------------------------------

void Engine::learn(const std::shared_ptr<GroupImpl>& group, const Member& from,
                   Function<void()> done) {
    if (!group->wait_to_learn(std::move(done))) return;
    CallOptions options;
    options.detached = true;
    options.timeout = learn_timeout;
    try {
        Result<Channel> channel = group->channel(from);
        if (!channel) return group->has_learnt();
        const std::string name = group->view_here().name();
        channel->call(view_method, as_bytes(name), options,
                      [group, held = *channel](const Status& status, ByteView reply) {
                          if (status.ok()) {
                              Result<GroupView> view = GroupView::decode(as_text(reply));
                              if (view) (void)group->learn(*view);  // Unless it is no later one.
                          }
                          group->has_learnt();
                      });
    } catch (const std::bad_alloc&) {  // Else all that follow would wait for this one.
        group->has_learnt();
    }
}

void Engine::refresh(const std::shared_ptr<Operation>& operation, std::uint32_t position) {
    if (operation->group->own_rank) return operation->use_own_view();
    const Member from = operation->part().plan().roster->at(position);
    learn(operation->group, from, [this, operation] {
        if (operation->part().is_over()) return;
        if (context_.is_closed()) {
            return operation->stop(fail(Code::cancelled, "the runtime is shutting down"));
        }
        // Perhaps another collective has learnt it meanwhile.
        if (operation->group->view_here().epoch() <= operation->part().plan().epoch) {
            return operation->use_own_view();
        }
        begin_anew(operation);
    });
}

// Nobody has begun: another number, in the view that is known now.
void Engine::begin_anew(const std::shared_ptr<Operation>& operation) {
    Operation::Origin& origin = *operation->origin;
    Beginning beginning;
    beginning.id = origin.id;
    beginning.group = operation->group;
    beginning.method = operation->part().plan().method;
    beginning.options = origin.options;
    beginning.is_owed = origin.is_owed;
    beginning.scatters = (operation->part().plan().flags & ForwardHeader::scatters) != 0;
    if (beginning.scatters) {
        beginning.bodies = bodies_by_rank(*operation);
    } else {
        beginning.include = origin.include;
        beginning.exclude = origin.exclude;
        beginning.body = operation->own_body;
    }
    beginning.deadline = operation->part().role().until;
    Result<Choice> choice = choose(beginning);
    if (!choice) return operation->stop(choice.status());  // A quorum that can't be any more, say.
    if (choice->size == 0) return operation->stop(no_such_member());  // All have left.
    const std::shared_ptr<Operation> next = make(beginning, *std::move(choice));
    Operation::Origin& its = *next->origin;
    if (core::Scope* const scope = origin.made_in.scope) {
        origin.made_in.leave();
        end_with(*scope, *next);
    }
    its.done = std::move(origin.done);
    operation->be_replaced();
    --running_;
    begun_.erase(operation->part().identity().sequence);
    next->begin();
}

}  // namespace weft::coll
