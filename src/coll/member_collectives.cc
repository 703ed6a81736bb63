#include "coll/member_collectives.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/choose_tree.h"
#include "coll/policy.h"
#include "coll/time_budget.h"

namespace weft::coll {

namespace {

constexpr MethodId gather_method("weft.Group/Gather");
constexpr MethodId release_method("weft.Group/Release");
constexpr MethodId probe_method("weft.Group/Probe");

// The lowest rank that takes part. Errors: no rank takes part, or not this one, or the options are
// impossible.
Result<std::uint32_t> choose_leader(const MemberCollectives::Contribution& contribution,
                                    const GroupView& view) {
    std::optional<std::uint32_t> leader;
    bool is_in = false;
    std::uint32_t ranks = 0;
    for (const Member& member : view.members()) {
        if (!takes_part(member, contribution.include, contribution.exclude)) continue;
        if (!leader) leader = member.rank;
        ++ranks;
        is_in |= member.rank == contribution.group->own_rank;
    }
    if (!is_in)
        return fail(Code::failed_precondition,
                    "this rank takes no part in the member collective: it is draining, not "
                    "included or excluded");
    if (Status status = validate(contribution.include); !status.ok()) return status;
    const std::size_t named = contribution.include ? contribution.include->size() : 0;
    // Validated by each member, since all have the same options: else only the leader would fail.
    const Tree tree = tree_of(contribution.options.topology, contribution.group->costs, ranks, 0);
    const std::size_t nonmembers = named > ranks ? named - ranks : 0;
    if (Status status = validate(contribution.options, tree, ranks, nonmembers, true);
        !status.ok()) {
        return status;
    }
    return *leader;
}

Status validate_contribution(const MemberCollectives::Contribution& contribution,
                             const CollectiveHost& host) {
    if (contribution.name.size() > MemberCollectiveHeader::name_bytes_max) {
        return fail(Code::invalid_argument,
                    "the name of a member collective has " +
                        std::to_string(contribution.name.size()) + " bytes: expected at most " +
                        std::to_string(MemberCollectiveHeader::name_bytes_max));
    }
    if (Status status = validate_ranges(contribution.options); !status.ok()) return status;
    if (contribution.options.reduction.operation == Reduction::Operation::method) {
        return fail(Code::invalid_argument,
                    "Reduction::Operation::method in a member collective, which has no method: "
                    "expected another, or none for a list");
    }
    if (!contribution.group->own_rank)
        return fail(Code::failed_precondition,
                    "a member collective needs a member of the group: Runtime::join() makes this "
                    "runtime one");
    if (host.context().is_closed()) {
        return fail(Code::cancelled, "the runtime is shutting down");
    }
    if (host.context().clock().now() >= contribution.deadline) {
        return fail(Code::deadline_exceeded,
                    "the deadline of the member collective expired before this rank joined");
    }
    const core::CallScope* const scope = host.scope_of(contribution.options);
    if (scope && scope->cancelled) return fail(Code::cancelled, core::scope_cancelled_text);
    return {};
}

}  // namespace

std::string MemberCollectives::leader_of(std::uint32_t leader) {
    return "rank " + std::to_string(leader) + " (leader)";
}

MemberCollectives::MemberCollectives(CollectiveHost& host, CollectiveOrigin& origin)
    : host_(host), origin_(origin) {
    const auto handler = [this](void (MemberCollectives::*handle)(Call)) {
        return [this, handle](Call call) { (this->*handle)(std::move(call)); };
    };
    rpc::Server& server = host_.server();
    for (const Status& status :
         {server.add_method(gather_method.name, handler(&MemberCollectives::on_gather),
                            {.collective = true}),
          server.add_method(release_method.name, handler(&MemberCollectives::on_release),
                            {.collective = true}),
          server.add_drain_exempt_method(probe_method.name,
                                         handler(&MemberCollectives::on_probe))}) {
        WEFT_ASSERT(status.ok());
    }
}

void MemberCollectives::drain() {
    while (!pending_gathers_.empty()) {
        fail_gather(Key(pending_gathers_.begin()->first),
                    rejected(Code::unavailable, "the runtime is shutting down"));
    }
}

std::size_t MemberCollectives::undelivered(TimePoint now) const {
    return static_cast<std::size_t>(
        std::count_if(undelivered_.begin(), undelivered_.end(),
                      [&](const UndeliveredResult& one) { return now < one.expires_at; }));
}

void MemberCollectives::shutdown() {
    drain();
    while (!collectives_.empty()) {
        end(Key(collectives_.begin()->first),
            fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown));
    }
}

