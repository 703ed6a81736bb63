#include "coll/engine.h"

#include <algorithm>

#include "base/assert.h"
#include "base/mutant.h"
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
      known_(
          context.random().next(),
          [this](const AskerId& asker) {
              return server_.has_session({asker.first, asker.second});
          },
          [](Operation& operation) { operation.give_up_waiting(); }) {
    sweeping_.engine = this;
    sweeping_.fire = [](base::Timer& timer, TimePoint now) {
        Engine& engine = *static_cast<Sweeping&>(timer).engine;
        engine.known_.sweep(now);
        if (!engine.known_.empty()) engine.context_.timers().arm(timer, now + sweep_every);
    };
    Status status = server_.add_lasting_method(forward_method.name,
                                               [this](Call call) { on_forward(std::move(call)); });
    WEFT_ASSERT(status.ok());
    status = server_.add_method(view_method.name, [this](Call call) { on_view(std::move(call)); });
    WEFT_ASSERT(status.ok());
    meetings_.serve();
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

void Engine::has_listener(std::weak_ptr<GroupImpl> group) {
    std::erase_if(listening_, [](const auto& one) { return one.expired(); });
    listening_.push_back(std::move(group));
}

void Engine::shutdown() {
    for (const auto& one : listening_) {
        if (const auto group = one.lock()) group->stop_telling();
    }
    listening_.clear();
    groups_.clear();
    later_asks_.clear();
    context_.timers().cancel(sweeping_);
    meetings_.shutdown();
    const Status why =
        fail(Code::cancelled, "the runtime is shutting down").with_effect(Effect::unknown);
    for (auto& [sequence, operation] : std::map(begun_)) operation->stop(why);
    known_.clear([](Operation& operation) { operation.forget(); });
}

// A parent that was told so far asks again within a second or so, by a clock that may be slow; one
// that was lost is replaced by another within that.
static constexpr Duration owed_for = 3s;

std::size_t Engine::owed() {
    const TimePoint now = context_.clock().now();
    std::erase_if(owed_, [&](const std::weak_ptr<Operation>& one) {
        const auto operation = one.lock();
        if (operation && now < operation->owed_until) return false;
        if (operation) operation->is_listed = false;
        return true;
    });
    return owed_.size() + meetings_.owed(now);
}

void Engine::owe(Operation& operation) {
    operation.owed_until = context_.clock().now() + owed_for;
    if (operation.is_listed) return;
    if (owed_.size() >= owed_next_) {  // Those of long ago go now and then.
        owed();
        owed_next_ = std::max<std::size_t>(64, 2 * owed_.size());
    }
    owed_.push_back(operation.weak_from_this());
    operation.is_listed = true;
}

// As requests in handlers are: small ones are not.
static std::size_t counted(std::size_t bytes) {
    return bytes > rpc::Server::small_request_bytes ? bytes : 0;
}

void Engine::on_member_done(Operation& operation) {
    --running_;
    // Peers may ask again for as long as it could have lasted, ten minutes at most; and for as long
    // as a request for it may begin (adr/0012).
    const TimePoint now = context_.clock().now();
    operation.keep_until =
        std::min(saturating_add(operation.known_since, operation.lasts), now + begin_within_most) +
        remembered_on;
    known_.finish(operation);
    // A rank that asks again for what did nothing finds it perhaps where it can be run.
    const Identity id = operation.part().identity();
    if (operation.did_nothing() || known_.is_settled(id)) known_.drop(id);
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
    call.fail(rejected(Code::not_found,
                       "group '" + base::printable(name.substr(0, 64)) + "' is not served here"));
}

static Status refused(std::string why) {
    return rejected(Code::failed_precondition, std::move(why));
}

// That the receiver is the one who is meant.
static Status judge_first(const Member& meant, const GroupImpl& group) {
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
    const bool is_other_life =
        meant.incarnation != 0 && own->incarnation != 0 && meant.incarnation != own->incarnation;
    if (is_other_life) {
        return refused("rank " + std::to_string(own->rank) + " is in incarnation " +
                       std::to_string(own->incarnation) + ", not " +
                       std::to_string(meant.incarnation));
    }
    return {};
}

// Before they are read: what a list costs grows with what is in it.
static Status judge_names(ByteView named, std::uint32_t count, const GroupImpl& group) {
    const GroupView& view = group.view_here();
    const std::size_t most = named_most(view);
    const std::size_t bytes_most = named_bytes_most(std::min<std::size_t>(count, most));
    if (count <= most && named.size() <= bytes_most) return {};
    return rejected(Code::resource_exhausted,
                    "a collective that names " + std::to_string(count) + " members in " +
                        std::to_string(named.size()) + " bytes: a member of group '" + view.name() +
                        "', which has " + std::to_string(view.size()) + ", takes at most " +
                        std::to_string(most) + " in " + std::to_string(bytes_most) + " bytes");
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
        if (Status status = judge_names(request.named, count, group); !status.ok()) return status;
        Result<MemberList> members = decode_members(request.named, count);
        if (!members) return rejected(std::move(members).status());
        if (Status status = judge_first(members->at(0), group); !status.ok()) return status;
        auto plan = std::make_shared<Plan>();
        plan->roster =
            std::make_shared<Roster>(header.first, *std::move(members), header.root, by_host);
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
    // Those of a view are no more than its members, in any order of them.
    if (header.ranges > view.size()) {
        return rejected(Code::invalid_argument, "a choice of " + std::to_string(header.ranges) +
                                                    " ranges among " + std::to_string(view.size()) +
                                                    " members");
    }
    Result<std::vector<RankSet::Range>> ranges = decode_ranges(request.ranges);
    if (!ranges) return rejected(std::move(ranges).status());
    const std::uint32_t n = members_among(view, *ranges);
    if (n == view.size()) ranges->clear();  // A choice of all is none, and costs nothing.
    if (header.root >= n || header.last > n) {
        return rejected(Code::invalid_argument, "a collective with an impossible subtree");
    }
    auto roster = group.roster({view, *std::move(ranges), header.root, by_host});
    if (Status status = judge_first(roster->at(header.first), group); !status.ok()) return status;
    return group.plan(std::move(roster), header.method, header.tree, merge, header.plan_flags());
}

void Engine::on_forward(Call call) {
    Result<ForwardView> request = decode_forward(call.request());
    if (!request) return call.fail(rejected(std::move(request).status()));
    const ForwardHeader& header = request->header;
    if (header.asking == Asking::clock) return reply_late(call);
    // The processor's time: what came while this process stood still did not come when this turn
    // began.
    const TimePoint now = context_.clock().now();
    using Place = Known<Operation>::Place;
    Place place = known_.look(header.identity, header.settled(), now, asker_of(call));
    if (place == Place::known && base::is_mutated(base::Mutant::adopted_twice)) {
        place = Place::fresh;
    }
    if (place == Place::known) return ask_again(header, std::move(call));
    if (header.asking != Asking::all) {
        return call.fail(fail(Code::aborted, "a collective that is not known here")
                             .with_effect(Effect::unknown));
    }
    if (server_.is_draining()) {
        return call.fail(rejected(Code::unavailable, "the server is shutting down"));
    }
    if (place == Place::over) {
        return call.fail(
            fail(Code::aborted, "a collective that has ended").with_effect(Effect::unknown));
    }
    const Duration age = clock_.age(header.began, now);
    const bool may_be_forgotten = now - age <= known_.floor(header.identity.origin);
    const bool is_late = may_be_forgotten || !may_begin(age, header.lasts());
    if (is_late && !base::is_mutated(base::Mutant::age_ignored)) return reply_late(call);
    GroupImpl* const group = find_group(header);
    const bool is_stale =
        !group || (request->named.empty() && group->view_here().digest() != header.view &&
                   !base::is_mutated(base::Mutant::stale_epoch_accepted));
    if (is_stale) {
        Answer stale;
        stale.kind = Answer::Kind::stale;
        stale.epoch = group ? group->view_here().epoch() : 0;
        return call.reply(encode_answer(stale, call.reply_bytes_max()));
    }
    if (place == Place::full) {
        return call.fail(rejected(Code::resource_exhausted,
                                  "this rank remembers " + std::to_string(known_.parts()) +
                                      " collectives, and has no room for more of this peer's "
                                      "until some of them complete"));
    }
    take_part(*request, now - age, group->shared_from_this(), std::move(call));
}

// Nothing was done, since it is not known here when it began, or that is too long ago.
void Engine::reply_late(Call& call) const {
    Answer late;
    late.kind = Answer::Kind::late;
    late.clock = clock_reading();
    call.reply(encode_answer(late, call.reply_bytes_max()));
}

Result<base::SlotId> Engine::run_here(std::uint64_t method, ByteView body, TimePoint until,
                                      const Client& brought_by, rpc::LocalCompletion done) {
    struct Within {
        ~Within() { at = before; }
        Client& at;
        const Client before;
    };
    const Within within{runs_for_, std::exchange(runs_for_, brought_by)};
    return server_.dispatch_local(method, body, until, std::move(done));
}

Client Engine::client_of(const Call& call) const {
    const AskerId asker = asker_of(call);
    return asker == AskerId() ? runs_for_ : Client(asker);
}

// A rank passes on which client of its own a collective comes from, so that one client takes a
// share of what the rank has below. A client that claims to be a rank is one of the peer's all the
// same.
Client Engine::client_of(const ForwardHeader& header, const AskerId& asker) const {
    if (header.asker != 0 && header.client != 0) return {asker, header.client};
    const std::uint64_t mixed = (asker.first ^ asker.second * secret_) * secret_;
    return {asker, static_cast<std::uint16_t>(std::max<std::uint64_t>(mixed >> 48, 1))};
}

// One of any size alone.
Status Engine::why_no_room(const Client& client, std::size_t bytes) const {
    const Shares::Held held = shares_->of(client);
    const Shares::Held by_peer = shares_->of(client.peer);
    if (held.running >= Shares::running_most || by_peer.running >= Shares::running_of_peer) {
        return rejected(Code::resource_exhausted,
                        "methods run here for " + std::to_string(held.running) +
                            " collectives of this client, of at most " +
                            std::to_string(Shares::running_most) + ", and for " +
                            std::to_string(by_peer.running) + " of its peer, of at most " +
                            std::to_string(Shares::running_of_peer));
    }
    const std::size_t most = server_.limits().handler_bytes_max;
    const std::size_t kept = shares_->bytes();
    const bool all_have_room = kept == 0 || kept + bytes <= most;
    const bool peer_has_room = by_peer.bytes == 0 || by_peer.bytes + bytes <= most / 4 * 3;
    const bool it_has_room = held.bytes == 0 || held.bytes + bytes <= most / 2;
    if (bytes == 0 || (all_have_room && peer_has_room && it_has_room)) return {};
    return rejected(Code::resource_exhausted,
                    "requests of collectives take " + std::to_string(kept) + " bytes here, " +
                        std::to_string(by_peer.bytes) + " of them of this peer, and " +
                        std::to_string(held.bytes) + " of this client");
}

Result<std::shared_ptr<Operation>> Engine::make_part(const ForwardView& request, TimePoint began,
                                                     std::shared_ptr<GroupImpl> group,
                                                     const Call& call) {
    const ForwardHeader& header = request.header;
    const std::uint32_t positions = header.last - header.first;
    // Those below may be asked when the request is gone.
    const bool keeps_body = positions > 1;
    const std::size_t bytes = counted((keeps_body ? request.body.size() : 0) +
                                      request.named.size() + request.ranges.size());
    const Client client = client_of(header, asker_of(call));
    const TimePoint now = context_.clock().now();
    Status why = why_no_room(client, bytes);
    if (!why.ok() || !shares_->has_places()) {
        known_.give_up_gone(now);
        why = why_no_room(client, bytes);
    }
    if (!why.ok()) return why;
    Result<std::shared_ptr<const Plan>> plan = plan_for(request, *group);
    if (!plan) return std::move(plan).status();
    if (header.has(ForwardHeader::scatters)) {
        const Status status = piece_of(request.body, positions, 0).status();
        if (!status.ok()) return rejected(status);
    }
    Part::Role role;
    role.mine = header.subtree();
    // What is left by the call is from when it came here, however late that was.
    role.until =
        std::min(share_of(context_.now(), call.deadline()), saturating_add(began, header.lasts()));
    auto operation = std::make_shared<Operation>(*this, std::move(group), *std::move(plan),
                                                 header.identity, header.unsettled, role);
    operation->priority = header.priority();
    operation->brought_by = client;
    operation->began = began;
    operation->lasts = header.lasts();
    // A later request for it is refused: the collective is too old by then.
    operation->keep_until = now + begin_within(header.lasts()) + remembered_on;
    operation->room = std::make_shared<Shares::Room>(shares_, client, bytes);
    operation->body = request.body;
    if (keeps_body) {
        operation->own_body.assign(request.body.begin(), request.body.end());
        operation->body = operation->own_body;
    }
    return operation;
}

void Engine::take_part(const ForwardView& request, TimePoint began,
                       std::shared_ptr<GroupImpl> group, Call call) {
    const ForwardHeader& header = request.header;
    Result<std::shared_ptr<Operation>> made = std::shared_ptr<Operation>();
    try {
        made = make_part(request, began, std::move(group), call);
    } catch (const std::bad_alloc&) {
        made = rejected(Code::resource_exhausted, "no memory here for a collective's request of " +
                                                      std::to_string(call.request().size()) +
                                                      " bytes");
    }
    if (!made) return call.fail(made.status());
    const std::shared_ptr<Operation> operation = *std::move(made);
    // Where one of these throws, the operation is gone with what it takes.
    operation->ask(header, std::move(call));
    const TimePoint now = context_.clock().now();
    known_.add(header.identity, header.settled(), now, operation);
    ++running_;
    if (!sweeping_.is_linked()) context_.timers().arm(sweeping_, now + sweep_every);
    operation->begin();
}

void Engine::ask_again(const ForwardHeader& header, Call call) {
    const std::shared_ptr<Operation> operation = known_.find(header.identity);
    if (header.asking == Asking::stop) {
        call.reply({});
        return operation->desert(header.asker);
    }
    if (!operation->is_for(header)) {
        return call.fail(rejected(Code::invalid_argument, "another collective of that number"));
    }
    operation->ask(header, std::move(call));
}

}  // namespace weft::coll
