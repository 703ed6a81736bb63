#include "coll/meetings.h"

#include <algorithm>

#include "base/assert.h"
#include "base/codec.h"
#include "coll/engine.h"

namespace weft::coll {

namespace {

constexpr MethodId gather_method("weft.Group/Gather");
constexpr MethodId release_method("weft.Group/Release");
constexpr MethodId look_method("weft.Group/Look");

// Of each of them: hash of the group u64, round u64, the name (u16 + bytes); then, of a release,
// epoch u64, code u8, effect u8, stage u8, 0 u8, text (u16 + bytes), and the outcomes as an answer
// whose positions are ranks.
struct Header {
    std::uint64_t group = 0;
    std::uint64_t round = 0;
    std::string_view name;
};
constexpr std::size_t front_bytes = 8 + 8 + 2;
constexpr std::size_t reason_bytes_max = 256;

void put(base::Writer& out, const Header& header) {
    out.put(header.group);
    out.put(header.round);
    out.put_text(header.name);
}

Header take(base::Reader& in) {
    Header header;
    header.group = in.take<std::uint64_t>();
    header.round = in.take<std::uint64_t>();
    header.name = in.take_text();
    return header;
}

std::vector<std::byte> encode(const Header& header) {
    std::vector<std::byte> bytes(front_bytes + header.name.size());
    base::Writer out(bytes);
    put(out, header);
    return bytes;
}

Answer as_answer(const GroupOutcome& outcome, bool is_merged) {
    Answer answer;
    for (const RankOutcome& one : outcome.ranks) {
        if (!one.status.ok() || !one.reply.empty()) {
            answer.outcomes.push_back({one.rank, one.status, one.reply});
        } else if (!answer.ok.empty() && answer.ok.back().last == one.rank) {
            ++answer.ok.back().last;
        } else {
            answer.ok.push_back({one.rank, one.rank + 1});
        }
    }
    answer.has_value = is_merged;
    answer.value = outcome.merged;
    return answer;
}

std::vector<std::byte> encode(const Header& header, const GroupOutcome& outcome, bool is_merged,
                              std::size_t bytes_max) {
    const std::string_view text = outcome.status.text().substr(0, reason_bytes_max);
    const std::size_t front = front_bytes + header.name.size() + 8 + 4 + 2 + text.size();
    const std::vector<std::byte> rest =
        encode_answer(as_answer(outcome, is_merged), bytes_max - std::min(bytes_max, front));
    std::vector<std::byte> bytes(front + rest.size());
    base::Writer out(bytes);
    put(out, header);
    out.put(outcome.epoch);
    out.put(static_cast<std::uint8_t>(outcome.status.code()));
    out.put(static_cast<std::uint8_t>(outcome.status.effect()));
    out.put(static_cast<std::uint8_t>(outcome.status.stage()));
    out.put(std::uint8_t{0});
    out.put_text(text);
    out.put_bytes(rest);
    return bytes;
}

Result<GroupOutcome> take_outcome(base::Reader& in, const GroupView& view) {
    const Status malformed = fail(Code::invalid_argument, "a malformed end of a meeting");
    GroupOutcome outcome;
    outcome.epoch = in.take<std::uint64_t>();
    const auto code = in.take<std::uint8_t>();
    const auto effect = in.take<std::uint8_t>();
    const auto stage = in.take<std::uint8_t>();
    in.take<std::uint8_t>();
    const std::string_view text = in.take_text();
    if (!in.ok() || code > code_max || effect > 2 || stage > 4) return malformed;
    if (code != 0) {
        outcome.status = Status(static_cast<Code>(code), std::string(text))
                             .with_effect(static_cast<Effect>(effect))
                             .with_stage(static_cast<Stage>(stage));
    }
    Result<Answer> answer = decode_answer(in.take_bytes(in.left()));
    if (!answer) return malformed;
    const auto add = [&](std::uint32_t rank, Status status, std::vector<std::byte> reply) {
        const Member* const member = view.find(rank);
        outcome.ranks.push_back(
            {rank, std::move(status), std::move(reply), member ? member->incarnation : 0});
    };
    for (const Interval& one : answer->ok) {
        if (outcome.ranks.size() + one.size() > GroupView::members_max) return malformed;
        for (std::uint32_t rank = one.first; rank < one.last; ++rank) {
            add(rank, Status().with_effect(Effect::applied).with_stage(Stage::executing), {});
        }
    }
    for (Outcome& one : answer->outcomes) {
        add(one.position, std::move(one.status), std::move(one.reply));
    }
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.merged = std::move(answer->value);
    return outcome;
}

Status declined(std::string why) { return rejected(Code::failed_precondition, std::move(why)); }

}  // namespace

void Meetings::serve() {
    const auto add = [this](const MethodId& method, void (Meetings::*handle)(Call), bool is_one) {
        const Status status = engine_.server().add_method(
            method.name, [this, handle](Call call) { (this->*handle)(std::move(call)); },
            {.collective = !is_one});
        WEFT_ASSERT(status.ok());
    };
    add(gather_method, &Meetings::on_gather, false);
    add(release_method, &Meetings::on_release, false);
    add(look_method, &Meetings::on_look, true);
}

void Meetings::shutdown() {
    early_.clear();
    while (!meetings_.empty()) {
        end(Key(meetings_.begin()->first),
            fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown));
    }
}

