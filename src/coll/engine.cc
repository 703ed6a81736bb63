#include "coll/engine.h"

#include <algorithm>

#include "base/assert.h"
#include "base/text.h"

namespace weft::coll {

static constexpr Duration sweep_every = 30s;

Engine::Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run,
               std::size_t reply_bytes_max)
    : context_(context),
      server_(server),
      connect_(std::move(connect)),
      run_on_context_(std::move(run)),
      reply_bytes_max_(reply_bytes_max),
      clock_(context.random().next()),
      secret_(context.random().next() | 1),
      origin_(context.random().next()),
      table_(
          context.random().next(),
          [this](const SessionKey& peer) {
              return server_.has_session({peer.first, peer.second});
          },
          [](CollectiveDriver& collective) { collective.evict(); }) {
    sweeping_.engine = this;
    sweeping_.fire = [](base::Timer& timer, TimePoint now) {
        Engine& engine = *static_cast<Sweeping&>(timer).engine;
        engine.table_.sweep(now);
        if (!engine.table_.empty()) engine.context_.timers().arm(timer, now + sweep_every);
    };
    Status status = server_.add_drain_exempt_method(
        forward_method.name, [this](Call call) { on_forward(std::move(call)); });
    WEFT_ASSERT(status.ok());
    status = server_.add_method(view_method.name, [this](Call call) { on_view(std::move(call)); });
    WEFT_ASSERT(status.ok());
    member_collectives_.serve();
}

Engine::~Engine() = default;

Status Engine::join(std::shared_ptr<GroupImpl> group) {
    if (context_.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    for (const auto& there : groups_) {
        if (there->view_here().name() == group->view_here().name()) {
            return fail(Code::already_exists, "this runtime is a member of group '" +
                                                  there->view_here().name() + "' already");
        }
    }
    groups_.push_back(std::move(group));
    return {};
}

std::shared_ptr<GroupImpl> Engine::joined(std::string_view name) const {
    for (const auto& group : groups_) {
        if (group->view_here().name() == name) return group;
    }
    return nullptr;
}

void Engine::add_listener(std::weak_ptr<GroupImpl> group) {
    std::erase_if(listened_groups_, [](const auto& one) { return one.expired(); });
    listened_groups_.push_back(std::move(group));
}

void Engine::shutdown() {
    for (const auto& one : listened_groups_) {
        if (const auto group = one.lock()) group->clear_listeners();
    }
    listened_groups_.clear();
    groups_.clear();
    deferred_requests_.clear();
    context_.timers().cancel(sweeping_);
    member_collectives_.shutdown();
    const Status why =
        fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown);
    for (auto& [sequence, collective] : std::map(begun_)) collective->cancel(why);
    table_.clear([](CollectiveDriver& collective) { collective.cancel_timer(); });
}

// A parent with a partial reply sends its next request within a second or so, by a clock that may
// be slow. A lost parent is replaced by another one within that time.
static constexpr Duration parent_return_time = 3s;

std::size_t Engine::parents_expected() {
    const TimePoint now = context_.clock().now();
    std::erase_if(parents_expected_, [&](const std::weak_ptr<CollectiveDriver>& one) {
        const auto collective = one.lock();
        if (collective && now < collective->parent_expected_until) return false;
        if (collective) collective->in_expected_list = false;
        return true;
    });
    return parents_expected_.size() + member_collectives_.undelivered(now);
}

void Engine::expect_parent(CollectiveDriver& collective) {
    collective.parent_expected_until = context_.clock().now() + parent_return_time;
    if (collective.in_expected_list) return;
    if (parents_expected_.size() >= parents_expected_next_) {  // Drops expired ones.
        parents_expected();
        parents_expected_next_ = std::max<std::size_t>(64, 2 * parents_expected_.size());
    }
    parents_expected_.push_back(collective.weak_from_this());
    collective.in_expected_list = true;
}

// As requests in handlers count: small ones do not.
static std::size_t counted(std::size_t bytes) {
    return bytes > rpc::Server::small_request_bytes ? bytes : 0;
}

