// The state that the copies of a Channel share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bulk/bulk.h"
#include "rpc/client.h"
#include "rpc/spread_peers.h"

namespace weft::rpc {

inline CallTraits traits_of(const CallOptions& options) {
    return {static_cast<std::uint8_t>(options.idempotent * idempotent_flag), options.priority};
}

class ChannelImpl;
struct ServerFacts;

// The other channels to the same server: of each context of this runtime (legs), and to each
// context of the server.
class LegSource {
  public:
    virtual ~LegSource() = default;
    // The channel to a context of the server, which the source owns; made when needed. Its
    // operations fail where it can't be made. Those of a forked child fail, too. Thread:
    // any; another one than a context's of the runtime waits for the channel's.
    virtual ChannelImpl& pinned(std::uint16_t context) = 0;
    // Contexts of the server, as of the last connection of any of these channels, or the last one
    // refused by their number; 0: none so far.
    virtual std::uint16_t contexts() const = 0;
    // The channel of that context, made when needed. Thread: in a turn of it. Errors:
    // RESOURCE_EXHAUSTED, UNAVAILABLE.
    virtual Result<ChannelImpl*> leg(std::uint16_t context, const ChannelImpl& home) = 0;
    // The same; nullptr: it was not made yet. Thread: in a turn of it, or any that has an id of it.
    virtual ChannelImpl* made(std::uint16_t context) const = 0;
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

    // Where a call of another context goes, of so many of this runtime. Set before use; a leg has
    // none.
    void set_legs(std::unique_ptr<LegSource> legs, std::size_t contexts);
    // The channel that this is a leg of, which keeps it; itself, if it is none.
    ChannelImpl& home() { return home_ ? *home_ : *this; }
    void set_home(ChannelImpl& home) { home_ = &home; }
    // From now on calls in turns of that context go to its leg directly. Thread: in such a turn.
    void set_direct_leg(std::uint16_t context, ChannelImpl& leg) {
        direct_legs_[context].leg = &leg;
    }
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
    TimePoint effective_deadline(const CallOptions& options, TimePoint now) const;

    const std::string& uri() const { return uri_; }
    core::Context& context() { return context_; }
    core::PeerRef peer() const { return peer_; }
    // Operations choose among several connections, if the facts say so. Call before use.
    void set_spread(std::shared_ptr<const ServerFacts> facts);
    bool has_spread() const { return spread_ != nullptr; }
    // There is no peer yet: operations that begin add it, to the context `wanted` - 1 of the
    // server. Call before use.
    void add_peer_later(std::shared_ptr<const ServerFacts> facts, std::uint16_t wanted);

  private:
    // Alone in its lines: written by its context, while others read theirs.
    struct alignas(128) DirectLeg {
        ChannelImpl* leg = nullptr;
    };
    // As leg_here(), for the duration of one operation; an error is passed to `done`, later.
    template <class Done>
    std::optional<ChannelImpl*> leg_for(Done& done);
    // The leg that calls in a turn of `here` go to directly; nullptr: none.
    ChannelImpl* direct_leg(const core::Context* here) const;
    SpreadTarget target() const { return {peer_, spread_}; }
    // This channel or its leg; nullptr: neither has ever had such an operation.
    ChannelImpl* owner_of(OperationId id);
    void refuse(std::size_t bytes, Completion done);
    // Rare options, or options out of range.
    [[gnu::noinline]] OperationId call_unusual(const MethodId& method, const BodyWriter& body,
                                               const CallOptions& options, Completion&& done);
    OperationId call_with_inline_bulk(const MethodId& method, const BodyWriter& body,
                                      const CallOptions& options, Completion&& done);
    [[gnu::noinline]] OperationId call_out_of_turn(const MethodId& method, const BodyWriter& body,
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

    // ---- the other connections to the server
    std::unique_ptr<LegSource> legs_;      // nullptr: this is a leg,
    ChannelImpl* home_ = nullptr;          // of this one.
    std::shared_ptr<SpreadPeers> spread_;  // nullptr: all operations go to peer_.
    // Calls in a turn of this context go to peer_ directly; with spread_ of none.
    const void* direct_ = &context_;
    // Those in a turn of another context of the family, to a leg. No context is of family 0.
    std::uint64_t family_ = 0;
    std::unique_ptr<DirectLeg[]> direct_legs_;  // By contexts of this runtime.
};

}  // namespace weft::rpc
