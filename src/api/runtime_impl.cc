#include "api/runtime_impl.h"

#include <sys/epoll.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "base/assert.h"
#include "base/exiting.h"
#include "base/internal_thread.h"
#include "base/range.h"
#include "coll/group_impl.h"

namespace weft::api {

RuntimeImpl::RuntimeImpl(RuntimeOptions options, LogSink sink, RuntimeParts parts)
    : commons(std::move(options), std::move(sink), std::move(parts)),
      nodes(make_nodes(commons)),
      node(*nodes.front()),
      collectives(
          node.context, node.server,
          [this](const std::vector<std::string>& uris, const core::ConnectPolicy* named_by) {
              return named_by ? node.connect_named(uris, connect_policy_, *named_by)
                              : node.connect(uris, 1);
          },
          [this](Function<void()> work) { return node.on_context(std::move(work)); },
          commons.options.argument_bytes_max) {}

// Each on a thread that runs where its context will: the memory that the thread touches first is
// near to its cpu then.
std::vector<std::unique_ptr<Node>> RuntimeImpl::make_nodes(Commons& commons) {
    std::vector<std::unique_ptr<Node>> nodes;
    const std::vector<unsigned>& cpus = commons.options.cpus;
    for (std::uint16_t i = 0; i < commons.contexts(); ++i) {
        std::unique_ptr<Node> made;
        const Node* const first = i == 0 ? nullptr : nodes.front().get();
        const auto make = [&] { made = std::make_unique<Node>(commons, i, first); };
        if (cpus.empty() || commons.options.manual) {
            make();
        } else {
            std::exception_ptr thrown;
            base::start_internal_thread([&] {
                (void)base::bind_internal_thread(cpus[i % cpus.size()]);  // start() reports it.
                try {
                    make();
                } catch (...) {
                    thrown = std::current_exception();
                }
            }).join();
            if (thrown) std::rethrow_exception(thrown);
            made->context.bind_thread();
        }
        nodes.push_back(std::move(made));
        Node& node = *nodes.back();
        commons.layers.push_back({node.context, node.client, node.bulk});
        commons.nodes.push_back(&node);
    }
    return nodes;
}

Result<std::shared_ptr<RuntimeImpl>> RuntimeImpl::make(RuntimeOptions options, RuntimeParts parts) {
    WEFT_ASSERT(parts.clock && parts.random && parts.providers);
    base::watch_exit();  // With options.manual this thread may turn the runtime.
    LogSink sink = std::exchange(options.log_sink, {});  // The log releases it.
    std::shared_ptr<RuntimeImpl> impl;
    try {
        impl.reset(new RuntimeImpl(std::move(options), std::move(sink), std::move(parts)));
    } catch (const std::system_error& error) {
        return core::no_thread(error);  // Of make_nodes().
    }
    if (!impl->stop_event_) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    for (const auto& node : impl->nodes) {
        if (Status status = node->prepare(impl); !status.ok()) return status;
    }
    if (Status status = impl->open_loop(); !status.ok()) return status;
    impl->commons.log.set_defer_delivery([impl = impl.get()] {
        return std::ranges::any_of(impl->nodes,
                                   [](const auto& node) { return node->defer_log_delivery(); });
    });
    impl->collectives.default_timeout = impl->commons.options.default_timeout;
    for (const auto& node : impl->nodes) {
        if (Status status = node->start(); !status.ok()) return status;
    }
    impl->watch();
    return impl;
}

Status RuntimeImpl::open_loop() {
    if (nodes.size() == 1 || !commons.options.manual || commons.parts.advance_time) return {};
    loop_ = base::UniqueFd::close_on_fork([] { return epoll_create1(EPOLL_CLOEXEC); });
    for (const auto& one : nodes) {
        epoll_event event{};
        event.events = EPOLLIN;
        if (!loop_ || epoll_ctl(loop_.get(), EPOLL_CTL_ADD, one->driver.wait_fd(), &event) != 0)
            return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    return {};
}

int RuntimeImpl::loop_fd() const { return nodes.size() == 1 ? node.driver.wait_fd() : loop_.get(); }

RuntimeImpl::~RuntimeImpl() {
    shutdown();
    unwatch();
}

void RuntimeImpl::on_forked() noexcept {
    self_ = weak_from_this().lock();
    for (const auto& one : nodes) {
        one->context.on_forked();
        one->driver.on_forked();
    }
}

std::vector<std::string> RuntimeImpl::addresses() {
    if (node.context.is_forked()) return {};
    const std::lock_guard lock(addresses_mutex_);
    return addresses_;
}

Node& RuntimeImpl::current() {
    if (nodes.size() == 1) return node;
    for (const Executor* const here : core::ThreadOwnership::entered_contexts()) {
        const auto found =
            std::ranges::find_if(nodes, [&](const auto& one) { return &one->context == here; });
        if (found != nodes.end()) return **found;
    }
    if (!commons.options.manual || commons.parts.advance_time) return node;
    const auto own = std::ranges::find_if(nodes, [](const auto& one) {
        return one->context.has_turned() && one->context.on_thread();
    });
    return own == nodes.end() ? node : **own;
}

bool RuntimeImpl::is_entered() const {
    if (!core::Context::is_any_entered()) return false;
    return std::ranges::any_of(nodes, [](const auto& one) { return one->context.is_entered(); });
}

void RuntimeImpl::check_for_stall() {
    for (const auto& one : nodes) one->check_for_stall();
}

Status shutting_down() { return fail(Code::unavailable, "the runtime is shutting down"); }

Status RuntimeImpl::why_not_in_turn(const char* call) const {
    if (nodes.size() == 1 || (!is_entered() && acting_ != std::this_thread::get_id())) return {};
    return fail(Code::failed_precondition,
                std::string(call) +
                    " in a callback, handler or coroutine of a runtime with several contexts would "
                    "wait for the others, which may wait for this one: call it on another thread");
}

Result<Channel> RuntimeImpl::connect(const std::vector<std::string>& uris,
                                     const ConnectOptions& with) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    if (with.spread < 1 || with.spread > na::contexts_max)
        return base::out_of_range("ConnectOptions", "spread", with.spread,
                                  {.min = 1, .max = na::contexts_max});
    Result<Channel> channel = fail(Code::internal, "");
    Node& here = current();
    if (!here.on_context([&] { channel = here.connect(uris, 0, with.spread); }))
        return shutting_down();
    return channel;
}

Result<Region> RuntimeImpl::expose(Buffer memory, ExposeOptions with) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    Result<Region> region = fail(Code::internal, "");
    Node& here = current();
    const auto expose = [&] { region = here.bulk.regions->expose(std::move(memory), with); };
    if (!here.on_context(expose)) return shutting_down();
    return region;
}