void Engine::on_member_done(CollectiveDriver& collective) {
    --running_;
    // Peers may repeat requests for as long as it could have lasted, ten minutes at most; and for
    // as long as a request for it may begin (adr/0012).
    const TimePoint now = context_.clock().now();
    collective.keep_until = std::min(saturating_add(collective.known_since, collective.time_limit),
                                     now + begin_within_max) +
                            remembered_slack;
    table_.finish(collective);
    // A repeated request for a collective that did nothing may find a state in which it can run.
    const CollectiveKey id = collective.state().key();
    if (collective.did_nothing() || table_.is_acknowledged(id)) table_.drop(id);
}

// ---- as a member -------------------------------------------------------------------------------

GroupImpl* Engine::find_group(const ForwardHeader& header) const {
    for (const auto& group : groups_) {
        if (group->name_hash == header.group) return group.get();
    }
    return nullptr;
}

void Engine::on_view(Call call) const {
    const std::string_view name = as_text(call.request());
    for (const auto& group : groups_) {
        const GroupView& view = group->view_here();
        if (view.name() == name) return call.reply(as_bytes(group->encoded_view()));
    }
    call.fail(rejected(Code::not_found, "group '" + base::printable(name.substr(0, 64)) +
                                            "' is not served by this runtime"));
}

static Status refused(std::string why) {
    return rejected(Code::failed_precondition, std::move(why));
}

// Checks that the receiver is the member that the request means.
static Status validate_receiver(const Member& meant, const GroupImpl& group) {
    const GroupView& view = group.view_here();
    const Member* const own = view.find(*group.own_rank);
    if (!own) {
        return refused("rank " + std::to_string(*group.own_rank) + " has left group '" +
                       view.name() + "', which is in epoch " + std::to_string(view.epoch()));
    }
    if (meant.rank != own->rank) {
        return refused("this is rank " + std::to_string(own->rank) + ", not rank " +
                       std::to_string(meant.rank));
    }
    const bool is_other_incarnation =
        meant.incarnation != 0 && own->incarnation != 0 && meant.incarnation != own->incarnation;
    if (is_other_incarnation) {
        return refused("rank " + std::to_string(own->rank) + " is in incarnation " +
                       std::to_string(own->incarnation) + ", not " +
                       std::to_string(meant.incarnation));
    }
    return {};
}

// Checked before decoding: the cost of a list grows with its length.
static Status validate_member_list(ByteView named, std::uint32_t count, const GroupImpl& group) {
    const GroupView& view = group.view_here();
    const std::size_t members_max = named_max(view);
    const std::size_t bytes_max = named_bytes_max(std::min<std::size_t>(count, members_max));
    if (count <= members_max && named.size() <= bytes_max) return {};
    return rejected(Code::resource_exhausted, "a collective that names " + std::to_string(count) +
                                                  " members in " + std::to_string(named.size()) +
                                                  " bytes: a member of group '" + view.name() +
                                                  "', which has " + std::to_string(view.size()) +
                                                  ", takes at most " + std::to_string(members_max) +
                                                  " in " + std::to_string(bytes_max) + " bytes");
}

Result<std::shared_ptr<const Plan>> Engine::plan_for(const ForwardView& request,
                                                     GroupImpl& group) const {
    const ForwardHeader& header = request.header;
    Merge merge;
    merge.reduction.operation = static_cast<Reduction::Operation>(header.operation);
    merge.reduction.number = static_cast<Reduction::Number>(header.number);
    merge.reduction.ordered = header.has(ForwardHeader::ordered);
    merge.function = server_.merge_of(header.method);
    const bool by_host = header.has(ForwardHeader::by_host);
    if (!request.named.empty()) {
        const std::uint32_t count = header.last - header.first;
        if (Status status = validate_member_list(request.named, count, group); !status.ok())
            return status;
        Result<MemberList> members = decode_members(request.named, count);
        if (!members) return rejected(std::move(members).status());
        if (Status status = validate_receiver(members->at(0), group); !status.ok()) return status;
        auto plan = std::make_shared<Plan>();
        plan->rank_order =
            std::make_shared<RankOrder>(header.first, *std::move(members), header.root, by_host);
        plan->view = header.view;
        plan->group = header.group;
        plan->name = group.view_here().name();
        plan->epoch = header.epoch;
        plan->method = header.method;
        plan->tree = header.tree;
        plan->merge = merge;
        plan->flags = header.plan_flags();
        return std::shared_ptr<const Plan>(std::move(plan));
    }
    const GroupView& view = group.view_here();
    // A choice among the members of a view has at most as many ranges as members.
    if (header.ranges > view.size()) {
        return rejected(Code::invalid_argument, "a choice of " + std::to_string(header.ranges) +
                                                    " ranges among " + std::to_string(view.size()) +
                                                    " members");
    }
    Result<std::vector<RankSet::Range>> ranges = decode_ranges(request.ranges);
    if (!ranges) return rejected(std::move(ranges).status());
    const std::uint32_t n = members_among(view, *ranges);
    if (n == view.size()) ranges->clear();  // A choice of all members costs nothing.
    if (header.root >= n || header.last > n) {
        return rejected(Code::invalid_argument, "a collective with an impossible subtree");
    }
    auto rank_order = group.rank_order({view, *std::move(ranges), header.root, by_host});
    if (Status status = validate_receiver(rank_order->at(header.first), group); !status.ok())
        return status;
    return group.plan(std::move(rank_order), header.method, header.tree, merge,
                      header.plan_flags());
}

