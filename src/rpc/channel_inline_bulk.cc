// Calls that carry the memory of a reference in their request.
#include "base/assert.h"
#include "rpc/body.h"
#include "rpc/channel_impl.h"
#include "rpc/inline_bulk.h"

namespace weft::rpc {

namespace {

struct InlineBulkCall {
    core::Context& context;
    Client& client;
    bulk::Bulk& bulk;
    SpreadTarget target;
    MethodId method;
    TimePoint deadline;
    CallTraits traits;
    RegionRef ref;
    bool is_detached;

    // Thread: the context's. Memory that can't be sent inline is left to the handler's transfers.
    CallId submit(const BodyWriter& body, Completion&& done) const {
        WEFT_DCHECK(!context.is_on_other_thread());
        const core::PeerRef peer = target.pick();
        const core::Peer* known = context.find(peer);
        const bool small = known && ref.length <= inline_bulk_bytes_max;
        const Bytes memory = small ? bulk.regions->memory_of(ref) : Bytes();
        const bool is_read = allows(ref.access, Access::read);
        InlineBulkCopy copy;
        const ByteView bytes =
            is_read && !memory.empty() ? copy.readable(*bulk.arena, memory) : ByteView();
        // Inaccessible memory is refused later, when the handler transfers it as bulk.
        const bool is_good =
            !memory.empty() && (!is_read || !bytes.empty()) &&
            (!allows(ref.access, Access::write) || na::is_accessible(*bulk.arena, memory, true));
        InlineBulkBody inline_bulk(body, ref, bytes);
        const std::size_t most = known ? client.eager_bytes_max(*known) : 0;
        const bool fits = is_good && body.bytes <= most && inline_bulk.size() <= most;
        CallTraits with = traits;
        if (fits) with.flags |= inline_bulk_flag;
        const BodyWriter all = fits ? inline_bulk.writer() : BodyWriter(body);
        core::CallScope* const scope = is_detached ? nullptr : context.scope();
        return scope ? client.submit_nested(*scope, peer, method, all, deadline, with,
                                            std::move(done))
                     : client.submit_to(peer, method, BodyWriter(all), deadline, with,
                                        std::move(done));
    }
};

}  // namespace

OperationId ChannelImpl::call_with_inline_bulk(const MethodId& method, const BodyWriter& body,
                                               const CallOptions& options, Completion&& done) {
    const InlineBulkCall inline_bulk{context_,
                                     client_,
                                     bulk_,
                                     target(),
                                     method,
                                     effective_deadline(options),
                                     traits_of(options),
                                     *options.inline_bulk,
                                     options.detached};
    if (const core::ThreadOwnership::UseGuard here(context_); here) {
        if (!context_.in_turn()) context_.refresh_time();
        return std::bit_cast<OperationId>(inline_bulk.submit(body, std::move(done)));
    }
    if (context_.is_forked()) {
        done(why_forked(), {});
        return {};
    }
    const std::size_t bytes = core::submission_bytes(body.bytes);
    core::Context::Admission admission(context_, bytes);
    if (!admission) {
        refuse(bytes, std::move(done));
        return {};
    }
    std::vector<std::byte> copy(body.bytes);
    copy_body(body, copy.data());
    context_.post([owner = owner_, inline_bulk, admission = std::move(admission),
                   copy = std::move(copy), done = std::move(done)]() mutable {
        admission.release();
        inline_bulk.submit(BodyWriter::of(copy), std::move(done));
    });
    return {};
}

}  // namespace weft::rpc
