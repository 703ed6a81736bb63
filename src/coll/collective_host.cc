#include "coll/collective_host.h"

namespace weft::coll {

CollectiveHost::CollectiveHost(core::Context& context, rpc::Server& server, Connect connect,
                               RunOnContext run, std::size_t reply_bytes_max)
    : context_(context),
      server_(server),
      connect_(std::move(connect)),
      run_on_context_(std::move(run)),
      reply_bytes_max_(reply_bytes_max),
      clock_(context.random().next()),
      secret_(context.random().next() | 1) {}

namespace {
struct DeferredCompletion {
    core::ScopedOperation scope_hook;
    GroupOutcome outcome;
    GroupCompletion done;
};
}  // namespace

void CollectiveHost::complete_later(const GroupCallOptions& options, GroupOutcome outcome,
                                    GroupCompletion done) const {
    auto completion = std::make_unique<DeferredCompletion>();
    completion->outcome = std::move(outcome);
    completion->done = std::move(done);
    if (core::CallScope* const scope = scope_of(options)) scope->add(completion->scope_hook);
    context_.post([&context = context_, completion = std::move(completion)] {
        const core::Context::ScopeGuard scope_guard(context, completion->scope_hook.scope);
        completion->scope_hook.detach();
        completion->done(std::move(completion->outcome));
    });
}

Result<base::SlotId> CollectiveHost::run_here(std::uint64_t method, ByteView body, TimePoint until,
                                              const ClientKey& client, rpc::LocalCompletion done) {
    struct Within {
        ~Within() { at = before; }
        ClientKey& at;
        const ClientKey before;
    };
    const Within within{current_client_, std::exchange(current_client_, client)};
    return server_.dispatch_local(method, body, until, std::move(done));
}

ClientKey CollectiveHost::client_of(const Call& call) const {
    const SessionKey peer = session_key_of(call);
    return peer == SessionKey() ? current_client_ : ClientKey(peer);
}

}  // namespace weft::coll
