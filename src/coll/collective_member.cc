#include "coll/collective_member.h"

#include <algorithm>

#include "base/assert.h"
#include "base/text.h"
#include "coll/time_budget.h"

namespace weft::coll {

static constexpr Duration sweep_every = 30s;

CollectiveMember::CollectiveMember(CollectiveHost& host)
    : host_(host),
      table_(
          host.context().random().next(),
          [this](const SessionKey& peer) {
              return host_.server().has_session({peer.first, peer.second});
          },
          [](MemberDriver& collective) { collective.evict(); }) {
    sweeping_.member = this;
    sweeping_.fire = [](base::Timer& timer, TimePoint now) {
        CollectiveMember& member = *static_cast<Sweeping&>(timer).member;
        member.table_.sweep(now);
        if (!member.table_.empty()) {
            member.host_.context().timers().arm(timer, now + sweep_every);
        }
    };
    Status status = host_.server().add_drain_exempt_method(
        forward_method.name, [this](Call call) { on_forward(std::move(call)); });
    WEFT_ASSERT(status.ok());
    status = host_.server().add_method(view_method.name,
                                       [this](Call call) { on_view(std::move(call)); });
    WEFT_ASSERT(status.ok());
}

void CollectiveMember::shutdown() {
    host_.context().timers().cancel(sweeping_);
    table_.clear([](MemberDriver& collective) { collective.cancel_timer(); });
}

// ---- groups ------------------------------------------------------------------------------------

Status CollectiveMember::join(std::shared_ptr<GroupState> group) {
    if (host_.context().is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    for (const auto& there : groups_) {
        if (there->view_here().name() == group->view_here().name()) {
            return fail(Code::already_exists, "this runtime is a member of group '" +
                                                  there->view_here().name() + "' already");
        }
    }
    WEFT_ASSERT(group->own_rank);
    groups_.push_back(std::move(group));
    return {};
}

std::shared_ptr<GroupState> CollectiveMember::joined(std::string_view name) const {
    for (const auto& group : groups_) {
        if (group->view_here().name() == name) return group;
    }
    return nullptr;
}

std::shared_ptr<GroupState> CollectiveMember::find_group(const ForwardHeader& header) const {
    for (const auto& group : groups_) {
        if (group->name_hash == header.group) return group;
    }
    return nullptr;
}

void CollectiveMember::on_view(Call call) const {
    const std::string_view name = as_text(call.request());
    for (const auto& group : groups_) {
        const GroupView& view = group->view_here();
        if (view.name() == name) return call.reply(as_bytes(group->encoded_view()));
    }
    call.fail(rejected(Code::not_found, "group '" + base::printable(name.substr(0, 64)) +
                                            "' is not served by this runtime"));
}

// ---- expected parents --------------------------------------------------------------------------

// A parent with a partial reply sends its next request within a second or so, by a clock that may
// be slow. A lost parent is replaced by another one within that time.
static constexpr Duration parent_return_time = 3s;

std::size_t CollectiveMember::parents_expected() {
    const TimePoint now = host_.context().clock().now();
    std::erase_if(parents_expected_, [&](const std::weak_ptr<CollectiveDriver>& one) {
        const auto collective = std::static_pointer_cast<MemberDriver>(one.lock());
        if (collective && collective->expects_parent(now)) return false;
        if (collective) collective->in_expected_list = false;
        return true;
    });
    return parents_expected_.size();
}

void CollectiveMember::expect_parent(MemberDriver& collective) {
    collective.expect_parent_until(host_.context().clock().now() + parent_return_time);
    if (collective.in_expected_list) return;
    if (parents_expected_.size() >= parents_expected_next_) {  // Drops expired ones.
        parents_expected();
        parents_expected_next_ = std::max<std::size_t>(64, 2 * parents_expected_.size());
    }
    parents_expected_.push_back(collective.weak_from_this());
    collective.in_expected_list = true;
}

// ---- receive -----------------------------------------------------------------------------------

void CollectiveMember::on_forward(Call call) {
    Result<ForwardView> request = decode_forward(call.request());
    if (!request) return call.fail(rejected(std::move(request).status()));
    const ForwardHeader& header = request->header;
    if (header.kind == RequestKind::clock) return reply_expired(call);
    // The processor's time: a request that arrived while this process was stalled arrived after the
    // start of this turn.
    const TimePoint now = host_.context().clock().now();
    using Lookup = CollectiveTable<MemberDriver>::Lookup;
    const Lookup lookup =
        table_.lookup(header.key, header.acknowledged_below(), now, host_.session_key_of(call));
    if (lookup == Lookup::known) return on_repeated_request(header, std::move(call));
    if (header.kind != RequestKind::all) {
        return call.fail(fail(Code::aborted, "this rank does not know the collective")
                             .with_effect(Effect::unknown));
    }
    if (host_.server().is_draining()) {
        return call.fail(rejected(Code::unavailable, "the server is shutting down"));
    }
    if (lookup == Lookup::completed) {
        return call.fail(
            fail(Code::aborted, "the collective has ended").with_effect(Effect::unknown));
    }
    const Duration age = host_.clock().age(header.began, now);
    const bool may_be_forgotten = now - age <= table_.floor(header.key.origin);
    const bool is_expired = may_be_forgotten || !may_begin(age, header.time_limit());
    if (is_expired) return reply_expired(call);
    const std::shared_ptr<GroupState> group = find_group(header);
    const bool is_stale =
        !group || (request->named.empty() && group->view_here().digest() != header.view);
    if (is_stale) {
        SubtreeReply stale;
        stale.kind = SubtreeReply::Kind::stale;
        stale.epoch = group ? group->view_here().epoch() : 0;
        return call.reply(encode_subtree_reply(stale, call.reply_bytes_max()));
    }
    if (lookup == Lookup::full) {
        return call.fail(rejected(Code::resource_exhausted,
                                  "this rank remembers " + std::to_string(table_.collectives()) +
                                      " collectives, and has no room for more of this peer's "
                                      "until some of them complete"));
    }
    start_member(*request, now - age, group, std::move(call));
}

// The collective did not begin: its start is not known here, or was too long ago.
void CollectiveMember::reply_expired(Call& call) const {
    SubtreeReply expired;
    expired.kind = SubtreeReply::Kind::expired;
    expired.clock = host_.clock_reading();
    call.reply(encode_subtree_reply(expired, call.reply_bytes_max()));
}

// A rank passes on from which of its own clients a collective comes, so that one client uses a
// share of the rank's resources below. A client that claims to be a rank still counts as one client
// of its peer.
ClientKey CollectiveMember::client_of(const ForwardHeader& header, const SessionKey& peer) const {
    if (header.parent != 0 && header.client != 0) return {peer, header.client};
    const std::uint64_t mixed = (peer.first ^ peer.second * host_.secret()) * host_.secret();
    return {peer, static_cast<std::uint16_t>(std::max<std::uint64_t>(mixed >> 48, 1))};
}

// As requests in handlers count: small ones do not.
static std::size_t counted(std::size_t bytes) {
    return bytes > rpc::Server::small_request_bytes ? bytes : 0;
}

// A request of any size is accepted if it is the only one.
Status CollectiveMember::why_no_room(const ClientKey& client, std::size_t bytes) const {
    const ResourceQuota::Usage usage = host_.quota()->of(client);
    const ResourceQuota::Usage by_peer = host_.quota()->of(client.peer);
    if (usage.running >= ResourceQuota::running_per_client_max ||
        by_peer.running >= ResourceQuota::running_per_peer_max) {
        return rejected(Code::resource_exhausted,
                        "methods run here for " + std::to_string(usage.running) +
                            " collectives of this client, of at most " +
                            std::to_string(ResourceQuota::running_per_client_max) + ", and for " +
                            std::to_string(by_peer.running) + " of its peer, of at most " +
                            std::to_string(ResourceQuota::running_per_peer_max));
    }
    const std::size_t most = host_.server().limits().handler_bytes_max;
    const std::size_t kept = host_.quota()->bytes();
    const bool all_have_room = kept == 0 || kept + bytes <= most;
    const bool peer_has_room = by_peer.bytes == 0 || by_peer.bytes + bytes <= most / 4 * 3;
    const bool it_has_room = usage.bytes == 0 || usage.bytes + bytes <= most / 2;
    if (bytes == 0 || (all_have_room && peer_has_room && it_has_room)) return {};
    return rejected(Code::resource_exhausted,
                    "requests of collectives take " + std::to_string(kept) + " bytes here, " +
                        std::to_string(by_peer.bytes) + " of them of this peer, and " +
                        std::to_string(usage.bytes) + " of this client");
}

Result<std::shared_ptr<MemberDriver>> CollectiveMember::make_member(
    const ForwardView& request, TimePoint began, std::shared_ptr<GroupState> group,
    const Call& call) {
    const ForwardHeader& header = request.header;
    const std::uint32_t positions = header.last - header.first;
    // Ranks below may be contacted after the call's request is freed.
    const bool keeps_body = positions > 1;
    const std::size_t bytes = counted((keeps_body ? request.body.size() : 0) +
                                      request.named.size() + request.ranges.size());
    const ClientKey client = client_of(header, host_.session_key_of(call));
    const TimePoint now = host_.context().clock().now();
    Status why = why_no_room(client, bytes);
    if (!why.ok() || !host_.quota()->has_free_slots()) {
        table_.cancel_disconnected(now);
        why = why_no_room(client, bytes);
    }
    if (!why.ok()) return why;
    Result<std::shared_ptr<const Plan>> plan = plan_for(request, *group);
    if (!plan) return std::move(plan).status();
    if (header.has(ForwardHeader::scatters)) {
        const Status status = piece_of(request.body, positions, 0).status();
        if (!status.ok()) return rejected(status);
    }
    CollectiveDriver::Setup setup;
    setup.group = std::move(group);
    setup.plan = *std::move(plan);
    setup.key = header.key;
    setup.role.subtree = header.subtree();
    // The remaining time of the call counts from its arrival, however late that was.
    setup.role.deadline = std::min(share_of(host_.context().now(), call.deadline()),
                                   saturating_add(began, header.time_limit()));
    setup.unacknowledged = header.unacknowledged;
    setup.priority = header.priority();
    setup.client = client;
    setup.began = began;
    setup.time_limit = header.time_limit();
    setup.reservation = std::make_shared<ResourceQuota::Reservation>(host_.quota(), client, bytes);
    auto collective = std::make_shared<MemberDriver>(
        host_, static_cast<MemberDriver::Owner&>(*this), std::move(setup));
    // A later request for it is refused: the collective is too old by then.
    collective->keep_until = now + begin_within(header.time_limit()) + remembered_slack;
    if (keeps_body) {
        collective->own_body({request.body.begin(), request.body.end()});
    } else {
        collective->refer_to_body(request.body);
    }
    return collective;
}

void CollectiveMember::start_member(const ForwardView& request, TimePoint began,
                                    std::shared_ptr<GroupState> group, Call call) {
    const ForwardHeader& header = request.header;
    Result<std::shared_ptr<MemberDriver>> made = std::shared_ptr<MemberDriver>();
    try {
        made = make_member(request, began, std::move(group), call);
    } catch (const std::bad_alloc&) {
        made = rejected(Code::resource_exhausted,
                        "this rank has no memory for a collective's request of " +
                            std::to_string(call.request().size()) + " bytes");
    }
    if (!made) return call.fail(made.status());
    const std::shared_ptr<MemberDriver> collective = *std::move(made);
    WEFT_ASSERT(collective->running);
    // If one of these throws, the collective and what it holds are released.
    collective->on_request(header, std::move(call));
    const TimePoint now = host_.context().clock().now();
    table_.add(header.key, header.acknowledged_below(), now, collective);
    host_.on_begun();
    if (!sweeping_.is_linked()) host_.context().timers().arm(sweeping_, now + sweep_every);
    collective->begin();
}

void CollectiveMember::on_repeated_request(const ForwardHeader& header, Call call) {
    const std::shared_ptr<MemberDriver> collective = table_.find(header.key);
    if (header.kind == RequestKind::cancel) {
        call.reply({});
        return collective->on_parent_cancelled(header.parent);
    }
    if (!collective->matches(header)) {
        return call.fail(
            rejected(Code::invalid_argument, "this rank has another collective of that number"));
    }
    collective->on_request(header, std::move(call));
}

// ---- the end -----------------------------------------------------------------------------------

void CollectiveMember::on_done(MemberDriver& collective) {
    WEFT_ASSERT(!collective.running);
    host_.on_ended();
    // Peers may repeat requests for as long as it could have lasted, ten minutes at most; and for
    // as long as a request for it may begin (adr/0012).
    const TimePoint now = host_.context().clock().now();
    collective.keep_until =
        std::min(saturating_add(collective.known_since, collective.time_limit()),
                 now + begin_within_max) +
        remembered_slack;
    table_.finish(collective);
    // A repeated request for a collective that did nothing may find a state in which it can run.
    const CollectiveKey id = collective.state().key();
    if (collective.did_nothing() || table_.is_acknowledged(id)) table_.drop(id);
}

}  // namespace weft::coll
