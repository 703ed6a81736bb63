// What members that meet are asked by their leader, and by each other.
#include <algorithm>

#include "coll/engine.h"
#include "coll/meetings.h"

namespace weft::coll {

static Status aborted(std::string why) { return rejected(Code::aborted, std::move(why)); }

void Meetings::on_gather(Call call) {
    ByteView rest;
    const Result<Gathering> asked = decode_gathering(call.request(), &rest);
    if (!asked) return call.fail(rejected(asked.status()));
    if (asked->round == 0) {
        return call.fail(rejected(Code::invalid_argument, "a gathering without a round"));
    }
    Key key{asked->group, std::string(asked->name)};
    Meeting* const meeting = find(key);
    if (!meeting) return hold(std::move(key), *asked, std::move(call));
    const bool is_later = asked->epoch > meeting->epoch;
    if (asked->leader == meeting->leader) {
        if (meeting->round == 0 || meeting->round == asked->round) {
            return give(*meeting, *asked, call);
        }
        if (!meeting->leads) {
            // Its end did not get here, and the others meet again: he still knows it, perhaps.
            hold(std::move(key), *asked, std::move(call));
            if (meeting->looking == 0) look(*meeting);
            return;
        }
    } else if (is_later) {
        if (meeting->round == 0) return give(*meeting, *asked, call);
        return hold(std::move(key), *asked, std::move(call));
    }
    call.fail(aborted(who_leads(meeting->leader) + " this meeting in epoch " +
                      std::to_string(meeting->epoch) + ", is not rank " +
                      std::to_string(asked->leader) + " in epoch " + std::to_string(asked->epoch)));
}

static std::string why_given_up() {
    return "gatherings wait here for their member, " + std::to_string(Pending<int>::most) +
           " at most and " + std::to_string(Pending<int>::of_peer) +
           " of one peer, and this one has given its place to a later one";
}

// Until its member comes, or a later one takes its place.
void Meetings::hold(Key key, const Gathering& gathering, Call call) {
    const auto held = early_.find(key);
    if (held != early_.end() && gathering.epoch < held->second.of.epoch) {
        return call.fail(aborted("a gathering of a later view waits here"));
    }
    if (held != early_.end()) {
        drop_early(key, aborted("another gathering has taken the place of this one"));
    }
    const Client client = engine_.client_of(call);
    if (const Key* oldest = pending_.gives_way_to(client.peer)) {
        drop_early(Key(*oldest), rejected(Code::resource_exhausted, why_given_up()));
    }
    Pending<Key>::Place place = pending_.add(client, key);
    call.on_cancel([this, key, round = gathering.round] {
        const auto early = early_.find(key);
        if (early != early_.end() && early->second.of.round == round) early_.erase(early);
    });
    // Made first: none is held without its call.
    Early early{gathering, std::make_shared<Call>(std::move(call)), std::move(place)};
    early.of.name = {};  // It is in the key; this was the request's.
    early_.insert_or_assign(std::move(key), std::move(early));
}

void Meetings::drop_early(const Key& key, const Status& why) {
    const auto node = early_.extract(key);
    node.mapped().call->fail(why);
}

// Whoever gathers waits no longer for one who has left the group.
void Meetings::drop_all_early(std::uint64_t group) {
    const Status left = rejected(Code::failed_precondition, "this rank has left the group");
    while (true) {
        const auto next = early_.lower_bound({group, {}});
        if (next == early_.end() || next->first.first != group) return;
        drop_early(Key(next->first), left);
    }
}

// It went well, or this rank was in it: then it is not the one that waits to be asked.
static bool is_of_another(const GroupOutcome& outcome, std::uint32_t own) {
    return outcome.status.ok() ||
           std::any_of(outcome.ranks.begin(), outcome.ranks.end(),
                       [&](const RankOutcome& one) { return one.rank == own && one.status.ok(); });
}

void Meetings::on_release(Call call) {
    ByteView rest;
    const Result<Gathering> told = decode_gathering(call.request(), &rest);
    if (!told) return call.fail(rejected(told.status()));
    const Key key{told->group, std::string(told->name)};
    Meeting* const meeting = told->round == 0 ? nullptr : find(key);
    // It failed before this rank was asked.
    const bool is_unasked = meeting && meeting->round == 0 && meeting->leader == told->leader &&
                            meeting->epoch == told->epoch;
    if (!meeting || (meeting->round != told->round && !is_unasked)) {
        return call.fail(aborted("no such meeting is on here"));
    }
    Result<GroupOutcome> outcome = decode_outcome(rest, meeting->coming.group->view_here());
    if (!outcome) return call.fail(rejected(outcome.status()));
    if (is_unasked && is_of_another(*outcome, *meeting->coming.group->own_rank)) {
        return call.fail(aborted("no such meeting is on here"));
    }
    call.reply({});
    // The leader's own ends when all the others have been told.
    if (!meeting->leads) take_end(key, *std::move(outcome));
}

void Meetings::on_look(Call call) {
    ByteView rest;
    const Result<Gathering> asked = decode_gathering(call.request(), &rest);
    if (!asked) return call.fail(rejected(asked.status()));
    const Key key{asked->group, std::string(asked->name)};
    Seen seen;
    if (asked->round == 0) return call.reply(encode(seen));
    if (find(key, asked->round)) {
        seen.state = Seen::State::on;
        return call.reply(encode(seen));
    }
    const auto untold = std::find_if(untold_.begin(), untold_.end(), [&](const Untold& one) {
        return one.round == asked->round && one.key == key;
    });
    seen.state = untold == untold_.end() ? Seen::State::gone : Seen::State::over;
    if (untold != untold_.end()) seen.outcome = untold->outcome;
    call.reply(encode(seen));
}

}  // namespace weft::coll