void Engine::on_forward(Call call) {
    Result<ForwardView> request = decode_forward(call.request());
    if (!request) return call.fail(rejected(std::move(request).status()));
    const ForwardHeader& header = request->header;
    if (header.kind == RequestKind::clock) return reply_expired(call);
    // The processor's time: a request that arrived while this process was stalled arrived after the
    // start of this turn.
    const TimePoint now = context_.clock().now();
    using Lookup = CollectiveTable<CollectiveDriver>::Lookup;
    const Lookup lookup =
        table_.lookup(header.key, header.acknowledged_below(), now, session_key_of(call));
    if (lookup == Lookup::known) return on_repeated_request(header, std::move(call));
    if (header.kind != RequestKind::all) {
        return call.fail(fail(Code::aborted, "this rank does not know the collective")
                             .with_effect(Effect::unknown));
    }
    if (server_.is_draining()) {
        return call.fail(rejected(Code::unavailable, "the server is shutting down"));
    }
    if (lookup == Lookup::completed) {
        return call.fail(
            fail(Code::aborted, "the collective has ended").with_effect(Effect::unknown));
    }
    const Duration age = clock_.age(header.began, now);
    const bool may_be_forgotten = now - age <= table_.floor(header.key.origin);
    const bool is_expired = may_be_forgotten || !may_begin(age, header.time_limit());
    if (is_expired) return reply_expired(call);
    GroupImpl* const group = find_group(header);
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
    start_member(*request, now - age, group->shared_from_this(), std::move(call));
}

// The collective did not begin: its start is not known here, or was too long ago.
void Engine::reply_expired(Call& call) const {
    SubtreeReply expired;
    expired.kind = SubtreeReply::Kind::expired;
    expired.clock = clock_reading();
    call.reply(encode_subtree_reply(expired, call.reply_bytes_max()));
}

Result<base::SlotId> Engine::run_here(std::uint64_t method, ByteView body, TimePoint until,
                                      const ClientKey& client, rpc::LocalCompletion done) {
    struct Within {
        ~Within() { at = before; }
        ClientKey& at;
        const ClientKey before;
    };
    const Within within{current_client_, std::exchange(current_client_, client)};
    return server_.dispatch_local(method, body, until, std::move(done));
}

ClientKey Engine::client_of(const Call& call) const {
    const SessionKey peer = session_key_of(call);
    return peer == SessionKey() ? current_client_ : ClientKey(peer);
}

// A rank passes on from which of its own clients a collective comes, so that one client uses a
// share of the rank's resources below. A client that claims to be a rank still counts as one client
// of its peer.
ClientKey Engine::client_of(const ForwardHeader& header, const SessionKey& peer) const {
    if (header.parent != 0 && header.client != 0) return {peer, header.client};
    const std::uint64_t mixed = (peer.first ^ peer.second * secret_) * secret_;
    return {peer, static_cast<std::uint16_t>(std::max<std::uint64_t>(mixed >> 48, 1))};
}