MemberCollectives::Key MemberCollectives::key_of(const MemberCollective& collective) {
    return {collective.contribution.group->name_hash, collective.contribution.name};
}

MemberCollectiveHeader MemberCollectives::header_of(const MemberCollective& collective) {
    return {collective.contribution.group->name_hash, collective.epoch, collective.round,
            collective.leader, collective.contribution.name};
}

MemberCollectives::MemberCollective* MemberCollectives::find(const Key& key) {
    const auto at = collectives_.find(key);
    return at == collectives_.end() ? nullptr : at->second.get();
}

MemberCollectives::MemberCollective* MemberCollectives::find(const Key& key, std::uint64_t round) {
    MemberCollective* const collective = find(key);
    return collective && collective->round == round ? collective : nullptr;
}

// ---- joining -----------------------------------------------------------------------------------

void MemberCollectives::join(Contribution contribution) {
    host_.in_turn([&] { join_in_turn(std::move(contribution)); });
}

void MemberCollectives::join_in_turn(Contribution contribution) {
    const Key key{contribution.group->name_hash, contribution.name};
    const auto refuse = [&](const Status& why) {
        host_.complete_later(contribution.options, failed_outcome(*contribution.group, why),
                             std::move(contribution.done));
    };
    if (Status status = validate_contribution(contribution, host_); !status.ok())
        return refuse(status);
    const Result<std::uint32_t> leader =
        choose_leader(contribution, contribution.group->view_here());
    if (!leader) {
        // The leader waits for this member, which does not join.
        if (pending_gathers_.count(key)) fail_gather(key, rejected(leader.status()));
        return refuse(leader.status());
    }
    if (find(key)) {
        return refuse(fail(
            Code::failed_precondition,
            "this rank takes part in a member collective '" + contribution.name + "' already"));
    }
    MemberCollective& collective =
        *collectives_.emplace(key, std::make_unique<MemberCollective>()).first->second;
    collective.owner = this;
    collective.contribution = std::move(contribution);
    collective.fire = [](base::Timer& timer, TimePoint now) {
        auto& due = static_cast<MemberCollective&>(timer);
        due.owner->on_timer(due, now);
    };
    if (core::CallScope* const scope = host_.scope_of(collective.contribution.options)) {
        collective.scope_hook.of = &collective;
        collective.scope_hook.cancel = [](core::ScopedOperation& in) {
            const MemberCollective& ended = *static_cast<MemberCollective::ScopeHook&>(in).of;
            ended.owner->cancel(ended.contribution.id);
        };
        scope->add(collective.scope_hook);
    }
    follow_leader(collective, *leader);
}

// Follows that leader, by the local view, unless the gather of another leader with a later view
// waits.
void MemberCollectives::follow_leader(MemberCollective& collective, std::uint32_t leader) {
    const Key key = key_of(collective);
    collective.view = collective.contribution.group->view_here();
    collective.epoch = collective.view->epoch();
    collective.leader = leader;
    collective.is_leader = false;
    arm_timer(collective, host_.context().now());
    const auto gather = pending_gathers_.find(key);
    if (gather != pending_gathers_.end()) {
        const MemberCollectiveHeader of = gather->second.of;
        const bool is_mine =
            leader != *collective.contribution.group->own_rank && of.leader == leader;
        if (is_mine || of.epoch > collective.epoch) {
            const PendingGather first = std::move(gather->second);
            pending_gathers_.erase(gather);
            return contribute(collective, first.of, *first.call);
        }
        fail_gather(key, rejected(Code::aborted, leader_of(leader) +
                                                     " of the member collective has a later view"));
    }
    if (leader == *collective.contribution.group->own_rank) lead(collective);
}

