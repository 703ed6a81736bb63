// The client's handle on one server.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <weft/buffer.h>
#include <weft/bytes.h>
#include <weft/call_options.h>
#include <weft/executor.h>
#include <weft/function.h>
#include <weft/method.h>
#include <weft/region.h>
#include <weft/status.h>

namespace weft {

namespace rpc {
class ChannelImpl;
}
class Call;

namespace detail {
Status empty_channel();
}

// Runs exactly once, in a later turn of the channel's context, never inside the call that started
// the operation, unless its runtime is gone and no turn will come, no record is left for it, or the
// channel is empty.
// `reply` is valid until it returns. Must not throw: that ends the program.
using Completion = Function<void(const Status&, ByteView reply), 64>;
using TransferCompletion = Function<void(const Status&), 64>;

// Names a call or transfer in flight, for cancel(). A stale id is harmless.
struct OperationId {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;  // 0: none.
};

// A request's or reply's body, written straight into the transport's memory, once, before the
// function that it is given to returns. `write` must not throw: that ends the program.
struct BodyWriter {
    std::size_t bytes = 0;
    void* object = nullptr;
    void (*write)(void* object, std::byte* to) = nullptr;  // nullptr: `object` is the bytes.

    static BodyWriter of(ByteView body) {
        return {body.size(), const_cast<std::byte*>(body.data()), nullptr};
    }
    void operator()(std::byte* to) const noexcept {
        if (write) {
            write(object, to);
        } else if (bytes != 0) [[likely]] {
            std::memcpy(to, object, bytes);
        }
    }
};

// A shared handle: copies speak to the same peer. Connects with the first call and again with the
// first call after a loss. With the last copy the connection goes: what is under way then ends with
// CANCELLED, so keep one as long as a callback is awaited (awaited operations keep their own).
//
// Empty when default-made or moved from: operations fail inside the call with FAILED_PRECONDITION,
// effect none; cancel and abandon do nothing; executor() aborts the program and says so.
//
// Thread: any. On the context's own thread a call costs no lock, allocation or hop; from another
// thread the request is copied and handed over, and the returned id is none.
class Channel {
  public:
    Channel() = default;
    explicit Channel(std::shared_ptr<rpc::ChannelImpl> impl) : impl_(std::move(impl)) {}

    // ---- calls in bytes; protobuf stubs stand on these -------------------------------------
    // A body that does not fit a message of the transport is lent to the server, which fetches it.
    // Errors: INVALID_ARGUMENT, effect none, for a body over RuntimeOptions::argument_bytes_max;
    // RESOURCE_EXHAUSTED, effect none, for a full queue, or where the memory for large bodies is in
    // use.
    OperationId call(const MethodId& method, ByteView body, const CallOptions& options,
                     Completion&& done) const;
    // The same for a body that is written in place.
    OperationId call_with(const MethodId& method, const BodyWriter& body,
                          const CallOptions& options, Completion&& done) const;

    // ---- bulk: one-sided, the peer's code does not run --------------------------------------
    // Reads local.size() bytes at `offset` of `from` into `local`; writes `local` there.
    // All or error: after an error the bytes inside the range are unspecified. One of 0 bytes
    // inside the reference is not sent: it is OK, also by a closed or forged one.
    // Errors: PERMISSION_DENIED (forged, stale, revoked, out of range, access not granted),
    // UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED. The transfer holds `local`
    // until the transport is done with it, also after an early completion.
    OperationId get(const RegionRef& from, std::uint64_t offset, Buffer local,
                    const CallOptions& options, TransferCompletion done) const;
    OperationId put(const RegionRef& to, std::uint64_t offset, Buffer local,
                    const CallOptions& options, TransferCompletion done) const;

    // For awaiters on other threads. Room to hand over an operation with a body of `bytes`; not OK
    // (RESOURCE_EXHAUSTED) when 64 MiB wait already. Where it arrives, release() gives it back.
    Status admit(std::size_t bytes) const;
    void release(std::size_t bytes) const;
    // When an operation that starts now is over, and the options with which it is where it arrives.
    TimePoint deadline(const CallOptions& options) const;
    CallOptions until(TimePoint deadline, CallOptions options) const;
    // The operation completes with CANCELLED and the peer is told, in a later turn where another
    // thread cancels. Thread: any.
    void cancel_call(OperationId id) const;
    void cancel_transfer(OperationId id) const;
    // As cancel, but the completion never runs: its owner is going away. Thread: the context's; on
    // another one it aborts the program and says so.
    void abandon_call(OperationId id) const;
    void abandon_transfer(OperationId id) const;

    // Where completions run.
    Executor& executor() const;
    // True: this thread turns the channel's context, calls from here cost no hop.
    bool on_thread() const;

    // The server's address, the first one that connect() was given.
    std::string uri() const;
    explicit operator bool() const { return impl_ != nullptr; }
    const std::shared_ptr<rpc::ChannelImpl>& impl() const { return impl_; }

  private:
    std::shared_ptr<rpc::ChannelImpl> impl_;
};

}  // namespace weft
