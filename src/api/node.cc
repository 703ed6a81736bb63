#include "api/node.h"

#include <algorithm>

#include "base/assert.h"
#include "rpc/channel_impl.h"
#include "rpc/channel_legs.h"

namespace weft::api {

static core::ContextOptions context_options(const Commons& commons, std::uint16_t index,
                                            const Node* first) {
    const RuntimeOptions& options = commons.options;
    core::ContextOptions context;
    context.budgets = commons.budgets;
    context.family = first ? &first->context : nullptr;
    context.member = index;
    context.heartbeat_interval = options.heartbeat_interval;
    context.waiting_bytes_all_max = options.waiting_bytes_max;
    context.parsed_bytes_max = core::parsed_bytes_of(options);
    // At least one body of the largest size.
    context.submitted_bytes_max =
        std::max(context.submitted_bytes_max,
                 options.argument_bytes_max + core::Context::submission_overhead_bytes);
    return context;
}

static rpc::ClientLimits client_limits(const Commons& commons) {
    const RuntimeOptions& options = commons.options;
    rpc::ClientLimits limits;
    limits.budgets = commons.budgets;
    limits.waiting_bytes_all_max = options.waiting_bytes_max;
    limits.waiting_calls_max = options.calls_waiting_max;
    limits.sent_calls_max = options.calls_in_flight_max;
    limits.sent_bytes_all_max = options.bytes_in_flight_max;
    limits.sent_bytes_max = std::max<std::size_t>(options.bytes_in_flight_max / 4, 1u << 20);
    return limits;
}

static rpc::ServerLimits server_limits(const Commons& commons) {
    const RuntimeOptions& options = commons.options;
    return {options.handlers_max, options.handler_bytes_max, core::parsed_bytes_of(options),
            commons.budgets};
}

static std::shared_ptr<base::Random> random_of(const RuntimeParts& parts, std::uint16_t index) {
    return index == 0 || !parts.more_random ? parts.random : parts.more_random();
}

static std::optional<unsigned> cpu_of(const RuntimeOptions& options, std::uint16_t index) {
    if (options.cpus.empty()) return options.cpu;
    return options.cpus[index % options.cpus.size()];
}

static std::optional<unsigned> number_of(const Commons& commons, std::uint16_t index) {
    if (commons.contexts() == 1) return {};
    return index;
}

Node::Node(Commons& with, std::uint16_t number, const Node* first)
    : commons(with),
      index(number),
      random(random_of(with.parts, number)),
      context(*with.parts.clock, *random, with.log, context_options(with, number, first),
              with.options.manual ? nullptr : &with.pool),
      bulk(context, with.incarnation, with.arena, with.options.argument_bytes_max,
           with.regions.get(), core::budget_of(with.budgets, &core::Budgets::body_bytes)),
      client(context, bulk, client_limits(with)),
      owned_server(new rpc::Server(context, bulk, server_limits(with))),
      server(*owned_server),
      driver(context, *with.parts.clock,
             {with.options.wait, with.options.spin, cpu_of(with.options, number),
              number_of(with, number)}) {}

Status Node::prepare(std::weak_ptr<void> owner) {
    context.set_owner(std::move(owner));
    if (context.wake_fd() < 0 || !driver.is_usable()) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    // What `weft ping` calls.
    static constexpr MethodId ping("weft.Node/Ping");
    if (Status status = server.add_method(ping.name, [](Call call) { call.reply(call.request()); });
        !status.ok()) {
        return status;
    }
    log_delivery_.log = &commons.log;
    log_delivery_.run = [](core::Deferred& delivery) {
        static_cast<LogDelivery&>(delivery).log->deliver();
    };
    context.set_opener([this](const na::Address& to) {
        if (to.named_by_peer)
            return fail(
                Code::unimplemented,
                "this runtime has no endpoint that reaches the address, which a peer named");
        Result<na::Provider*> provider = commons.parts.providers->find(to.scheme);
        return provider ? open(**provider) : std::move(provider).status();
    });
    server.set_on_overdue_handler([this](const std::string& why) {
        commons.log.warning(why + "the state of its runtime:\n" + describe());
    });
    driver.set_call_counter([this] {
        const rpc::ServerSessions::Requests requests = server.count_requests();
        return core::CallCounts{requests.all, client.counters().submitted, requests.is_whole};
    });
    driver.set_on_blocked([this](Duration took) { on_blocked(took); });
    return {};
}

Status Node::start() {
    if (!commons.options.manual) return driver.start();
    if (!commons.parts.advance_time) context.unbind_until_first_turn();
    return {};
}

// The context's thread may write a line at any point, and the sink may use the runtime: so delivery
// waits for the next turn. Other threads deliver at once, since the context's thread may be
// blocked.
bool Node::defer_log_delivery() {
    const core::ThreadOwnership::UseGuard here(context);
    if (!here || context.has_ended()) return false;
    if (!log_delivery_.is_linked()) context.defer(log_delivery_);
    return true;
}

Result<Node::EndpointPtr> Node::make_endpoint(na::Provider& provider, const Listen& listen,
                                              std::size_t others) {
    WEFT_ASSERT(!context.is_on_other_thread());
    if (context.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    if (context.endpoints().size() + others >= core::endpoints_max) {
        return fail(Code::resource_exhausted, "a runtime has at most " +
                                                  std::to_string(core::endpoints_max) +
                                                  " addresses and transports");
    }
    na::EndpointParts with{*random,
                           commons.log,
                           *commons.arena,
                           commons.incarnation,
                           "",
                           commons.options.peers_max,
                           commons.options.wait != WaitMode::spin,
                           commons.options.verbs_without};
    // Peers reach no other context through an address that is this one's alone.
    if (!listen.address) {
        with.contexts = commons.contexts();
        with.context = index;
        with.door = listen.door;
        if (commons.regions) with.exposures = &commons.regions->exposures;
    }
    return provider.open(listen.address, with, commons.parts.clock->now());
}

void Node::add_endpoint(EndpointPtr endpoint) {
    WEFT_ASSERT(endpoint && !context.is_closed());
    core::EndpointSlot& slot = context.add_endpoint(std::move(endpoint));
    driver.watch_endpoints();
    bulk.regions->add_endpoint(slot);
}

Status Node::open(na::Provider& provider) {
    Result<EndpointPtr> endpoint = make_endpoint(provider, {}, 0);
    if (!endpoint) return std::move(endpoint).status();
    add_endpoint(*std::move(endpoint));
    return {};
}

bool Node::has_transport(std::string_view scheme) const {
    return std::ranges::any_of(
        context.endpoints(), [&](const auto& slot) { return slot->endpoint->scheme() == scheme; });
}

Result<Channel> Node::connect(const std::vector<std::string>& uris, std::uint16_t wanted,
                              unsigned spread) {
    WEFT_ASSERT(!context.is_on_other_thread());
    std::vector<na::Address> addresses;
    bool usable = false;
    Status unusable = fail(Code::invalid_argument, "Runtime::connect(): no address is given");
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        Result<na::Provider*> provider = commons.parts.providers->find(address->scheme);
        Status status;
        if (!provider) {
            status = std::move(provider).status();
        } else if (uris.size() == 1 && !has_transport(address->scheme)) {
            // With several, each is opened when it is tried: some are expensive.
            status = open(**provider);
        }
        usable |= status.ok();
        if (!status.ok()) unusable = std::move(status).in("can't connect to " + uri);
        addresses.push_back(*std::move(address));
    }
    if (!usable) return unusable;
    return connect_to(std::move(addresses), wanted, spread);
}

// The context that has the collectives of a runtime, plus 1.
static constexpr std::uint16_t of_collectives = 1;

// An address named by a peer opens no endpoint by itself: only transports that the group's own view
// uses are opened, as for an address of that view.
Result<Channel> Node::connect_named(const std::vector<std::string>& uris,
                                    const core::ConnectPolicy& own,
                                    const core::ConnectPolicy& view) {
    WEFT_ASSERT(!context.is_on_other_thread());
    std::vector<na::Address> addresses;
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        if (!view.allows(*address) && !own.allows(*address)) continue;
        if (!has_transport(address->scheme)) {
            Result<na::Provider*> provider = commons.parts.providers->find(address->scheme);
            if (!provider || !open(**provider).ok()) continue;
        }
        address->named_by_peer = true;
        addresses.push_back(*std::move(address));
    }
    if (!addresses.empty()) return connect_to(std::move(addresses), of_collectives);
    return fail(Code::unavailable,
                "a peer named a member at " + (uris.empty() ? "no address" : uris.front()) +
                    ", which this runtime does not connect to for a peer: it listens on " +
                    own.transports() + ", and the group's view here uses " + view.transports());
}