void MemberCollectives::contribute(MemberCollective& collective, const MemberCollectiveHeader& to,
                                   Call& call) {
    WEFT_ASSERT(!collective.is_leader || to.round == collective.round);
    collective.leader = to.leader;
    collective.epoch = to.epoch;
    collective.round = to.round;
    call.reply(collective.contribution.value);
}

void MemberCollectives::lead(MemberCollective& collective) {
    const Key key = key_of(collective);
    const TimePoint now = host_.context().now();
    WEFT_ASSERT(!collective.is_leader && collective.round == 0);
    collective.is_leader = true;
    collective.round = host_.context().random().next() | 1;
    collective.current = host_.new_id();
    CollectiveRequest request;
    request.id = collective.current;
    request.group = collective.contribution.group;
    request.view = collective.view;
    request.method = gather_method.hash;
    request.options = collective.contribution.options;
    request.options.detached = true;
    request.include = collective.contribution.include;
    request.exclude = collective.contribution.exclude;
    // The rest of the time is for the release, which also reports the members that did not join.
    request.deadline = share_of(now, collective.contribution.deadline);
    request.body = encode(header_of(collective));
    request.delivers_rest = false;  // A member that did not join may never do so.
    request.done = [this, key, round = collective.round](GroupOutcome outcome) {
        release(key, round, std::move(outcome));
    };
    origin_.start(std::move(request));
}

// All members get the same, the leader as well: a result too large for a message fails for all.
static GroupOutcome too_large_outcome(const GroupOutcome& outcome) {
    GroupOutcome refused;
    refused.status =
        fail(Code::resource_exhausted, "the values of all members do not fit into a message")
            .with_effect(Effect::applied)
            .with_stage(Stage::executing);
    refused.epoch = outcome.epoch;
    return refused;
}

static bool all_joined(const GroupOutcome& outcome) {
    return !outcome.ranks.empty() &&
           std::all_of(outcome.ranks.begin(), outcome.ranks.end(),
                       [](const RankOutcome& one) { return one.status.ok(); });
}

// All values are gathered: releases all members, the leader last.
void MemberCollectives::release(const Key& key, std::uint64_t round, GroupOutcome outcome) {
    MemberCollective* const collective = find(key, round);
    if (!collective) return;
    if (collective->cancelled) {
        outcome.status = fail(Code::cancelled, leader_of(collective->leader) + " was cancelled")
                             .with_effect(Effect::unknown);
    }
    const Contribution& contribution = collective->contribution;
    const bool is_merged = contribution.options.reduction.operation != Reduction::Operation::none;
    // A request has more overhead than a reply.
    static constexpr std::size_t around = 4096;
    const std::size_t ranges = contribution.include ? contribution.include->ranges().size() : 0;
    const std::size_t room = host_.reply_bytes_max();
    const std::size_t taken = around + ranges * sizeof(RankSet::Range);
    std::optional<std::vector<std::byte>> bytes =
        encode_outcome(outcome, is_merged, room - std::min(room, taken));
    if (!bytes) bytes = encode_outcome(too_large_outcome(outcome), false, around);
    Result<GroupOutcome> decoded = decode_outcome(*bytes, *collective->view);
    WEFT_ASSERT(decoded.ok());
    CollectiveRequest request;
    request.id = host_.new_id();
    // A member that did not join was perhaps not reached, and can't find the outcome by itself.
    collective->current = all_joined(outcome) ? request.id : 0;
    request.group = contribution.group;
    request.view = collective->view;
    request.method = release_method.hash;
    // A gather that could not begin perhaps had an impossible tree.
    if (!outcome.ranks.empty()) request.options.topology = contribution.options.topology;
    request.options.priority = contribution.options.priority;
    request.options.detached = true;
    request.include = contribution.include;
    request.exclude = contribution.exclude;
    request.deadline = share_of(host_.context().now(), contribution.deadline);
    request.body = encode(header_of(*collective));
    request.body.insert(request.body.end(), bytes->begin(), bytes->end());
    request.done = [this, key, round, bytes = *std::move(bytes),
                    all = std::make_shared<GroupOutcome>(*std::move(decoded))](
                       const GroupOutcome& released) mutable {
        keep_undelivered(key, round, released, std::move(bytes));
        if (find(key, round)) end(key, std::move(*all));
    };
    origin_.start(std::move(request));
}

