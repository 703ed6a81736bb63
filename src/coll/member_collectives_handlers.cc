// Handlers of the messages of member collectives: gather, release, probe.
#include <algorithm>

#include "base/assert.h"
#include "coll/member_collectives.h"

namespace weft::coll {

static Status aborted(std::string why) { return rejected(Code::aborted, std::move(why)); }

void MemberCollectives::on_gather(Call call) {
    ByteView payload;
    const Result<MemberCollectiveHeader> header =
        decode_member_collective_header(call.request(), &payload);
    if (!header) return call.fail(rejected(header.status()));
    if (header->round == 0) {
        return call.fail(rejected(Code::invalid_argument, "a gather without a round"));
    }
    Key key{header->group, std::string(header->name)};
    MemberCollective* const collective = find(key);
    if (!collective) return hold_gather(std::move(key), *header, std::move(call));
    const bool is_later = header->epoch > collective->epoch;
    if (header->leader == collective->leader) {
        if (collective->round == 0 || collective->round == header->round) {
            return contribute(*collective, *header, call);
        }
        if (!collective->is_leader) {
            // The last round's release did not arrive here, and the others began another: the
            // leader may still have the outcome.
            hold_gather(std::move(key), *header, std::move(call));
            if (collective->probe_id == 0) probe(*collective);
            return;
        }
    } else if (is_later) {
        if (collective->round == 0) return contribute(*collective, *header, call);
        return hold_gather(std::move(key), *header, std::move(call));
    }
    call.fail(aborted(leader_of(collective->leader) + " of this member collective in epoch " +
                      std::to_string(collective->epoch) + " is not rank " +
                      std::to_string(header->leader) + " in epoch " +
                      std::to_string(header->epoch)));
}

static std::string gather_evicted_text() {
    return "gathers wait at this rank until it joins, " + std::to_string(Pending<int>::items_max) +
           " at most and " + std::to_string(Pending<int>::per_peer_max) +
           " of one peer, and a later one evicted this one";
}

// Held until the member joins, or a later gather replaces it.
void MemberCollectives::hold_gather(Key key, const MemberCollectiveHeader& header, Call call) {
    const auto held = pending_gathers_.find(key);
    if (held != pending_gathers_.end() && header.epoch < held->second.of.epoch) {
        return call.fail(aborted("a gather of a later view waits at this rank"));
    }
    if (held != pending_gathers_.end()) {
        fail_gather(
            key, aborted("the gather was replaced by another one of the same member collective"));
    }
    const ClientKey client = host_.client_of(call);
    if (const Key* oldest = gather_slots_.eviction_candidate(client.peer)) {
        fail_gather(Key(*oldest), rejected(Code::resource_exhausted, gather_evicted_text()));
    }
    Pending<Key>::Slot slot = gather_slots_.add(client, key);
    call.on_cancel([this, key, round = header.round] {
        const auto gather = pending_gathers_.find(key);
        if (gather != pending_gathers_.end() && gather->second.of.round == round)
            pending_gathers_.erase(gather);
    });
    // Made before the insertion: no gather is held without its call.
    PendingGather gather{header, std::make_shared<Call>(std::move(call)), std::move(slot)};
    gather.of.name = {};  // It is in the key; this one refers to the request.
    pending_gathers_.insert_or_assign(std::move(key), std::move(gather));
}

void MemberCollectives::fail_gather(const Key& key, const Status& why) {
    const auto node = pending_gathers_.extract(key);
    WEFT_ASSERT(!node.empty() && node.mapped().call);
    node.mapped().call->fail(why);
}

// Gathers do not wait for a member that has left the group.
void MemberCollectives::fail_gathers_of(std::uint64_t group) {
    const Status left = rejected(Code::failed_precondition, "this rank has left the group");
    while (true) {
        const auto next = pending_gathers_.lower_bound({group, {}});
        if (next == pending_gathers_.end() || next->first.first != group) return;
        fail_gather(Key(next->first), left);
    }
}

// An outcome of another round: it is OK, or contains this rank, which has not contributed yet.
static bool is_of_another(const GroupOutcome& outcome, std::uint32_t own) {
    return outcome.status.ok() ||
           std::any_of(outcome.ranks.begin(), outcome.ranks.end(),
                       [&](const RankOutcome& one) { return one.rank == own && one.status.ok(); });
}

void MemberCollectives::on_release(Call call) {
    ByteView payload;
    const Result<MemberCollectiveHeader> header =
        decode_member_collective_header(call.request(), &payload);
    if (!header) return call.fail(rejected(header.status()));
    const Key key{header->group, std::string(header->name)};
    MemberCollective* const collective = header->round == 0 ? nullptr : find(key);
    // The round failed before this rank was gathered.
    const bool is_before_gather = collective && collective->round == 0 &&
                                  collective->leader == header->leader &&
                                  collective->epoch == header->epoch;
    if (!collective || (collective->round != header->round && !is_before_gather)) {
        return call.fail(aborted("this rank is in no such round of a member collective"));
    }
    Result<GroupOutcome> outcome =
        decode_outcome(payload, collective->contribution.group->view_here());
    if (!outcome) return call.fail(rejected(outcome.status()));
    if (is_before_gather && is_of_another(*outcome, *collective->contribution.group->own_rank)) {
        return call.fail(aborted("this rank is in no such round of a member collective"));
    }
    call.reply({});
    // The leader's own ends when all others have been released.
    if (!collective->is_leader) on_result(key, *std::move(outcome));
}

void MemberCollectives::on_probe(Call call) {
    ByteView payload;
    const Result<MemberCollectiveHeader> header =
        decode_member_collective_header(call.request(), &payload);
    if (!header) return call.fail(rejected(header.status()));
    const Key key{header->group, std::string(header->name)};
    ProbeReply probe_reply;
    if (header->round == 0) return call.reply(encode(probe_reply));
    if (find(key, header->round)) {
        probe_reply.state = ProbeReply::State::active;
        return call.reply(encode(probe_reply));
    }
    const auto found = std::find_if(
        undelivered_.begin(), undelivered_.end(),
        [&](const UndeliveredResult& one) { return one.round == header->round && one.key == key; });
    probe_reply.state =
        found == undelivered_.end() ? ProbeReply::State::unknown : ProbeReply::State::completed;
    if (found != undelivered_.end()) probe_reply.outcome = found->outcome;
    call.reply(encode(probe_reply));
}

}  // namespace weft::coll
