#include "coll/meetings.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/engine.h"

namespace weft::coll {

namespace {

constexpr MethodId gather_method("weft.Group/Gather");
constexpr MethodId release_method("weft.Group/Release");
constexpr MethodId look_method("weft.Group/Look");

// The lowest rank that takes part; errors: nobody does, or not this one, or they can't meet so.
Result<std::uint32_t> leader_of(const Meetings::Coming& coming, const GroupView& view) {
    std::optional<std::uint32_t> leader;
    bool is_in = false;
    std::uint32_t ranks = 0;
    for (const Member& member : view.members()) {
        if (!takes_part(member, coming.include, coming.exclude)) continue;
        if (!leader) leader = member.rank;
        ++ranks;
        is_in |= member.rank == coming.group->own_rank;
    }
    if (!is_in)
        return fail(
            Code::failed_precondition,
            "this rank takes no part in the meeting: it is draining, not included or excluded");
    if (Status status = judge(coming.include); !status.ok()) return status;
    const std::size_t named = coming.include ? coming.include->size() : 0;
    // By each member, since all have the same options: else the leader alone would know.
    const Tree tree = tree_of(coming.options.topology, coming.group->costs, ranks, 0);
    const std::size_t strangers = named > ranks ? named - ranks : 0;
    if (Status status = judge(coming.options, tree, ranks, strangers, true); !status.ok()) {
        return status;
    }
    return *leader;
}

Status judge_coming(const Meetings::Coming& coming) {
    if (coming.name.size() > Gathering::name_bytes_max) {
        return fail(Code::invalid_argument,
                    "the name of a meeting has " + std::to_string(coming.name.size()) +
                        " bytes: expected at most " + std::to_string(Gathering::name_bytes_max));
    }
    if (Status status = judge_ranges(coming.options); !status.ok()) return status;
    if (coming.options.reduction.operation == Reduction::Operation::method) {
        return fail(Code::invalid_argument,
                    "Reduction::Operation::method in a meeting, which has none: expected another, "
                    "or none for a list");
    }
    if (!coming.group->own_rank)
        return fail(Code::failed_precondition,
                    "only members of the group meet: Runtime::join() makes this runtime one");
    if (coming.group->engine.context().is_closed()) {
        return fail(Code::cancelled, "the runtime is shutting down");
    }
    if (coming.group->engine.context().clock().now() >= coming.deadline) {
        return fail(Code::deadline_exceeded, "the meeting's time was over before this rank came");
    }
    const core::Scope* const scope = coming.group->engine.scope_of(coming.options);
    if (scope && scope->cancelled) return fail(Code::cancelled, core::scope_cancelled_text);
    return {};
}

}  // namespace

std::string Meetings::who_leads(std::uint32_t leader) {
    return "rank " + std::to_string(leader) + ", who leads";
}

void Meetings::serve() {
    const auto handler = [this](void (Meetings::*handle)(Call)) {
        return [this, handle](Call call) { (this->*handle)(std::move(call)); };
    };
    rpc::Server& server = engine_.server();
    for (const Status& status :
         {server.add_method(gather_method.name, handler(&Meetings::on_gather),
                            {.collective = true}),
          server.add_method(release_method.name, handler(&Meetings::on_release),
                            {.collective = true}),
          server.add_lasting_method(look_method.name, handler(&Meetings::on_look))}) {
        WEFT_ASSERT(status.ok());
    }
}

void Meetings::drain() {
    while (!early_.empty()) {
        drop_early(Key(early_.begin()->first),
                   rejected(Code::unavailable, "the runtime is shutting down"));
    }
}

std::size_t Meetings::owed(TimePoint now) const {
    return static_cast<std::size_t>(std::count_if(
        untold_.begin(), untold_.end(), [&](const Untold& one) { return now < one.owed_until; }));
}

void Meetings::shutdown() {
    drain();
    while (!meetings_.empty()) {
        end(Key(meetings_.begin()->first),
            fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown));
    }
}

Meetings::Key Meetings::key_of(const Meeting& meeting) {
    return {meeting.coming.group->name_hash, meeting.coming.name};
}

Gathering Meetings::gathering_of(const Meeting& meeting) {
    return {meeting.coming.group->name_hash, meeting.epoch, meeting.round, meeting.leader,
            meeting.coming.name};
}

Meetings::Meeting* Meetings::find(const Key& key) {
    const auto at = meetings_.find(key);
    return at == meetings_.end() ? nullptr : at->second.get();
}

Meetings::Meeting* Meetings::find(const Key& key, std::uint64_t round) {
    Meeting* const meeting = find(key);
    return meeting && meeting->round == round ? meeting : nullptr;
}

