#include "api/runtime_impl.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>

#include "api/served_services.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/steady_clock.h"
#include "coll/group_impl.h"
#include "na/host_addresses.h"
#include "na/sm/sm.h"
#include "na/tcp/tcp.h"

#ifdef WEFT_WITH_OFI
#include "na/ofi/ofi.h"
#endif
#ifdef WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#endif

namespace weft::api {

RuntimeParts production_parts() {
    RuntimeParts parts;
    parts.clock = std::make_shared<base::SteadyClock>();
    parts.random = std::make_shared<base::KernelRandom>();
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(na::make_sm_provider());
    parts.providers->add(na::make_tcp_provider());
    parts.providers->add(na::make_unix_provider());
#ifdef WEFT_WITH_OFI
    parts.providers->add(na::make_ofi_tcp_provider());
    parts.providers->add(na::make_ofi_verbs_provider());
#endif
#ifdef WEFT_WITH_VERBS
    parts.providers->add(na::make_verbs_provider());
#endif
    return parts;
}

static core::ContextOptions context_options(const RuntimeOptions& options) {
    core::ContextOptions context;
    context.heartbeat_interval = options.heartbeat_interval;
    context.waiting_bytes_all_max = options.waiting_bytes_max;
    context.parsed_bytes_max = core::parsed_bytes_of(options);
    // At least one body of the largest size.
    context.submitted_bytes_max =
        std::max(context.submitted_bytes_max,
                 options.argument_bytes_max + core::Context::submission_overhead_bytes);
    return context;
}

static rpc::ClientLimits client_limits(const RuntimeOptions& options) {
    rpc::ClientLimits limits;
    limits.waiting_bytes_all_max = options.waiting_bytes_max;
    limits.waiting_calls_max = options.calls_waiting_max;
    limits.sent_calls_max = options.calls_in_flight_max;
    limits.sent_bytes_all_max = options.bytes_in_flight_max;
    limits.sent_bytes_max = std::max<std::size_t>(options.bytes_in_flight_max / 4, 1u << 20);
    return limits;
}

RuntimeImpl::RuntimeImpl(RuntimeOptions given, LogSink sink, RuntimeParts with)
    : options(std::move(given)),
      parts(std::move(with)),
      log(options.log_level, std::move(sink)),
      arena(na::Arena::make(options.arena_bytes_max)),
      incarnation{parts.random->next(), parts.random->next()},
      pool(options.offload_threads),
      context(*parts.clock, *parts.random, log, context_options(options),
              options.manual ? nullptr : &pool),
      bulk(context, incarnation, arena, options.argument_bytes_max),
      client(context, bulk, client_limits(options)),
      owned_server(new rpc::Server(
          context, bulk,
          {options.handlers_max, options.handler_bytes_max, core::parsed_bytes_of(options)})),
      server(*owned_server),
      collectives(
          context, server,
          [this](const std::vector<std::string>& uris, const core::ConnectPolicy* named_by) {
              return named_by ? connect_named(uris, *named_by) : connect_on_thread(uris);
          },
          [this](Function<void()> work) { on_context(std::move(work)); },
          options.argument_bytes_max),
      driver(context, *parts.clock, {options.wait, options.spin, options.cpu}) {}

// The context's thread may write a line at any point, and the sink may use the runtime: so delivery
// waits for the next turn. Other threads deliver at once, since the context's thread may be
// blocked.
bool RuntimeImpl::defer_log_delivery() {
    const core::ThreadOwnership::UseGuard here(context);
    if (!here || context.has_ended()) return false;
    if (!log_delivery_.is_linked()) context.defer(log_delivery_);
    return true;
}

Result<std::shared_ptr<RuntimeImpl>> RuntimeImpl::make(RuntimeOptions options, RuntimeParts parts) {
    WEFT_ASSERT(parts.clock && parts.random && parts.providers);
    base::watch_exit();  // With options.manual this thread may turn the runtime.
    LogSink sink = std::exchange(options.log_sink, {});  // The log releases it.
    std::shared_ptr<RuntimeImpl> impl(
        new RuntimeImpl(std::move(options), std::move(sink), std::move(parts)));
    impl->context.set_owner(impl);
    if (impl->context.wake_fd() < 0 || !impl->stop_event_ || !impl->driver.is_usable()) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    // What `weft ping` calls.
    static constexpr MethodId ping("weft.Node/Ping");
    if (Status status =
            impl->server.add_method(ping.name, [](Call call) { call.reply(call.request()); });
        !status.ok()) {
        return status;
    }
    impl->log_delivery_.log = &impl->log;
    impl->log_delivery_.run = [](core::Deferred& delivery) {
        static_cast<LogDelivery&>(delivery).log->deliver();
    };
    impl->log.set_defer_delivery([impl = impl.get()] { return impl->defer_log_delivery(); });
    impl->context.set_opener([impl = impl.get()](const na::Address& to) {
        if (to.named_by_peer)
            return fail(
                Code::unimplemented,
                "this runtime has no endpoint that reaches the address, which a peer named");
        Result<na::Provider*> provider = impl->parts.providers->find(to.scheme);
        return provider ? impl->open(**provider) : std::move(provider).status();
    });
    impl->server.set_on_overdue_handler([impl = impl.get()](const std::string& why) {
        impl->log.warning(why + "the state of its runtime:\n" + impl->describe());
    });
    impl->driver.set_on_blocked([impl = impl.get()](Duration took) { impl->on_blocked(took); });
    impl->collectives.default_timeout = impl->options.default_timeout;
    if (!impl->options.manual) {
        if (Status status = impl->driver.start(); !status.ok()) return status;
    } else if (!impl->parts.advance_time) {
        impl->context.unbind_until_first_turn();
    }
    impl->watch();
    return impl;
}

static constexpr Duration blocked_log_interval = 60s;

RuntimeImpl::~RuntimeImpl() {
    shutdown();
    unwatch();
}

void RuntimeImpl::on_forked() noexcept {
    self_ = weak_from_this().lock();
    context.on_forked();
    driver.on_forked();
}

Status RuntimeImpl::add(Service& service) {
    Status status = context.why_forked();
    if (!status.ok()) return status;
    on_context([&] {
        status = why_not_served();
        if (status.ok()) status = add_on_thread(service);
    });
    return status;
}

// Thread: the context's.
Status RuntimeImpl::why_not_served() const {
    WEFT_ASSERT(!context.is_on_other_thread());
    if (context.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    if (!stop_event_.is_stopped() && !server.is_draining()) return {};
    return fail(Code::failed_precondition,
                "the runtime ends: after Runtime::stop(), or a Runtime::run() that drained, it "
                "serves nothing new; create another runtime");
}

// Registers all methods of the service or none, also when registering them throws.
Status RuntimeImpl::add_on_thread(Service& service) {
    struct Undo {
        rpc::Server& server;
        std::size_t methods = server.methods();
        ~Undo() { server.remove_last_methods(methods); }
    } undo{server};
    services_.error = Status();
    service.register_methods(*this);
    if (!services_.error.ok()) return std::move(services_.error);
    undo.methods = server.methods();
    services_.served.push_back(&service);
    register_served(service, weak_from_this());
    return {};
}

// All steps that can fail precede every lasting change: a failed call leaves the runtime unchanged.
Status RuntimeImpl::serve(Service* service, const std::vector<std::string>& uris) {
    struct Place {
        na::Address address;
        na::Provider* provider;
    };
    if (Status why = context.why_forked(); !why.ok()) return why;
    if (uris.empty()) {
        return fail(Code::invalid_argument,
                    "Runtime::serve(): no address to listen on; Runtime::add() serves without one");
    }
    std::vector<Place> places;
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        Result<na::Provider*> provider = parts.providers->find(address->scheme);
        if (!provider) return std::move(provider).status();
        places.push_back({*std::move(address), *provider});
    }
    Status status;
    on_context([&] {
        status = why_not_served();
        if (!status.ok()) return;
        std::vector<EndpointPtr> opened;
        for (const Place& place : places) {
            Result<EndpointPtr> endpoint =
                make_endpoint(*place.provider, &place.address, opened.size());
            if (!endpoint) {
                status = std::move(endpoint).status().in("can't listen on " + uris[opened.size()]);
                return;
            }
            opened.push_back(*std::move(endpoint));
        }
        const bool is_new =
            service && std::ranges::find(services_.served, service) == services_.served.end();
        if (is_new) status = add_on_thread(*service);
        if (!status.ok()) return;
        for (EndpointPtr& endpoint : opened) {
            const std::string address = endpoint->address();
            connect_policy_.add(address);
            na::ListenerAddresses typed = na::reachable_addresses(address);
            if (!typed.incomplete_because.ok()) log.warning(typed.incomplete_because.text());
            std::ranges::move(typed.uris, std::back_inserter(addresses_));
            add_endpoint(std::move(endpoint));
        }
    });
    return status;
}

void RuntimeImpl::add(const MethodId& method, RawHandler handler, MethodTraits traits) {
    Status status = server.add_method(method.name, std::move(handler), traits);
    if (!status.ok() && services_.error.ok()) services_.error = std::move(status);
}

// `others`: endpoints that are to be added before it.
Result<RuntimeImpl::EndpointPtr> RuntimeImpl::make_endpoint(na::Provider& provider,
                                                            const na::Address* listen,
                                                            std::size_t others) {
    WEFT_ASSERT(!context.is_on_other_thread());
    if (context.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    if (context.endpoints().size() + others >= core::endpoints_max) {
        return fail(Code::resource_exhausted, "a runtime has at most " +
                                                  std::to_string(core::endpoints_max) +
                                                  " addresses and transports");
    }
    const na::EndpointParts with{*parts.random,
                                 log,
                                 *arena,
                                 incarnation,
                                 "",
                                 options.peers_max,
                                 options.wait != WaitMode::spin,
                                 options.verbs_without};
    return provider.open(listen, with, parts.clock->now());
}

void RuntimeImpl::add_endpoint(EndpointPtr endpoint) {
    WEFT_ASSERT(endpoint && !context.is_closed());
    core::EndpointSlot& slot = context.add_endpoint(std::move(endpoint));
    driver.watch_endpoints();
    bulk.regions->add_endpoint(slot);
}

Status RuntimeImpl::open(na::Provider& provider) {
    Result<EndpointPtr> endpoint = make_endpoint(provider, nullptr, 0);
    if (!endpoint) return std::move(endpoint).status();
    add_endpoint(*std::move(endpoint));
    return {};
}

static bool has_peers(const core::Context& context) {
    const auto is_up = [](const core::Peer* peer) {
        return peer && peer->state == core::PeerState::up;
    };
    return std::ranges::any_of(context.endpoints(), [&](const auto& slot) {
        return std::ranges::any_of(slot->peers, is_up);
    });
}

// Rate-limited: a handler that blocks once may do it for ever. Without peers a long turn is
// harmless: opening a transport on a busy machine takes as long.
void RuntimeImpl::on_blocked(Duration took) {
    WEFT_ASSERT(!context.is_on_other_thread());
    if (!has_peers(context)) return;
    context.record_event("blocked", std::string(server.last_method()),
                         static_cast<std::uint64_t>(took / 1ms));
    const TimePoint now = parts.clock->now();
    if (now < blocked_log_muted_until_) return;
    blocked_log_muted_until_ = now + blocked_log_interval;
    log.warning("the context's thread was blocked or stopped for " + std::to_string(took / 1ms) +
                " ms; " + last_handler() +
                ". Peers got no answer meanwhile, and may have given up: blocking work belongs in "
                "weft::offload");
}

std::vector<std::string> RuntimeImpl::addresses() {
    std::vector<std::string> copy;
    if (context.is_forked()) return copy;
    on_context([&] { copy = addresses_; });
    return copy;
}

Result<Channel> RuntimeImpl::connect(const std::vector<std::string>& uris) {
    if (Status why = context.why_forked(); !why.ok()) return why;
    Result<Channel> channel = fail(Code::internal, "");
    on_context([&] { channel = connect_on_thread(uris); });
    return channel;
}

Result<Channel> RuntimeImpl::connect_on_thread(const std::vector<std::string>& uris) {
    WEFT_ASSERT(!context.is_on_other_thread());
    std::vector<na::Address> addresses;
    bool usable = false;
    Status unusable = fail(Code::invalid_argument, "Runtime::connect(): no address is given");
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        Result<na::Provider*> provider = parts.providers->find(address->scheme);
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
    return connect_to(std::move(addresses));
}

// An address named by a peer opens no endpoint by itself: only transports that the group's own view
// uses are opened, as for an address of that view.
Result<Channel> RuntimeImpl::connect_named(const std::vector<std::string>& uris,
                                           const core::ConnectPolicy& view) {
    WEFT_ASSERT(!context.is_on_other_thread());
    std::vector<na::Address> addresses;
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        const bool is_own = view.allows(*address);
        if (!is_own && !connect_policy_.allows(*address)) continue;
        if (!has_transport(address->scheme)) {
            Result<na::Provider*> provider = parts.providers->find(address->scheme);
            if (!provider || !open(**provider).ok()) continue;
        }
        address->named_by_peer = true;
        addresses.push_back(*std::move(address));
    }
    if (!addresses.empty()) return connect_to(std::move(addresses));
    return fail(Code::unavailable,
                "a peer named a member at " + (uris.empty() ? "no address" : uris.front()) +
                    ", which this runtime does not connect to for a peer: it listens on " +
                    connect_policy_.transports() + ", and the group's view here uses " +
                    view.transports());
}

Result<Channel> RuntimeImpl::connect_to(std::vector<na::Address> addresses) {
    WEFT_ASSERT(!addresses.empty());
    const std::string first = addresses.front().uri();
    Result<core::PeerRef> peer = context.add_peer(std::move(addresses));
    if (!peer) return std::move(peer).status();
    return rpc::ChannelImpl::handle(std::make_shared<rpc::ChannelImpl>(
        shared_from_this(), context, client, bulk, *peer, first, options.default_timeout));
}

bool RuntimeImpl::has_transport(std::string_view scheme) const {
    const auto& endpoints = context.endpoints();
    return std::any_of(endpoints.begin(), endpoints.end(),
                       [&](const auto& slot) { return slot->endpoint->scheme() == scheme; });
}

Result<Region> RuntimeImpl::expose(Buffer memory, ExposeOptions with) {
    if (Status why = context.why_forked(); !why.ok()) return why;
    Result<Region> region = fail(Code::internal, "");
    on_context([&] { region = bulk.regions->expose(std::move(memory), with); });
    return region;
}

static Status empty_view() {
    return fail(Code::invalid_argument,
                "an empty weft::GroupView, default-made or moved from, is of no group; "
                "GroupView::make(), parse() and load() return one that is");
}

Result<Group> RuntimeImpl::group(GroupView view) {
    if (Status why = context.why_forked(); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    Result<Group> group = fail(Code::internal, "");
    on_context([&] {
        std::shared_ptr<coll::GroupState> known = collectives.joined(view.name());
        if (!known) known = collectives.make_group(shared_from_this(), std::move(view));
        group = Group(std::make_shared<coll::GroupImpl>(collectives, std::move(known)));
    });
    return group;
}

Status RuntimeImpl::join(GroupView view, std::uint32_t rank) {
    if (Status why = context.why_forked(); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    if (!view.find(rank)) {
        return fail(Code::out_of_range, "group '" + view.name() + "' has no rank " +
                                            std::to_string(rank) + " in epoch " +
                                            std::to_string(view.epoch()));
    }
    Status status;
    on_context([&] {
        status = why_not_served();
        if (!status.ok()) return;
        auto group = collectives.make_group(shared_from_this(), std::move(view));
        group->own_rank = rank;
        status = collectives.join(std::move(group));
    });
    return status;
}

}  // namespace weft::api
