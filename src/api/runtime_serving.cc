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
struct ReceivedMethods final : MethodRegistrar {
    void add(const MethodId& method, RawHandler handler, MethodTraits with) override {
        all.push_back(std::make_unique<rpc::Method>(method.name, std::move(handler), with));
    }
    std::vector<std::unique_ptr<rpc::Method>> all;
};

// While it lives, the calling thread is the acting one (RuntimeImpl::why_not_in_turn()).
class ActingThread {
  public:
    explicit ActingThread(std::atomic<std::thread::id>& of)
        : of_(of), outer_(of.exchange(std::this_thread::get_id())) {}
    ActingThread(const ActingThread&) = delete;
    ActingThread& operator=(const ActingThread&) = delete;
    ~ActingThread() { of_ = outer_; }

  private:
    std::atomic<std::thread::id>& of_;
    const std::thread::id outer_;
};

}  // namespace

Status RuntimeImpl::on_each(const std::function<Status(Node&)>& work) {
    for (const auto& one : nodes) {
        Status status;
        if (!one->on_context([&] { status = work(*one); })) return shutting_down();
        if (!status.ok()) return status;
    }
    return {};
}

// Thread: the context's.
Status RuntimeImpl::why_not_served(const Node& at) const {
    WEFT_ASSERT(!at.context.is_on_other_thread());
    if (at.context.is_closed()) return shutting_down();
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
    const auto kept = shared_from_this();  // exit() may end the runtime meanwhile.
    Status status = node.context.why_forked();
    if (status.ok()) status = why_not_in_turn("Runtime::add()");
    if (status.ok()) status = why_unsafe(served);
    if (!status.ok()) return status;
    if (nodes.size() == 1) {
        const bool has_run = node.on_context([&] { status = add_on_all(served); });
        return has_run ? status : shutting_down();
    }
    const auto lock = lock_serving();
    const ActingThread acting(acting_);
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

// Adds all methods of the service on all contexts or none, also when the program's part throws.
// Clients reach a method once the steps that can fail have succeeded on all contexts, so nothing
// that runs is undone.
Status RuntimeImpl::add_on_all(const Served& served) {
    Made made(nodes.size());
    struct Discard {
        RuntimeImpl& impl;
        Made& made;
        std::size_t begun = 0;  // Contexts.
        ~Discard() {
            for (std::size_t i = 0; i < begun; ++i) {
                Node& at = *impl.nodes[i];
                if (at.on_context([&] { impl.discard_on_thread(at, made[i]); })) continue;
                base::keep_forever(std::move(made));  // As exit() left the rest.
                return;
            }
        }
    } discard{*this, made};
    Status status = on_each([&](Node& at) {
        Status begun = begin_on_thread(at, served);
        if (begun.ok()) ++discard.begun;
        return begun;
    });
    if (status.ok())
        status = on_each([&](Node& to) { return stage_on_thread(to, served, made[to.index]); });
    if (status.ok())
        status = on_each([&](Node& at) { return register_on_thread(at, served, made); });
    if (status.ok()) status = publish_on_all(made);
    if (status.ok()) discard.begun = 0;
    return status;
}

Status RuntimeImpl::begin_on_thread(Node& at, const Served& served) {
    Status status = why_not_served(at);
    if (status.ok() && served.factory) at.context.services().set(made_services_);
    return status;
}

Status RuntimeImpl::stage_on_thread(Node& to, const Served& served,
                                    std::unique_ptr<Service>& result) {
    if (Status why = why_not_served(to); !why.ok()) return why;
    const ActingThread acting(acting_);
    if (served.factory) {
        result = (*served.factory)({ContextRef(shared_from_this(), to.index), to.index,
                                    static_cast<unsigned>(nodes.size())});
        if (!result) {
            return fail(Code::invalid_argument,
                        "the function that makes a service for each context returned none for "
                        "context " +
                            std::to_string(to.index));
        }
    }
    ReceivedMethods methods;
    (result ? *result : *served.service).register_methods(methods);
    return to.server.stage_methods(std::move(methods.all));
}

// The last step that can fail: publishing allocates nothing but what passes the work on.
Status RuntimeImpl::register_on_thread(const Node& at, const Served& served, const Made& made) {
    if (at.context.is_closed()) return shutting_down();
    MadeServices::Own& own = (*made_services_)[at.index];
    if (made[at.index]) own.reserve(own.size() + 1);
    if (!served.service || at.index + 1u != nodes.size()) return {};
    services_.reserve(services_.size() + 1);
    register_served(*served.service, weak_from_this());
    services_.push_back(served.service);
    return {};
}

// Half of the contexts would serve the methods after a failure, so only the end of the runtime, or
// exit(), is one.
Status RuntimeImpl::publish_on_all(Made& made) noexcept {
    return on_each([&](Node& at) {
        if (at.context.is_closed()) return shutting_down();
        if (std::unique_ptr<Service>& service = made[at.index]) {
            (*made_services_)[at.index].push_back(std::move(service));
            at.context.services().set(made_services_);
        }
        at.server.publish_methods();
        return Status();
    });
}

// A coroutine of the service may go on, and uses it: it is destroyed with the others.
void RuntimeImpl::discard_on_thread(Node& at, std::unique_ptr<Service>& made) {
    at.server.drop_staged_methods();
    const auto kept = std::static_pointer_cast<MadeServices>(at.context.services().get());
    if (kept && made) {
        const std::lock_guard lock(kept->late_mutex);
        kept->late.push_back(std::move(made));
    }
    made.reset();
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
    const auto kept = shared_from_this();  // exit() may end the runtime meanwhile.
    Status status = node.context.why_forked();
    if (status.ok())
        status = why_not_in_turn(served.is_none() ? "Runtime::listen()" : "Runtime::serve()");
    if (!status.ok()) return status;
    if (uris.empty()) {
        return fail(Code::invalid_argument,
                    "Runtime::serve(): no address to listen on; Runtime::add() serves without one");
    }
    if (Status why = why_unsafe(served); !why.ok()) return why;
    Result<std::vector<Place>> places = parse_places(uris);
    if (!places) return std::move(places).status();
    if (nodes.size() == 1) {
        const bool has_run =
            node.on_context([&] { status = serve_on_all(served, *std::move(places), uris); });
        return has_run ? status : shutting_down();
    }
    const auto lock = lock_serving();
    const ActingThread acting(acting_);
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
                std::vector<Node::EndpointPtr>& own = opened[one->index];
                if (own.empty() || one->on_context([&] { own.clear(); })) continue;
                base::keep_forever(std::move(opened));  // As exit() left the rest.
                return;
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
    Status status = on_each([&](Node& at) {
        if (at.context.is_closed()) return shutting_down();
        std::vector<Node::EndpointPtr> own = std::move(opened[at.index]);
        opened[at.index].clear();
        for (Node::EndpointPtr& endpoint : own) at.add_endpoint(std::move(endpoint));
        return Status();
    });
    // All contexts poll their endpoints.
    const auto publish_all = [&] {
        for (const Place& place : places) publish(place);
    };
    if (status.ok() && !node.on_context(publish_all)) status = shutting_down();
    return status;
}

// A context alone needs no door; a provider that can't share one gives none.
Status RuntimeImpl::open_doors(std::vector<Place>& places, const std::vector<std::string>& uris) {
    if (nodes.size() == 1) return {};
    for (std::size_t i = 0; i < places.size(); ++i) {
        na::DoorParts parts;
        parts.contexts = commons.contexts();
        parts.incarnation = commons.incarnation;
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

Status RuntimeImpl::open_endpoints(std::vector<Place>& places, const std::vector<std::string>& uris,
                                   Opened& opened) {
    return on_each([&](Node& at) {
        if (Status why = why_not_served(at); !why.ok()) return why;
        std::vector<Node::EndpointPtr>& own = opened[at.index];
        for (std::size_t i = 0; i < places.size(); ++i) {
            Place& place = places[i];
            if (!place.door && at.index != 0) continue;
            const Node::Listen listen{place.door ? nullptr : &place.address, place.door};
            Result<Node::EndpointPtr> endpoint =
                at.make_endpoint(*place.provider, listen, own.size());
            if (!endpoint) return std::move(endpoint).status().in("can't listen on " + uris[i]);
            own.push_back(*std::move(endpoint));
            if (at.index == 0) place.uri = own.back()->address();
        }
        return Status();
    });
}

// Thread: that of context 0.
void RuntimeImpl::publish(const Place& place) {
    connect_policy_.add(place.uri);
    if (place.door) place.door->start();
    na::ListenerAddresses typed = na::reachable_addresses(place.uri);
    if (!typed.incomplete_because.ok()) commons.log.warning(typed.incomplete_because.text());
    if (nodes.size() > 1 && !place.door) {
        commons.log.info("context 0 serves " + place.uri +
                         " alone: this transport passes no connection on to another context");
    }
    const std::lock_guard lock(addresses_mutex_);
    std::ranges::move(typed.uris, std::back_inserter(addresses_));
}

}  // namespace weft::api
