#include "coll/collective_origin.h"

#include <algorithm>
#include <tuple>

#include "base/assert.h"
#include "coll/choose_tree.h"
#include "coll/scatter_bodies.h"

namespace weft::coll {

static constexpr Duration fetch_view_timeout = 2s;

CollectiveOrigin::CollectiveOrigin(CollectiveHost& host)
    : host_(host), origin_(host.context().random().next()) {}

// ---- begin -------------------------------------------------------------------------------------

std::pair<CollectiveKey, std::uint16_t> CollectiveOrigin::next_key() {
    const std::uint64_t sequence = next_sequence_++;
    WEFT_ASSERT(origin_first_ <= sequence);
    const auto first = begun_.lower_bound(origin_first_);
    std::uint64_t unacknowledged = first == begun_.end() ? 0 : sequence - first->first;
    if (unacknowledged >= unacknowledged_max) {
        origin_ = host_.context().random().next();
        origin_first_ = sequence;
        unacknowledged = 0;
    }
    return {{origin_, sequence}, static_cast<std::uint16_t>(unacknowledged)};
}

std::shared_ptr<OriginDriver> CollectiveOrigin::make(CollectiveRequest request, Choice choice) {
    const GroupCallOptions& options = request.options;
    Merge merge{options.reduction, host_.server().merge_of(request.method)};
    if (!merge.function) merge.function = options.merge;
    std::uint8_t flags = 0;
    if (request.scatters) flags |= ForwardHeader::scatters;
    if (choice.rank_order.by_host) flags |= ForwardHeader::by_host;
    if (options.reduction.ordered) flags |= ForwardHeader::ordered;
    CollectiveDriver::Setup setup;
    setup.group = request.group;
    setup.role.subtree = {0, choice.size};
    setup.role.is_origin = true;
    setup.role.runs_method = choice.runs_here;
    setup.role.policy = options.policy;
    setup.role.abandons = options.abandon_rest;
    setup.role.quorum = quorum_of(options, choice.size + choice.nonmembers.size());
    setup.role.deadline = request.deadline;
    setup.plan = request.group->plan(request.group->rank_order(std::move(choice.rank_order)),
                                     request.method, choice.tree, merge, flags);
    std::tie(setup.key, setup.unacknowledged) = next_key();
    setup.priority = options.priority;
    setup.began = host_.context().now();
    if (request.deadline != never) setup.time_limit = request.deadline - setup.began;
    std::vector<std::byte> body = request.scatters
                                      ? take_in_order(*setup.plan->rank_order, request.bodies)
                                      : std::move(request.body);
    const std::uint64_t sequence = setup.key.sequence;
    auto collective = std::make_shared<OriginDriver>(
        host_, static_cast<OriginDriver::Owner&>(*this), std::move(setup), std::move(request),
        std::move(choice.nonmembers));
    collective->own_body(std::move(body));
    const bool is_new = begun_.emplace(sequence, collective).second;
    WEFT_ASSERT(is_new);
    host_.on_begun();
    return collective;
}

static GroupOutcome outcome_without_members(const GroupCallOptions& options, const Choice& choice) {
    GroupOutcome outcome;
    outcome.epoch = choice.rank_order.view.epoch();
    add_nonmembers(choice.nonmembers, outcome);
    const std::uint32_t quorum = quorum_of(options, choice.nonmembers.size());
    outcome.status = policy_status(options.policy, quorum, outcome.ranks);
    return outcome;
}

void CollectiveOrigin::start(CollectiveRequest request) {
    host_.in_turn([&] { start_in_turn(std::move(request)); });
}

void CollectiveOrigin::start_in_turn(CollectiveRequest request) {
    WEFT_ASSERT(request.done);
    host_.context().request_turn();
    Result<Choice> choice = choose(request);
    if (!choice) {
        return host_.complete_later(request.options,
                                    failed_outcome(*request.group, choice.status()),
                                    std::move(request.done));
    }
    if (choice->size == 0) {
        return host_.complete_later(request.options,
                                    outcome_without_members(request.options, *choice),
                                    std::move(request.done));
    }
    core::CallScope* const scope = host_.scope_of(request.options);
    const std::shared_ptr<OriginDriver> collective = make(std::move(request), *std::move(choice));
    if (scope) collective->cancel_with(*scope);
    // A collective that is started within a cancelled call ends at once.
    if (scope && scope->cancelled)
        return collective->cancel(fail(Code::cancelled, core::scope_cancelled_text));
    collective->begin();
}

std::size_t CollectiveOrigin::delivering() const {
    return static_cast<std::size_t>(std::count_if(
        begun_.begin(), begun_.end(), [](const auto& one) { return one.second->is_delivering(); }));
}

bool CollectiveOrigin::cancel(CollectiveId id) {
    const auto at = std::find_if(begun_.begin(), begun_.end(),
                                 [&](const auto& one) { return one.second->id() == id; });
    if (at == begun_.end()) return false;
    const std::shared_ptr<OriginDriver> collective = at->second;
    collective->cancel(
        fail(Code::cancelled, "the caller cancelled the collective").with_effect(Effect::unknown));
    return true;
}

void CollectiveOrigin::shutdown() {
    const Status why =
        fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown);
    for (auto& [sequence, collective] : std::map(begun_)) collective->cancel(why);
}

