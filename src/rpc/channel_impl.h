// The state that the copies of a Channel share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bulk/bulk.h"
#include "rpc/client.h"

namespace weft::rpc {

inline CallTraits traits_of(const CallOptions& options) {
    return {static_cast<std::uint8_t>(options.idempotent * idempotent_flag), options.priority};
}

class ChannelImpl;

// The other channels to the same server: of each context of this runtime (legs), and to each
// context of the server.
class LegSource {
  public:
    virtual ~LegSource() = default;
    // The channel to a context of the server, which the source owns; made when needed. Its
    // operations fail where it can't be made. Thread: any; another one than a context's of the
    // runtime waits for the channel's.
    virtual ChannelImpl& pinned(std::uint16_t context) = 0;
    // Contexts of the server, as of the last connection of any of these channels; 0: none so far.
    virtual std::uint16_t contexts() const = 0;
    // The channel of that context, made when needed. Thread: in a turn of it. Errors:
    // RESOURCE_EXHAUSTED, UNAVAILABLE.
    virtual Result<ChannelImpl*> leg(std::uint16_t context, const ChannelImpl& home) = 0;
    // The same, which must have been made. Thread: any that has an id of it.
    virtual ChannelImpl& made(std::uint16_t context) const = 0;
};

// Operations of a leg have ids that name its context, because each context counts its own.
struct LegTag {
    static constexpr unsigned shift = 25;
    static OperationId add(OperationId id, std::uint16_t context) {
        if (id.generation == 0) return id;
        WEFT_DCHECK(id.slot >> shift == 0);
        return {id.slot | (context + 1u) << shift, id.generation};
    }
    // The context of the leg that has the operation, plus 1; 0: the channel itself has it.
    static std::uint16_t of(OperationId id) { return static_cast<std::uint16_t>(id.slot >> shift); }
    static OperationId remove(OperationId id) {
        return {id.slot & ((1u << shift) - 1), id.generation};
    }
};

class ChannelImpl : public std::enable_shared_from_this<ChannelImpl> {
  public:
    // `owner` keeps the referenced objects alive (api/runtime_impl.h).
    ChannelImpl(std::shared_ptr<void> owner, core::Context& context, Client& client,
                bulk::Bulk& bulk, core::PeerRef peer, std::string uri, Duration default_timeout)
        : owner_(std::move(owner)),
          context_(context),
          client_(client),
          bulk_(bulk),
          peer_(peer),
          uri_(std::move(uri)),
          default_timeout_(default_timeout) {}
    ~ChannelImpl();

    // Where a call of another context goes. Set before use; a leg has none.
    void set_legs(std::unique_ptr<LegSource> legs);
    LegSource* legs() const { return legs_.get(); }
    // A channel of another context to the same server.
    std::shared_ptr<ChannelImpl> leg_at(core::Context& context, Client& client, bulk::Bulk& bulk,
                                        core::PeerRef peer) const {
        return std::make_shared<ChannelImpl>(owner_, context, client, bulk, peer, uri_,
                                             default_timeout_);
    }
    // The channel for a turn of another context of the runtime, which the calling thread is in;
    // nullptr: it is in none. Keeps this one.
    Result<std::shared_ptr<ChannelImpl>> leg_here();
    bool is_in_relative() const { return legs_ && context_.relative_here(); }

    static Channel handle(std::shared_ptr<ChannelImpl> impl) { return Channel(std::move(impl)); }
    // The context on which an operation that begins now completes.
    core::Context& context_here();
    // nullptr: the channel is empty.
    static const std::shared_ptr<ChannelImpl>& of(const Channel& channel) { return channel.impl_; }

    // `body` by value, so that it stays in registers.
    OperationId call(const MethodId& method, BodyWriter body, const CallOptions& options,
                     Completion&& done);
    OperationId transfer(na::RmaKind kind, const RegionRef& remote, std::uint64_t offset,
                         Buffer local, const CallOptions& options, TransferCompletion done);
    // (A forked child has no operations: the ids that it holds are the parent's.)
    void cancel_call(OperationId id);
    void cancel_transfer(OperationId id);
    // The operation will never run its completion. For awaiters that are destroyed. Aborts on a
    // thread other than the context's, where the completion may be running.
    void abandon_call(OperationId id);
    void abandon_transfer(OperationId id);

    Status why_not_admitted(std::size_t bytes) const;
    Status why_forked() const;
    // Includes the deadline inherited from a handler, also from one of another context.
    TimePoint effective_deadline(const CallOptions& options) const;

    const std::string& uri() const { return uri_; }
    core::Context& context() { return context_; }
    core::PeerRef peer() const { return peer_; }

  private:
    // As leg_here(), for the duration of one operation; an error is passed to `done`, later.
    template <class Done>
    std::optional<ChannelImpl*> leg_for(Done& done);
    ChannelImpl* leg_of(OperationId id) const;
    void refuse(std::size_t bytes, Completion done);
    // Rare options, or options out of range.
    [[gnu::noinline]] OperationId call_unusual(const MethodId& method, const BodyWriter& body,
                                               const CallOptions& options, Completion&& done);
    OperationId call_with_inline_bulk(const MethodId& method, const BodyWriter& body,
                                      const CallOptions& options, Completion&& done);
    OperationId call_from_other_turn(const MethodId& method, const BodyWriter& body,
                                     const CallOptions& options, Completion&& done);
    OperationId call_from_other_thread(const MethodId& method, const BodyWriter& body,
                                       const CallOptions& options, Completion&& done);
    [[gnu::noinline]] OperationId call_nested(const MethodId& method, const BodyWriter& body,
                                              const CallOptions& options, Completion&& done);
    void post_call(const MethodId& method, const BodyWriter& body, const CallOptions& options,
                   Completion&& done);
    TimePoint deadline_of(const CallOptions& options, TimePoint now) const;
    [[gnu::noinline]] TimePoint explicit_deadline(Duration timeout) const;

    std::shared_ptr<void> owner_;
    core::Context& context_;
    Client& client_;
    bulk::Bulk& bulk_;
    const core::PeerRef peer_;
    const std::string uri_;
    const Duration default_timeout_;
    std::unique_ptr<LegSource> legs_;  // nullptr: this is a leg.
};

}  // namespace weft::rpc