// ---- coming ------------------------------------------------------------------------------------

void Meetings::come(Coming coming) {
    engine_.in_turn([&] { come_in_turn(std::move(coming)); });
}

void Meetings::come_in_turn(Coming coming) {
    const Key key{coming.group->name_hash, coming.name};
    const auto refuse = [&](const Status& why) {
        engine_.refuse(*coming.group, coming.options, why, std::move(coming.done));
    };
    if (Status status = judge_coming(coming); !status.ok()) return refuse(status);
    const Result<std::uint32_t> leader = leader_of(coming, coming.group->view_here());
    if (!leader) {
        // Whoever gathers here waits for one who does not come.
        if (early_.count(key)) drop_early(key, rejected(leader.status()));
        return refuse(leader.status());
    }
    if (find(key)) {
        return refuse(
            fail(Code::failed_precondition, "a meeting '" + coming.name + "' is on here already"));
    }
    Meeting& meeting = *meetings_.emplace(key, std::make_unique<Meeting>()).first->second;
    meeting.meetings = this;
    meeting.coming = std::move(coming);
    meeting.fire = [](base::Timer& timer, TimePoint now) {
        auto& due = static_cast<Meeting&>(timer);
        due.meetings->on_time(due, now);
    };
    if (core::Scope* const scope = engine_.scope_of(meeting.coming.options)) {
        meeting.made_in.of = &meeting;
        meeting.made_in.cancel = [](core::InScope& in) {
            const Meeting& ended = *static_cast<Meeting::MadeIn&>(in).of;
            ended.meetings->cancel(ended.coming.id);
        };
        scope->add(meeting.made_in);
    }
    follow(meeting, *leader);
}

// That leader, by the view that there is here; unless another one of a later view has asked.
void Meetings::follow(Meeting& meeting, std::uint32_t leader) {
    const Key key = key_of(meeting);
    meeting.view = meeting.coming.group->view_here();
    meeting.epoch = meeting.view->epoch();
    meeting.leader = leader;
    meeting.leads = false;
    wait(meeting, engine_.context().now());
    const auto early = early_.find(key);
    if (early != early_.end()) {
        const Gathering of = early->second.of;
        const bool is_mine = leader != *meeting.coming.group->own_rank && of.leader == leader;
        if (is_mine || of.epoch > meeting.epoch) {
            const Early first = std::move(early->second);
            early_.erase(early);
            return give(meeting, first.of, *first.call);
        }
        drop_early(key, rejected(Code::aborted,
                                 who_leads(leader) + " this meeting, does so by a later view"));
    }
    if (leader == *meeting.coming.group->own_rank) lead(meeting);
}

void Meetings::give(Meeting& meeting, const Gathering& to, Call& call) {
    meeting.leader = to.leader;
    meeting.epoch = to.epoch;
    meeting.round = to.round;
    call.reply(meeting.coming.value);
}

void Meetings::lead(Meeting& meeting) {
    const Key key = key_of(meeting);
    const TimePoint now = engine_.context().now();
    meeting.leads = true;
    meeting.round = engine_.context().random().next() | 1;
    meeting.under_way = engine_.new_id();
    Engine::Beginning beginning;
    beginning.id = meeting.under_way;
    beginning.group = meeting.coming.group;
    beginning.view = meeting.view;
    beginning.method = gather_method.hash;
    beginning.options = meeting.coming.options;
    beginning.options.detached = true;
    beginning.include = meeting.coming.include;
    beginning.exclude = meeting.coming.exclude;
    // What is left is for telling all who did not come.
    beginning.deadline = share_of(now, meeting.coming.deadline);
    beginning.body = encode(gathering_of(meeting));
    beginning.is_owed = false;  // A member that did not come may never do so.
    beginning.done = [this, key, round = meeting.round](GroupOutcome outcome) {
        release(key, round, std::move(outcome));
    };
    engine_.start(std::move(beginning));
}

// What all get, the leader as well: too much for a message is so for everybody.
static GroupOutcome too_large_outcome(const GroupOutcome& outcome) {
    GroupOutcome refused;
    refused.status = fail(Code::resource_exhausted,
                          "what the members brought to the meeting does not fit into a message")
                         .with_effect(Effect::applied)
                         .with_stage(Stage::executing);
    refused.epoch = outcome.epoch;
    return refused;
}

static bool all_have_come(const GroupOutcome& outcome) {
    return !outcome.ranks.empty() &&
           std::all_of(outcome.ranks.begin(), outcome.ranks.end(),
                       [](const RankOutcome& one) { return one.status.ok(); });
}