Result<Channel> Node::connect_to(std::vector<na::Address> addresses, std::uint16_t wanted,
                                 unsigned spread) {
    WEFT_ASSERT(!addresses.empty());
    const std::string first = addresses.front().uri();
    auto facts = std::make_shared<rpc::ServerFacts>();
    facts->addresses = std::move(addresses);
    facts->spread = spread;
    facts->here = commons.layers;
    facts->at_home = [this](Function<void()> work) { return on_context(std::move(work)); };
    Result<core::PeerRef> peer = rpc::ChannelLegs::add_peer(context, *facts, {wanted});
    if (!peer) return std::move(peer).status();
    auto channel = std::make_shared<rpc::ChannelImpl>(context.share(), context, client, bulk, *peer,
                                                      first, commons.options.default_timeout);
    channel->set_spread(facts);
    channel->set_legs(std::make_unique<rpc::ChannelLegs>(*channel, std::move(facts), wanted),
                      commons.layers.size());
    return rpc::ChannelImpl::handle(std::move(channel));
}

static bool has_peers(const core::Context& context) {
    const auto is_up = [](const core::Peer* peer) {
        return peer && peer->state == core::PeerState::up;
    };
    return std::ranges::any_of(context.endpoints(), [&](const auto& slot) {
        return std::ranges::any_of(slot->peers, is_up);
    });
}

static constexpr Duration blocked_log_interval = 60s;

// Rate-limited: a handler that blocks once may do it for ever. Without peers a long turn is
// harmless: opening a transport on a busy machine takes as long.
void Node::on_blocked(Duration took) {
    WEFT_ASSERT(!context.is_on_other_thread());
    if (!has_peers(context)) return;
    context.record_event("blocked", std::string(server.last_method()),
                         static_cast<std::uint64_t>(took / 1ms));
    const TimePoint now = commons.parts.clock->now();
    if (now < blocked_log_muted_until_) return;
    blocked_log_muted_until_ = now + blocked_log_interval;
    commons.log.warning("the thread of " + name_text() + " was blocked or stopped for " +
                        std::to_string(took / 1ms) + " ms; " + last_handler() +
                        ". Peers got no answer meanwhile, and may have given up: blocking work "
                        "belongs in weft::offload");
}

}  // namespace weft::api