// ---- coming ------------------------------------------------------------------------------------

// The lowest rank that takes part; errors: nobody does, or not this one.
static Result<std::uint32_t> leader_of(const Meetings::Coming& coming) {
    const GroupView& view = coming.group->view_here();
    std::optional<std::uint32_t> leader;
    bool is_in = false;
    for (const Member& member : view.members()) {
        const bool is_named =
            coming.include ? coming.include->contains(member.rank) : !member.draining;
        if (!is_named || coming.exclude.contains(member.rank)) continue;
        if (!leader) leader = member.rank;
        is_in |= member.rank == coming.group->own_rank;
    }
    if (!is_in) return fail(Code::failed_precondition, "this rank takes no part in the meeting");
    return *leader;
}

void Meetings::come(Coming coming) {
    const Key key{coming.group->name_hash, coming.name};
    const auto refuse = [&](const Status& why) {
        engine_.context().post(
            [outcome = failed_outcome(*coming.group, why),
             done = std::move(coming.done)]() mutable { done(std::move(outcome)); });
    };
    if (coming.name.size() > name_bytes_max) {
        return refuse(fail(Code::invalid_argument, "a meeting's name has 256 bytes at most"));
    }
    if (coming.options.reduction.operation == Reduction::Operation::method) {
        return refuse(fail(Code::invalid_argument, "a meeting merges by no method"));
    }
    if (!coming.group->own_rank) {
        return refuse(fail(Code::failed_precondition, "only members meet"));
    }
    const Result<std::uint32_t> leader = leader_of(coming);
    if (!leader) return refuse(leader.status());
    if (meetings_.count(key)) {
        return refuse(
            fail(Code::failed_precondition, "a meeting '" + coming.name + "' is on here already"));
    }
    auto made = std::make_unique<Meeting>();
    Meeting& meeting = *made;
    meeting.meetings = this;
    meeting.coming = std::move(coming);
    meeting.leader = *leader;
    meeting.leads = *leader == *meeting.coming.group->own_rank;
    meeting.fire = [](base::Timer& timer, TimePoint now) {
        auto& due = static_cast<Meeting&>(timer);
        due.meetings->on_time(due, now);
    };
    meetings_.emplace(key, std::move(made));
    wait(meeting, engine_.context().now());
    if (meeting.leads) return lead(key, meeting);
    const auto early = early_.find(key);
    if (early == early_.end()) return;
    const Early first = std::move(early->second);
    early_.erase(early);
    give(meeting, first.round, *first.call);
}

void Meetings::give(Meeting& meeting, std::uint64_t round, Call& call) {
    meeting.round = round;
    call.reply(meeting.coming.value);
}

void Meetings::lead(const Key& key, Meeting& meeting) {
    meeting.round = next_round_++;
    const Coming& coming = meeting.coming;
    Engine::Beginning beginning;
    beginning.group = coming.group;
    beginning.method = gather_method.hash;
    beginning.options = coming.options;
    beginning.options.detached = true;
    beginning.include = coming.include;
    beginning.exclude = coming.exclude;
    beginning.deadline = coming.deadline;
    beginning.body = encode({key.first, meeting.round, key.second});
    beginning.done = [this, key, round = meeting.round](GroupOutcome outcome) {
        release(key, round, std::move(outcome));
    };
    engine_.start(std::move(beginning));
}

// All is there: everybody is told, and the leader last.
void Meetings::release(const Key& key, std::uint64_t round, GroupOutcome outcome) {
    Meeting* const meeting = find(key, round);
    if (!meeting) return;
    const Coming& coming = meeting->coming;
    const bool is_merged = coming.options.reduction.operation != Reduction::Operation::none;
    Engine::Beginning beginning;
    beginning.group = coming.group;
    beginning.method = release_method.hash;
    beginning.options.topology = coming.options.topology;
    beginning.options.detached = true;
    beginning.include = coming.include;
    beginning.exclude = coming.exclude;
    beginning.deadline = coming.deadline;
    beginning.body =
        encode({key.first, round, key.second}, outcome, is_merged, engine_.reply_bytes_max());
    beginning.done = [this, key, round,
                      outcome =
                          std::make_shared<GroupOutcome>(std::move(outcome))](const GroupOutcome&) {
        if (find(key, round)) end(key, std::move(*outcome));
    };
    engine_.start(std::move(beginning));
}