static Status empty_view() {
    return fail(Code::invalid_argument,
                "an empty weft::GroupView, default-made or moved from, is of no group; "
                "GroupView::make(), parse() and load() return one that is");
}

Result<Group> RuntimeImpl::group(GroupView view) {
    if (Status why = coll::why_not_here(node.context, "Runtime::group()"); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    Result<Group> group = fail(Code::internal, "");
    const bool has_run = node.on_context([&] {
        std::shared_ptr<coll::GroupState> known = collectives.joined(view.name());
        if (!known) known = collectives.make_group(shared_from_this(), std::move(view));
        group = Group(std::make_shared<coll::GroupImpl>(collectives, std::move(known)));
    });
    if (!has_run) return shutting_down();
    return group;
}

Status RuntimeImpl::join(GroupView view, std::uint32_t rank) {
    if (Status why = coll::why_not_here(node.context, "Runtime::join()"); !why.ok()) return why;
    if (view.size() == 0) return empty_view();
    if (!view.find(rank)) {
        return fail(Code::out_of_range, "group '" + view.name() + "' has no rank " +
                                            std::to_string(rank) + " in epoch " +
                                            std::to_string(view.epoch()));
    }
    Status status;
    const bool has_run = node.on_context([&] {
        status = why_not_served(node);
        if (!status.ok()) return;
        auto group = collectives.make_group(shared_from_this(), std::move(view));
        group->own_rank = rank;
        status = collectives.join(std::move(group));
    });
    return has_run ? status : shutting_down();
}

}  // namespace weft::api