// A live member that missed the release finds the outcome by a probe.
void MemberCollectives::keep_undelivered(const Key& key, std::uint64_t round,
                                         const GroupOutcome& released,
                                         std::vector<std::byte> outcome) {
    const bool has_missed = released.ranks.empty() ||
                            std::any_of(released.ranks.begin(), released.ranks.end(),
                                        [](const RankOutcome& one) { return !one.status.ok(); });
    if (!has_missed) return;
    const TimePoint now = host_.context().clock().now();
    undelivered_.push_back({key, round, std::move(outcome), now + probe_expected_for});
    undelivered_bytes_ += undelivered_.back().outcome.size();
    // Always keeps the last one.
    while (undelivered_.size() > 1 &&
           (undelivered_.size() > undelivered_max || undelivered_bytes_ > undelivered_bytes_max)) {
        WEFT_ASSERT(undelivered_bytes_ >= undelivered_.front().outcome.size());
        undelivered_bytes_ -= undelivered_.front().outcome.size();
        undelivered_.pop_front();
    }
}

// ---- timers and views --------------------------------------------------------------------------

void MemberCollectives::arm_timer(MemberCollective& collective, TimePoint now) {
    const TimePoint probe_at = collective.is_leader ? never : now + probe_interval;
    host_.context().timers().cancel(collective);
    host_.context().timers().arm(collective, std::min(collective.contribution.deadline, probe_at));
}

void MemberCollectives::on_timer(MemberCollective& collective, TimePoint now) {
    if (now >= collective.contribution.deadline) {
        return end(key_of(collective),
                   fail(Code::deadline_exceeded,
                        collective.round != 0
                            ? "the member collective did not complete before its deadline"
                            : leader_of(collective.leader) + " did not join before the deadline")
                       .with_effect(Effect::unknown));
    }
    arm_timer(collective, now);
    if (!collective.is_leader && collective.probe_id == 0) probe(collective);
}

void MemberCollectives::probe(MemberCollective& collective) {
    Result<Channel> channel = collective.contribution.group->channel(collective.leader);
    if (!channel) return;  // A leader by a later view, which is not known here yet.
    const std::uint64_t id = next_probe_++;
    CallOptions options;
    options.detached = true;
    options.priority = collective.contribution.options.priority;
    options.timeout = probe_timeout;
    channel->call(
        probe_method, encode(header_of(collective)), options,
        [this, key = key_of(collective), probe = id, leader = collective.leader,
         round = collective.round, held = *channel](const Status& status, ByteView reply) {
            MemberCollective* const target = find(key);
            if (!target || target->probe_id != probe) return;  // It has ended.
            target->probe_id = 0;
            // A reply of another leader, or from before the gather, is stale.
            if (target->is_leader || target->leader != leader) return;
            on_probe_reply(*target, status, reply, round);
        });
    WEFT_ASSERT(collective.probe_id == 0 && !collective.is_leader);
    collective.probe_id = id;
}

void MemberCollectives::on_probe_reply(MemberCollective& collective, const Status& status,
                                       ByteView reply, std::uint64_t round) {
    const Key key = key_of(collective);
    // A leader that is alive may be too busy to reply.
    if (status.code() == Code::unavailable) {
        Status gone = Status(status).in(leader_of(collective.leader) + " disconnected");
        // The leader may have merged this rank's value, and reported it to others.
        if (collective.round != 0) {
            gone = std::move(gone).with_effect(Effect::unknown).with_stage(Stage::executing);
        }
        return end(key, gone);
    }
    if (!status.ok()) return;
    const Result<ProbeReply> probe_reply = decode_probe_reply(reply);
    if (!probe_reply) return;
    const bool is_over = round != 0 && round == collective.round;
    if (is_over && probe_reply->state == ProbeReply::State::completed) {
        Result<GroupOutcome> outcome =
            decode_outcome(probe_reply->outcome, collective.contribution.group->view_here());
        if (outcome) return on_result(key, *std::move(outcome));
    }
    if (is_over && probe_reply->state >= ProbeReply::State::completed) {
        end(key, fail(Code::unavailable,
                      leader_of(collective.leader) +
                          " does not have this round any more, its outcome is unknown")
                     .with_effect(Effect::unknown));
    }
}