Meetings::Meeting* Meetings::find(const Key& key, std::uint64_t round) {
    const auto at = meetings_.find(key);
    return at == meetings_.end() || at->second->round != round ? nullptr : at->second.get();
}

// ---- what members are asked --------------------------------------------------------------------

void Meetings::on_gather(Call call) {
    base::Reader in(call.request());
    const Header header = take(in);
    if (!in.ok() || header.round == 0 || header.name.size() > name_bytes_max) {
        return call.fail(rejected(Code::invalid_argument, "a malformed question of a meeting"));
    }
    Key key{header.group, std::string(header.name)};
    const auto at = meetings_.find(key);
    if (at != meetings_.end()) {
        Meeting& meeting = *at->second;
        if (meeting.round == 0 || (meeting.leads && meeting.round == header.round)) {
            return give(meeting, header.round, call);
        }
        // Its end did not get here, and the others meet again.
        end(key, fail(Code::aborted, "the meeting ended without this rank")
                     .with_effect(Effect::unknown));
    }
    if (early_.size() == early_most || early_.count(key)) {
        return call.fail(rejected(Code::resource_exhausted, "too many meetings wait here"));
    }
    call.on_cancel([this, key, round = header.round] {
        const auto early = early_.find(key);
        if (early != early_.end() && early->second.round == round) early_.erase(early);
    });
    early_[key] = {header.round, std::make_shared<Call>(std::move(call))};
}

void Meetings::on_release(Call call) {
    base::Reader in(call.request());
    const Header header = take(in);
    const Key key{header.group, std::string(header.name)};
    Meeting* const meeting = in.ok() ? find(key, header.round) : nullptr;
    if (!meeting) return call.fail(declined("no such meeting is on here"));
    Result<GroupOutcome> outcome = take_outcome(in, meeting->coming.group->view_here());
    if (!outcome) return call.fail(rejected(outcome.status()));
    call.reply({});
    // The leader's own ends when all the others have been told.
    if (!meeting->leads) end(key, *std::move(outcome));
}

// Whether a meeting is on: its round, 0 before the leader has come.
void Meetings::on_look(Call call) {
    base::Reader in(call.request());
    const Header header = take(in);
    if (!in.ok()) {
        return call.fail(rejected(Code::invalid_argument, "a malformed question of a meeting"));
    }
    const auto at = meetings_.find({header.group, std::string(header.name)});
    const std::uint64_t round = at == meetings_.end() ? 0 : at->second->round;
    call.reply({reinterpret_cast<const std::byte*>(&round), sizeof round});
}

// ---- time --------------------------------------------------------------------------------------

void Meetings::wait(Meeting& meeting, TimePoint now) {
    const TimePoint look_at = meeting.leads ? never : now + look_every;
    engine_.context().timers().arm(meeting, std::min(meeting.coming.deadline, look_at));
}

void Meetings::on_time(Meeting& meeting, TimePoint now) {
    const Key key{meeting.coming.group->name_hash, meeting.coming.name};
    if (now >= meeting.coming.deadline) {
        const std::string leader = "rank " + std::to_string(meeting.leader);
        return end(key, fail(Code::deadline_exceeded,
                             meeting.round != 0 ? "the meeting did not end in time"
                                                : leader + ", who leads, did not come in time")
                            .with_effect(Effect::unknown));
    }
    wait(meeting, now);
    if (!meeting.looks) look(key, meeting);
}

void Meetings::look(const Key& key, Meeting& meeting) {
    Result<Channel> channel = meeting.coming.group->channel(meeting.leader);
    const std::string who = "rank " + std::to_string(meeting.leader) + ", who leads: ";
    if (!channel) return end(key, Status(channel.status()).in(who + "unreachable"));
    meeting.looks = true;
    CallOptions options;
    options.detached = true;
    const std::uint64_t round = meeting.round;
    channel->call(look_method, encode({key.first, round, key.second}), options,
                  [this, key, round, who](const Status& status, ByteView reply) {
                      Meeting* const waits = find(key, round);
                      if (!waits) return;  // It has ended, or began, meanwhile.
                      waits->looks = false;
                      if (!status.ok()) return end(key, Status(status).in(who + "gone"));
                      const auto there = reply.size() == sizeof round
                                             ? base::load<std::uint64_t>(reply.data())
                                             : 0;
                      if (round == 0 || there == round) return;
                      end(key, fail(Code::unavailable, who + "he knows of no such meeting any more")
                                   .with_effect(Effect::unknown));
                  });
}

void Meetings::end(const Key& key, const Status& why) {
    end(key, failed_outcome(*meetings_.at(key)->coming.group, why));
}

void Meetings::end(const Key& key, GroupOutcome outcome) {
    auto node = meetings_.extract(key);
    engine_.context().timers().cancel(*node.mapped());
    engine_.context().post([done = std::move(node.mapped()->coming.done),
                            outcome = std::move(outcome)]() mutable { done(std::move(outcome)); });
}

}  // namespace weft::coll
