#include "api/runtime_impl.h"

#include <algorithm>
#include <iterator>

#include "api/served_services.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "coll/group_impl.h"
#include "na/host_addresses.h"

namespace weft::api {

RuntimeImpl::RuntimeImpl(RuntimeOptions options, LogSink sink, RuntimeParts parts)
    : commons(std::move(options), std::move(sink), std::move(parts)),
      node(commons),
      collectives(
          node.context, node.server,
          [this](const std::vector<std::string>& uris, const core::ConnectPolicy* named_by) {
              return named_by ? node.connect_named(uris, connect_policy_, *named_by)
                              : node.connect(uris);
          },
          [this](Function<void()> work) { node.on_context(std::move(work)); },
          commons.options.argument_bytes_max) {}

Result<std::shared_ptr<RuntimeImpl>> RuntimeImpl::make(RuntimeOptions options, RuntimeParts parts) {
    WEFT_ASSERT(parts.clock && parts.random && parts.providers);
    base::watch_exit();  // With options.manual this thread may turn the runtime.
    LogSink sink = std::exchange(options.log_sink, {});  // The log releases it.
    std::shared_ptr<RuntimeImpl> impl(
        new RuntimeImpl(std::move(options), std::move(sink), std::move(parts)));
    if (!impl->stop_event_) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    if (Status status = impl->node.prepare(impl); !status.ok()) return status;
    impl->commons.log.set_defer_delivery(
        [impl = impl.get()] { return impl->node.defer_log_delivery(); });
    impl->collectives.default_timeout = impl->commons.options.default_timeout;
    if (Status status = impl->node.start(); !status.ok()) return status;
    impl->watch();
    return impl;
}

RuntimeImpl::~RuntimeImpl() {
    shutdown();
    unwatch();
}

void RuntimeImpl::on_forked() noexcept {
    self_ = weak_from_this().lock();
    node.context.on_forked();
    node.driver.on_forked();
}

Status RuntimeImpl::add(Service& service) {
    Status status = node.context.why_forked();
    if (!status.ok()) return status;
    node.on_context([&] {
        status = why_not_served();
        if (status.ok()) status = add_on_thread(service);
    });
    return status;
}

// Thread: the context's.
Status RuntimeImpl::why_not_served() const {
    WEFT_ASSERT(!node.context.is_on_other_thread());
    if (node.context.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    if (!stop_event_.is_stopped() && !node.server.is_draining()) return {};
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
    } undo{node.server};
    services_.error = Status();
    service.register_methods(*this);
    if (!services_.error.ok()) return std::move(services_.error);
    undo.methods = node.server.methods();
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
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    if (uris.empty()) {
        return fail(Code::invalid_argument,
                    "Runtime::serve(): no address to listen on; Runtime::add() serves without one");
    }
    std::vector<Place> places;
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        Result<na::Provider*> provider = commons.parts.providers->find(address->scheme);
        if (!provider) return std::move(provider).status();
        places.push_back({*std::move(address), *provider});
    }
    Status status;
    node.on_context([&] {
        status = why_not_served();
        if (!status.ok()) return;
        std::vector<Node::EndpointPtr> opened;
        for (const Place& place : places) {
            Result<Node::EndpointPtr> endpoint =
                node.make_endpoint(*place.provider, &place.address, opened.size());
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
        for (Node::EndpointPtr& endpoint : opened) {
            const std::string address = endpoint->address();
            connect_policy_.add(address);
            na::ListenerAddresses typed = na::reachable_addresses(address);
            if (!typed.incomplete_because.ok())
                commons.log.warning(typed.incomplete_because.text());
            std::ranges::move(typed.uris, std::back_inserter(addresses_));
            node.add_endpoint(std::move(endpoint));
        }
    });
    return status;
}

void RuntimeImpl::add(const MethodId& method, RawHandler handler, MethodTraits traits) {
    Status status = node.server.add_method(method.name, std::move(handler), traits);
    if (!status.ok() && services_.error.ok()) services_.error = std::move(status);
}

std::vector<std::string> RuntimeImpl::addresses() {
    std::vector<std::string> copy;
    if (node.context.is_forked()) return copy;
    node.on_context([&] { copy = addresses_; });
    return copy;
}

Result<Channel> RuntimeImpl::connect(const std::vector<std::string>& uris) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    Result<Channel> channel = fail(Code::internal, "");
    node.on_context([&] { channel = node.connect(uris); });
    return channel;
}

Result<Region> RuntimeImpl::expose(Buffer memory, ExposeOptions with) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    Result<Region> region = fail(Code::internal, "");
    node.on_context([&] { region = node.bulk.regions->expose(std::move(memory), with); });
    return region;
}

static Status empty_view() {
    return fail(Code::invalid_argument,
                "an empty weft::GroupView, default-made or moved from, is of no group; "
                "GroupView::make(), parse() and load() return one that is");
}

Result<Group> RuntimeImpl::group(GroupView view) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    Result<Group> group = fail(Code::internal, "");
    node.on_context([&] {
        std::shared_ptr<coll::GroupState> known = collectives.joined(view.name());
        if (!known) known = collectives.make_group(shared_from_this(), std::move(view));
        group = Group(std::make_shared<coll::GroupImpl>(collectives, std::move(known)));
    });
    return group;
}

Status RuntimeImpl::join(GroupView view, std::uint32_t rank) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    if (!view.find(rank)) {
        return fail(Code::out_of_range, "group '" + view.name() + "' has no rank " +
                                            std::to_string(rank) + " in epoch " +
                                            std::to_string(view.epoch()));
    }
    Status status;
    node.on_context([&] {
        status = why_not_served();
        if (!status.ok()) return;
        auto group = collectives.make_group(shared_from_this(), std::move(view));
        group->own_rank = rank;
        status = collectives.join(std::move(group));
    });
    return status;
}

}  // namespace weft::api