// ---- the end -----------------------------------------------------------------------------------

void CollectiveOrigin::forget(const OriginDriver& collective) {
    const std::size_t erased = begun_.erase(collective.state().key().sequence);
    WEFT_ASSERT(erased == 1);
    host_.on_ended();
}

void CollectiveOrigin::on_done(OriginDriver& collective) {
    const auto kept = collective.shared_from_this();
    forget(collective);
    const std::shared_ptr<GroupState>& group = collective.group();
    if (collective.later_epoch() <= group->view_here().epoch()) return;
    // For the next collective. A member takes views from its own program alone.
    if (host_.context().is_closed() || group->own_rank) return;
    fetch_view(group, collective.state().plan().rank_order->at(collective.later_at()), [] {});
}

// ---- stale views -------------------------------------------------------------------------------

void CollectiveOrigin::fetch_view(const std::shared_ptr<GroupState>& group, const Member& from,
                                  Function<void()> done) {
    if (!group->wait_for_view(std::move(done))) return;
    CallOptions options;
    options.detached = true;
    options.timeout = fetch_view_timeout;
    bool has_begun = false;
    try {
        Result<Channel> channel = group->channel(from);
        if (channel) {
            const std::string name = group->view_here().name();
            channel->call(
                view_method, as_bytes(name), options,
                [group, held = *channel](const Status& status, ByteView reply) {
                    if (status.ok()) {
                        Result<GroupView> view = GroupView::decode(as_text(reply));
                        if (view) (void)group->install_from_peer(*view);  // Ignored if not later.
                    }
                    group->on_view_fetched();
                });
            has_begun = true;
        }
    } catch (const std::bad_alloc&) {
    }
    if (!has_begun) group->on_view_fetched();  // Otherwise all later waiters would hang.
}

void CollectiveOrigin::refresh(std::shared_ptr<OriginDriver> collective, std::uint32_t position) {
    if (collective->group()->own_rank) return collective->use_own_view();
    const Member from = collective->state().plan().rank_order->at(position);
    fetch_view(collective->group(), from, [this, collective] {
        if (collective->state().is_done()) return;
        if (host_.context().is_closed()) {
            return collective->cancel(fail(Code::cancelled, "the runtime is shutting down"));
        }
        // Another collective may have learnt a later view meanwhile.
        if (collective->group()->view_here().epoch() <= collective->state().plan().epoch) {
            return collective->use_own_view();
        }
        restart(*collective);
    });
}

// No rank has begun: restarts with another number, in the latest known view.
void CollectiveOrigin::restart(OriginDriver& collective) {
    CollectiveRequest request = collective.request_again();
    Result<Choice> choice = choose(request);
    if (!choice) return collective.cancel(choice.status());  // For example, an impossible quorum.
    if (choice->size == 0) return collective.cancel(no_such_member());  // All members left.
    const std::shared_ptr<OriginDriver> next = make(std::move(request), *std::move(choice));
    next->supersede(collective);
    forget(collective);
    next->begin();
}

}  // namespace weft::coll
