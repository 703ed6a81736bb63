// Services and addresses: added on each context of a runtime, or on none.
#include <algorithm>
#include <iterator>

#include "api/runtime_impl.h"
#include "api/served_services.h"
#include "api/turns.h"
#include "base/assert.h"
#include "na/host_addresses.h"

namespace weft::api {
namespace {

// Receives the methods of one service for one context.
class ServerMethods final : public MethodRegistrar {
  public:
    explicit ServerMethods(rpc::Server& server) : server_(server) {}
    void add(const MethodId& method, RawHandler handler, MethodTraits traits) override {
        Status status = server_.add_method(method.name, std::move(handler), traits);
        if (!status.ok() && first_error_.ok()) first_error_ = std::move(status);
    }
    Status take_error() { return std::move(first_error_); }

  private:
    rpc::Server& server_;
    Status first_error_;
};

// Takes methods back, unless it is told to keep them.
struct UndoMethods {
    explicit UndoMethods(rpc::Server& of) : server(of), methods(of.methods()) {}
    UndoMethods(const UndoMethods&) = delete;
    UndoMethods& operator=(const UndoMethods&) = delete;
    ~UndoMethods() { server.remove_last_methods(methods); }
    void keep() { methods = server.methods(); }

    rpc::Server& server;
    std::size_t methods;
};

}  // namespace

Status RuntimeImpl::on_each(const std::function<Status(Node&)>& work) {
    for (const auto& one : nodes) {
        Status status;
        one->on_context([&] { status = work(*one); });
        if (!status.ok()) return status;
    }
    return {};
}

// Thread: the context's.
Status RuntimeImpl::why_not_served(const Node& at) const {
    WEFT_ASSERT(!at.context.is_on_other_thread());
    if (at.context.is_closed()) return fail(Code::unavailable, "the runtime is shutting down");
    if (!stop_event_.is_stopped() && !at.server.is_draining()) return {};
    return fail(Code::failed_precondition,
                "the runtime ends: after Runtime::stop(), or a Runtime::run() that drained, it "
                "serves nothing new; create another runtime");
}

Status RuntimeImpl::why_unsafe(const Served& served) const {
    if (nodes.size() == 1 || !served.service || served.is_shared) return {};
    return fail(Code::invalid_argument,
                "this runtime has " + std::to_string(nodes.size()) +
                    " contexts (RuntimeOptions::contexts), and would run the handlers of one "
                    "service on as many threads: give Runtime::serve() a function that makes a "
                    "service for each context, or weft::shared(service) if its handlers may run "
                    "on several threads at once");
}

Status RuntimeImpl::add(const Served& served) {
    Status status = node.context.why_forked();
    if (status.ok()) status = why_not_in_turn("Runtime::add()");
    if (status.ok()) status = why_unsafe(served);
    if (!status.ok()) return status;
    if (nodes.size() == 1) {
        node.on_context([&] { status = add_on_all(served); });
        return status;
    }
    const auto lock = lock_serving();
    return add_on_all(served);
}

// The call that has the lock may wait for a context that this thread turns.
std::unique_lock<std::mutex> RuntimeImpl::lock_serving() {
    if (!commons.options.manual || commons.parts.advance_time) return std::unique_lock(serving_);
    static constexpr Duration retry_interval = 1ms;
    const LoopNotifier after(commons);
    std::unique_lock lock(serving_, std::defer_lock);
    while (!lock.try_lock()) OwnTurns(commons).turn_and_wait(retry_interval);
    return lock;
}

// Registers all methods of the service on all contexts or none, also when registering them throws.
Status RuntimeImpl::add_on_all(const Served& served) {
    std::vector<std::size_t> methods_before;
    const auto undo = [&] {
        for (std::size_t i = 0; i < methods_before.size(); ++i) {
            nodes[i]->on_context([&] {
                nodes[i]->server.remove_last_methods(methods_before[i]);
                if (served.factory) nodes[i]->services.pop_back();
            });
        }
    };
    Status status;
    try {
        status = on_each([&](Node& to) {
            const std::size_t before = to.server.methods();
            Status added = add_on_thread(to, served);
            if (added.ok()) methods_before.push_back(before);
            return added;
        });
    } catch (...) {
        undo();
        throw;
    }
    if (!status.ok()) {
        undo();
        return status;
    }
    if (served.service) {
        services_.push_back(served.service);
        register_served(*served.service, weak_from_this());
    }
    return {};
}

Status RuntimeImpl::add_on_thread(Node& to, const Served& served) {
    if (Status why = why_not_served(to); !why.ok()) return why;
    std::unique_ptr<Service> made;
    if (served.factory) {
        made = (*served.factory)({ContextRef(shared_from_this(), to.index), to.index,
                                  static_cast<unsigned>(nodes.size())});
        if (!made) {
            return fail(Code::invalid_argument,
                        "the function that makes a service for each context returned none for "
                        "context " +
                            std::to_string(to.index));
        }
    }
    Service& service = made ? *made : *served.service;
    UndoMethods undo(to.server);
    ServerMethods methods(to.server);
    service.register_methods(methods);
    if (Status failed = methods.take_error(); !failed.ok()) return failed;
    if (made) to.services.push_back(std::move(made));
    undo.keep();
    return {};
}

// ---- addresses ---------------------------------------------------------------------------------

Result<std::vector<RuntimeImpl::Place>> RuntimeImpl::parse_places(
    const std::vector<std::string>& uris) const {
    std::vector<Place> places;
    for (const std::string& uri : uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status();
        Result<na::Provider*> provider = commons.parts.providers->find(address->scheme);
        if (!provider) return std::move(provider).status();
        places.push_back({*std::move(address), *provider, nullptr});
    }
    return places;
}

Status RuntimeImpl::serve(const Served& served, const std::vector<std::string>& uris) {
    Status status = node.context.why_forked();
    if (status.ok()) status = why_not_in_turn("Runtime::serve()");
    if (!status.ok()) return status;
    if (uris.empty()) {
        return fail(Code::invalid_argument,
                    "Runtime::serve(): no address to listen on; Runtime::add() serves without one");
    }
    if (Status why = why_unsafe(served); !why.ok()) return why;
    Result<std::vector<Place>> places = parse_places(uris);
    if (!places) return std::move(places).status();
    if (nodes.size() == 1) {
        node.on_context([&] { status = serve_on_all(served, *std::move(places), uris); });
        return status;
    }
    const auto lock = lock_serving();
    return serve_on_all(served, *std::move(places), uris);
}

// All steps that can fail precede every lasting change: a failed call leaves the runtime unchanged.
Status RuntimeImpl::serve_on_all(const Served& served, std::vector<Place> places,
                                 const std::vector<std::string>& uris) {
    if (Status status = open_doors(places, uris); !status.ok()) return status;
    Opened opened(nodes.size());
    // An endpoint is the thread's of its context, at its end, too.
    struct Discard {
        RuntimeImpl& impl;
        Opened& opened;
        ~Discard() {
            for (const auto& one : impl.nodes) {
                if (!opened[one->index].empty())
                    one->on_context([&] { opened[one->index].clear(); });
            }
        }
    } discard{*this, opened};
    if (Status status = open_endpoints(places, uris, opened); !status.ok()) return status;
    const bool is_new =
        !served.is_none() &&
        (served.factory || std::ranges::find(services_, served.service) == services_.end());
    if (is_new) {
        if (Status status = add_on_all(served); !status.ok()) return status;
    }
    return on_each([&](Node& at) {
        std::vector<Node::EndpointPtr> own = std::move(opened[at.index]);
        opened[at.index].clear();
        for (Node::EndpointPtr& endpoint : own) {
            if (at.index == 0) publish(*endpoint);
            at.add_endpoint(std::move(endpoint));
        }
        return Status();
    });
}

// A context alone needs no door; a provider that can't share one gives none.
Status RuntimeImpl::open_doors(std::vector<Place>& places, const std::vector<std::string>& uris) {
    if (nodes.size() == 1) return {};
    for (std::size_t i = 0; i < places.size(); ++i) {
        na::DoorParts parts;
        parts.contexts = commons.contexts();
        parts.peers_max = static_cast<std::uint32_t>(commons.options.peers_max);
        // The doors end with the endpoints, before the nodes.
        parts.post = [this](std::uint16_t context, Function<void()> work) {
            nodes[context]->context.post(std::move(work));
        };
        parts.load_of = [this](std::uint16_t context, TimePoint now) {
            return nodes[context]->load(now);
        };
        Result<std::shared_ptr<na::Door>> door = places[i].provider->open_door(
            places[i].address, std::move(parts), commons.parts.clock->now());
        if (!door) return std::move(door).status().in("can't listen on " + uris[i]);
        places[i].door = *std::move(door);
    }
    return {};
}

Status RuntimeImpl::open_endpoints(const std::vector<Place>& places,
                                   const std::vector<std::string>& uris, Opened& opened) {
    return on_each([&](Node& at) {
        if (Status why = why_not_served(at); !why.ok()) return why;
        std::vector<Node::EndpointPtr>& own = opened[at.index];
        for (std::size_t i = 0; i < places.size(); ++i) {
            const Place& place = places[i];
            if (!place.door && at.index != 0) continue;
            const Node::Listen listen{place.door ? nullptr : &place.address, place.door};
            Result<Node::EndpointPtr> endpoint =
                at.make_endpoint(*place.provider, listen, own.size());
            if (!endpoint) return std::move(endpoint).status().in("can't listen on " + uris[i]);
            own.push_back(*std::move(endpoint));
        }
        return Status();
    });
}

// Thread: that of context 0.
void RuntimeImpl::publish(const na::Endpoint& endpoint) {
    const std::string address = endpoint.address();
    connect_policy_.add(address);
    na::ListenerAddresses typed = na::reachable_addresses(address);
    if (!typed.incomplete_because.ok()) commons.log.warning(typed.incomplete_because.text());
    const std::lock_guard lock(addresses_mutex_);
    std::ranges::move(typed.uris, std::back_inserter(addresses_));
}

}  // namespace weft::api