// All is there: everybody is told, and the leader last.
void Meetings::release(const Key& key, std::uint64_t round, GroupOutcome outcome) {
    Meeting* const meeting = find(key, round);
    if (!meeting) return;
    if (meeting->cancelled) {
        outcome.status = fail(Code::cancelled, who_leads(meeting->leader) + ", was cancelled")
                             .with_effect(Effect::unknown);
    }
    const Coming& coming = meeting->coming;
    const bool is_merged = coming.options.reduction.operation != Reduction::Operation::none;
    // A request has more around it than a reply.
    static constexpr std::size_t around = 4096;
    const std::size_t ranges = coming.include ? coming.include->ranges().size() : 0;
    const std::size_t room = engine_.reply_bytes_max();
    const std::size_t taken = around + ranges * sizeof(RankSet::Range);
    std::optional<std::vector<std::byte>> bytes =
        encode_outcome(outcome, is_merged, room - std::min(room, taken));
    if (!bytes) bytes = encode_outcome(too_large_outcome(outcome), false, around);
    Result<GroupOutcome> told = decode_outcome(*bytes, *meeting->view);
    WEFT_ASSERT(told.ok());
    Engine::Beginning beginning;
    beginning.id = engine_.new_id();
    // Who has not come, as he was not reached, perhaps, would not find it by himself.
    meeting->under_way = all_have_come(outcome) ? beginning.id : 0;
    beginning.group = coming.group;
    beginning.view = meeting->view;
    beginning.method = release_method.hash;
    // One that could not begin had no tree, perhaps.
    if (!outcome.ranks.empty()) beginning.options.topology = coming.options.topology;
    beginning.options.priority = coming.options.priority;
    beginning.options.detached = true;
    beginning.include = coming.include;
    beginning.exclude = coming.exclude;
    beginning.deadline = share_of(engine_.context().now(), coming.deadline);
    beginning.body = encode(gathering_of(*meeting));
    beginning.body.insert(beginning.body.end(), bytes->begin(), bytes->end());
    beginning.done = [this, key, round, bytes = *std::move(bytes),
                      all = std::make_shared<GroupOutcome>(*std::move(told))](
                         const GroupOutcome& released) mutable {
        keep_untold(key, round, released, std::move(bytes));
        if (find(key, round)) end(key, std::move(*all));
    };
    engine_.start(std::move(beginning));
}

// Those who live and were not told look, and find it.
void Meetings::keep_untold(const Key& key, std::uint64_t round, const GroupOutcome& told,
                           std::vector<std::byte> outcome) {
    const bool has_missed =
        told.ranks.empty() || std::any_of(told.ranks.begin(), told.ranks.end(),
                                          [](const RankOutcome& one) { return !one.status.ok(); });
    if (!has_missed) return;
    const TimePoint now = engine_.context().clock().now();
    untold_.push_back({key, round, std::move(outcome), now + owed_for});
    untold_bytes_ += untold_.back().outcome.size();
    // The last one always.
    while (untold_.size() > 1 &&
           (untold_.size() > untold_most || untold_bytes_ > untold_bytes_most)) {
        untold_bytes_ -= untold_.front().outcome.size();
        untold_.pop_front();
    }
}

// ---- time, and views ---------------------------------------------------------------------------

void Meetings::wait(Meeting& meeting, TimePoint now) {
    const TimePoint look_at = meeting.leads ? never : now + look_every;
    engine_.context().timers().cancel(meeting);
    engine_.context().timers().arm(meeting, std::min(meeting.coming.deadline, look_at));
}

void Meetings::on_time(Meeting& meeting, TimePoint now) {
    if (now >= meeting.coming.deadline) {
        return end(key_of(meeting),
                   fail(Code::deadline_exceeded,
                        meeting.round != 0 ? "the meeting did not end in time"
                                           : who_leads(meeting.leader) + ", did not come in time")
                       .with_effect(Effect::unknown));
    }
    wait(meeting, now);
    if (!meeting.leads && meeting.looking == 0) look(meeting);
}

void Meetings::look(Meeting& meeting) {
    Result<Channel> channel = meeting.coming.group->channel(meeting.leader);
    if (!channel) return;  // One of a later view, that is not known here yet.
    const std::uint64_t asked = next_look_++;
    CallOptions options;
    options.detached = true;
    options.priority = meeting.coming.options.priority;
    options.timeout = look_timeout;
    channel->call(look_method, encode(gathering_of(meeting)), options,
                  [this, key = key_of(meeting), look = asked, leader = meeting.leader,
                   round = meeting.round, held = *channel](const Status& status, ByteView reply) {
                      Meeting* const looks = find(key);
                      if (!looks || looks->looking != look) return;  // It has ended.
                      looks->looking = 0;
                      // What was seen of another one, or before he asked, says nothing of him now.
                      if (looks->leads || looks->leader != leader) return;
                      on_looked(*looks, status, reply, round);
                  });
    meeting.looking = asked;
}