void MemberCollectives::on_view(const GroupState& group) {
    std::vector<Key> keys;
    for (const auto& [key, collective] : collectives_) {
        if (collective->contribution.group.get() == &group && !collective->is_leader)
            keys.push_back(key);
    }
    const GroupView view = group.view_here();
    if (group.own_rank && !view.find(*group.own_rank)) fail_gathers_of(group.name_hash);
    for (const Key& key : keys) {
        MemberCollective* const collective = find(key);
        if (!collective || collective->epoch >= view.epoch()) continue;
        if (collective->round == 0) {
            const Result<std::uint32_t> leader = choose_leader(collective->contribution, view);
            if (!leader) {
                end(key, leader.status());
            } else {
                follow_leader(*collective, *leader);
            }
            continue;
        }
        const Member* const now = view.find(collective->leader);
        const Member* const before = collective->view->find(collective->leader);
        if (now && (!before || before->incarnation == now->incarnation)) continue;
        end(key, fail(Code::unavailable, leader_of(collective->leader) + " has left the group")
                     .with_effect(Effect::unknown));
    }
}

// ---- completion --------------------------------------------------------------------------------

// Completes with the leader's result. A rank that was restarted may have been gathered twice: then
// the value of its earlier incarnation counts, and this one did not take part.
void MemberCollectives::on_result(const Key& key, GroupOutcome outcome) {
    const Contribution& contribution = collectives_.at(key)->contribution;
    const bool is_list = contribution.options.reduction.operation == Reduction::Operation::none;
    const auto own = std::lower_bound(
        outcome.ranks.begin(), outcome.ranks.end(), *contribution.group->own_rank,
        [](const RankOutcome& one, std::uint32_t rank) { return one.rank < rank; });
    const bool is_there = own != outcome.ranks.end() && own->rank == *contribution.group->own_rank;
    if (is_list && is_there && own->status.ok() && own->reply != contribution.value) {
        return end(key, fail(Code::aborted,
                             "the member collective was one of an earlier incarnation of this rank")
                            .with_effect(Effect::unknown));
    }
    end(key, std::move(outcome));
}

bool MemberCollectives::cancel(CollectiveId id) {
    const auto at = std::find_if(collectives_.begin(), collectives_.end(), [&](const auto& one) {
        return one.second->contribution.id == id;
    });
    if (at == collectives_.end()) return false;
    MemberCollective& collective = *at->second;
    if (collective.is_leader) {
        collective.cancelled = true;
        if (collective.current != 0) origin_.cancel(collective.current);
    } else {
        end(Key(at->first), fail(Code::cancelled, "the caller cancelled the member collective")
                                .with_effect(Effect::unknown));
    }
    return true;
}

void MemberCollectives::end(const Key& key, const Status& why) {
    end(key, failed_outcome(*collectives_.at(key)->contribution.group, why));
}

void MemberCollectives::end(const Key& key, GroupOutcome outcome) {
    WEFT_ASSERT(find(key));
    std::unique_ptr<MemberCollective> collective = std::move(collectives_.extract(key).mapped());
    host_.context().timers().cancel(*collective);
    host_.context().post([&context = host_.context(), collective = std::move(collective),
                          outcome = std::move(outcome)]() mutable {
        const core::Context::ScopeGuard scope_guard(context, collective->scope_hook.scope);
        collective->scope_hook.detach();
        GroupCompletion done = std::move(collective->contribution.done);
        done(std::move(outcome));
    });
}

}  // namespace weft::coll