// A request of any size is accepted if it is the only one.
Status Engine::why_no_room(const ClientKey& client, std::size_t bytes) const {
    const ResourceQuota::Usage usage = quota_->of(client);
    const ResourceQuota::Usage by_peer = quota_->of(client.peer);
    if (usage.running >= ResourceQuota::running_per_client_max ||
        by_peer.running >= ResourceQuota::running_per_peer_max) {
        return rejected(Code::resource_exhausted,
                        "methods run here for " + std::to_string(usage.running) +
                            " collectives of this client, of at most " +
                            std::to_string(ResourceQuota::running_per_client_max) + ", and for " +
                            std::to_string(by_peer.running) + " of its peer, of at most " +
                            std::to_string(ResourceQuota::running_per_peer_max));
    }
    const std::size_t most = server_.limits().handler_bytes_max;
    const std::size_t kept = quota_->bytes();
    const bool all_have_room = kept == 0 || kept + bytes <= most;
    const bool peer_has_room = by_peer.bytes == 0 || by_peer.bytes + bytes <= most / 4 * 3;
    const bool it_has_room = usage.bytes == 0 || usage.bytes + bytes <= most / 2;
    if (bytes == 0 || (all_have_room && peer_has_room && it_has_room)) return {};
    return rejected(Code::resource_exhausted,
                    "requests of collectives take " + std::to_string(kept) + " bytes here, " +
                        std::to_string(by_peer.bytes) + " of them of this peer, and " +
                        std::to_string(usage.bytes) + " of this client");
}

Result<std::shared_ptr<CollectiveDriver>> Engine::make_member(const ForwardView& request,
                                                              TimePoint began,
                                                              std::shared_ptr<GroupImpl> group,
                                                              const Call& call) {
    const ForwardHeader& header = request.header;
    const std::uint32_t positions = header.last - header.first;
    // Ranks below may be contacted after the call's request is freed.
    const bool keeps_body = positions > 1;
    const std::size_t bytes = counted((keeps_body ? request.body.size() : 0) +
                                      request.named.size() + request.ranges.size());
    const ClientKey client = client_of(header, session_key_of(call));
    const TimePoint now = context_.clock().now();
    Status why = why_no_room(client, bytes);
    if (!why.ok() || !quota_->has_free_slots()) {
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
    CollectiveState::Role role;
    role.subtree = header.subtree();
    // The remaining time of the call counts from its arrival, however late that was.
    role.deadline = std::min(share_of(context_.now(), call.deadline()),
                             saturating_add(began, header.time_limit()));
    auto collective = std::make_shared<CollectiveDriver>(*this, std::move(group), *std::move(plan),
                                                         header.key, header.unacknowledged, role);
    collective->priority = header.priority();
    collective->client = client;
    collective->began = began;
    collective->time_limit = header.time_limit();
    // A later request for it is refused: the collective is too old by then.
    collective->keep_until = now + begin_within(header.time_limit()) + remembered_slack;
    collective->reservation = std::make_shared<ResourceQuota::Reservation>(quota_, client, bytes);
    collective->body = request.body;
    if (keeps_body) {
        collective->own_body.assign(request.body.begin(), request.body.end());
        collective->body = collective->own_body;
    }
    return collective;
}

void Engine::start_member(const ForwardView& request, TimePoint began,
                          std::shared_ptr<GroupImpl> group, Call call) {
    const ForwardHeader& header = request.header;
    Result<std::shared_ptr<CollectiveDriver>> made = std::shared_ptr<CollectiveDriver>();
    try {
        made = make_member(request, began, std::move(group), call);
    } catch (const std::bad_alloc&) {
        made = rejected(Code::resource_exhausted,
                        "this rank has no memory for a collective's request of " +
                            std::to_string(call.request().size()) + " bytes");
    }
    if (!made) return call.fail(made.status());
    const std::shared_ptr<CollectiveDriver> collective = *std::move(made);
    // If one of these throws, the collective and what it holds are released.
    collective->on_request(header, std::move(call));
    const TimePoint now = context_.clock().now();
    table_.add(header.key, header.acknowledged_below(), now, collective);
    ++running_;
    if (!sweeping_.is_linked()) context_.timers().arm(sweeping_, now + sweep_every);
    collective->begin();
}

void Engine::on_repeated_request(const ForwardHeader& header, Call call) {
    const std::shared_ptr<CollectiveDriver> collective = table_.find(header.key);
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

}  // namespace weft::coll