void Meetings::on_looked(Meeting& meeting, const Status& status, ByteView reply,
                         std::uint64_t round) {
    const Key key = key_of(meeting);
    // One who is alive may be too busy to answer.
    if (status.code() == Code::unavailable) {
        Status gone = Status(status).in(who_leads(meeting.leader) + ": gone");
        // He may have merged, and told others, what this rank gave.
        if (meeting.round != 0) {
            gone = std::move(gone).with_effect(Effect::unknown).with_stage(Stage::executing);
        }
        return end(key, gone);
    }
    if (!status.ok()) return;
    const Result<Seen> seen = decode_seen(reply);
    if (!seen) return;
    const bool is_over = round != 0 && round == meeting.round;
    if (is_over && seen->state == Seen::State::over) {
        Result<GroupOutcome> outcome =
            decode_outcome(seen->outcome, meeting.coming.group->view_here());
        if (outcome) return take_end(key, *std::move(outcome));
    }
    if (is_over && seen->state >= Seen::State::over) {
        end(key, fail(Code::unavailable,
                      who_leads(meeting.leader) +
                          ": it has no such meeting any more, what came of it is not known here")
                     .with_effect(Effect::unknown));
    }
}

void Meetings::on_view(const GroupImpl& group) {
    std::vector<Key> keys;
    for (const auto& [key, meeting] : meetings_) {
        if (meeting->coming.group.get() == &group && !meeting->leads) keys.push_back(key);
    }
    const GroupView view = group.view_here();
    if (group.own_rank && !view.find(*group.own_rank)) drop_all_early(group.name_hash);
    for (const Key& key : keys) {
        Meeting* const meeting = find(key);
        if (!meeting || meeting->epoch >= view.epoch()) continue;
        if (meeting->round == 0) {
            const Result<std::uint32_t> leader = leader_of(meeting->coming, view);
            if (!leader) {
                end(key, leader.status());
            } else {
                follow(*meeting, *leader);
            }
            continue;
        }
        const Member* const now = view.find(meeting->leader);
        const Member* const before = meeting->view->find(meeting->leader);
        if (now && (!before || before->incarnation == now->incarnation)) continue;
        end(key, fail(Code::unavailable, who_leads(meeting->leader) + ", has left the group")
                     .with_effect(Effect::unknown));
    }
}

// ---- its end -----------------------------------------------------------------------------------

// What the leader says. A rank that was restarted may have been asked twice: then what it brought
// in its earlier life counts, and it was not in this meeting.
void Meetings::take_end(const Key& key, GroupOutcome outcome) {
    const Coming& coming = meetings_.at(key)->coming;
    const bool is_list = coming.options.reduction.operation == Reduction::Operation::none;
    const auto own = std::lower_bound(
        outcome.ranks.begin(), outcome.ranks.end(), *coming.group->own_rank,
        [](const RankOutcome& one, std::uint32_t rank) { return one.rank < rank; });
    const bool is_there = own != outcome.ranks.end() && own->rank == *coming.group->own_rank;
    if (is_list && is_there && own->status.ok() && own->reply != coming.value) {
        return end(key, fail(Code::aborted, "the meeting was that of an earlier life of this rank")
                            .with_effect(Effect::unknown));
    }
    end(key, std::move(outcome));
}

bool Meetings::cancel(CollectiveId id) {
    const auto at = std::find_if(meetings_.begin(), meetings_.end(),
                                 [&](const auto& one) { return one.second->coming.id == id; });
    if (at == meetings_.end()) return false;
    Meeting& meeting = *at->second;
    if (meeting.leads) {
        meeting.cancelled = true;
        if (meeting.under_way != 0) engine_.cancel(meeting.under_way);
    } else {
        end(Key(at->first),
            fail(Code::cancelled, "cancelled by the caller").with_effect(Effect::unknown));
    }
    return true;
}

void Meetings::end(const Key& key, const Status& why) {
    end(key, failed_outcome(*meetings_.at(key)->coming.group, why));
}

void Meetings::end(const Key& key, GroupOutcome outcome) {
    std::unique_ptr<Meeting> meeting = std::move(meetings_.extract(key).mapped());
    engine_.context().timers().cancel(*meeting);
    engine_.context().post(
        [&engine = engine_, meeting = std::move(meeting), outcome = std::move(outcome)]() mutable {
            const core::Context::Within within(engine.context(), meeting->made_in.scope);
            meeting->made_in.leave();
            GroupCompletion done = std::move(meeting->coming.done);
            done(std::move(outcome));
        });
}

}  // namespace weft::coll
