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

// Runs exactly once, in a later turn of the channel's context, with two exceptions. It runs inside
// the call that starts the operation if the runtime is destroyed and no turn follows, no record is
// left for the operation, the channel is empty, or this is a forked child. It never runs for an
// abandoned operation, nor for endless work that the end of the runtime drops (docs/semantics.md).
// `reply` is valid until the completion returns. A completion must not throw: that ends the
// program.
using Completion = Function<void(const Status&, ByteView reply), 64>;
using TransferCompletion = Function<void(const Status&), 64>;

// Names a call or transfer in flight, for cancel_call() and cancel_transfer(). A stale id is
// harmless.
struct OperationId {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;  // 0: none.
};

// The body of a request or reply. It is written before the function that takes the writer returns,
// once, or never for an operation that is refused: into memory of the transport, or into a copy if
// it waits or comes from another thread. `write` must not throw, which ends the program, nor call
// weft.
struct BodyWriter {
    std::size_t bytes = 0;
    void* object = nullptr;
    void (*write)(void* object, std::byte* to) = nullptr;  // nullptr: `object` points to the bytes.

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

// A shared handle: copies use the same peer. Connects with the first call, and again with the first
// call after a lost connection. Destroying the last copy disconnects: operations in flight complete
// with CANCELLED, so keep a copy as long as a callback is awaited (awaited operations keep their
// own).
//
// Empty when default-made or moved from: operations fail inside the call with FAILED_PRECONDITION,
// effect none; cancel and abandon do nothing; executor() aborts the program with a message.
//
// Thread: any. On the context's own thread a call costs no lock, allocation or hop. On another
// thread the request is copied and posted, and the returned id is none.
class Channel {
  public:
    Channel() = default;

    // ---- calls in bytes; protobuf stubs use these ------------------------------------------
    // A body that does not fit a message of the transport is sent by rendezvous: the server fetches
    // it. The text of `method` must exist until the call completes. An empty `done` aborts the
    // program with a message. Errors, besides those of the handler (docs/errors.md):
    //   INVALID_ARGUMENT     effect none: an option out of its range; a body larger than a message
    //                        and than RuntimeOptions::argument_bytes_max
    //   RESOURCE_EXHAUSTED   effect none: a full queue, no memory for large bodies, no free handler
    //   DEADLINE_EXCEEDED    no reply in time from a connected server
    //   UNAVAILABLE          the server can't be reached, died, is silent, or ends
    //   UNIMPLEMENTED        effect none: the server has no such method
    //   ABORTED              effect unknown: the session has expired at the server
    //   CANCELLED            by cancel_call(), the last copy of the channel, or the runtime's end
    //   FAILED_PRECONDITION  an empty channel, a forked child, inaccessible memory of inline bulk
    OperationId call(const MethodId& method, ByteView body, const CallOptions& options,
                     Completion&& done) const;
    // The same for a body that is written in place.
    OperationId call_with(const MethodId& method, const BodyWriter& body,
                          const CallOptions& options, Completion&& done) const;

    // ---- bulk: one-sided, the peer's code does not run --------------------------------------
    // get() reads local.size() bytes at `offset` of `from` into `local`; put() writes `local` to
    // `offset` of `to`. All or error: after an error the bytes inside the range are unspecified. A
    // transfer of 0 bytes is not sent: it is OK if the reference is to memory of this server and
    // grants the access and the range, also when the region is closed or the key is wrong.
    // Errors: PERMISSION_DENIED (forged, stale, revoked, out of range, access not granted),
    // FAILED_PRECONDITION (memory that can't be accessed: weft/region.h), UNIMPLEMENTED (the
    // transport can't access or expose it), UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED,
    // RESOURCE_EXHAUSTED, DATA_LOSS (the peer broke the transport's protocol), INTERNAL (a failure
    // of libfabric). An empty `done` aborts the program with a message. The transfer holds `local`
    // until the transport has finished with it, also after an early completion.
    OperationId get(const RegionRef& from, std::uint64_t offset, Buffer local,
                    const CallOptions& options, TransferCompletion done) const;
    OperationId put(const RegionRef& to, std::uint64_t offset, Buffer local,
                    const CallOptions& options, TransferCompletion done) const;

    // The operation completes with CANCELLED. The server of a call is informed; the owner of a
    // transfer's memory is not. Another thread's cancel is posted. Thread: any.
    void cancel_call(OperationId id) const;
    void cancel_transfer(OperationId id) const;
    // As cancel, but the completion never runs: its owner is being destroyed. Thread: the
    // context's; on another one it aborts the program with a message.
    void abandon_call(OperationId id) const;
    void abandon_transfer(OperationId id) const;

    // ---- contexts of the server (weft/context.h; ConnectOptions::spread uses several) ---------
    // Each call of these returns the same channel to a context, with connections of its own, which
    // lives as long as any of its channels. Thread: any; a thread that is in no turn may wait for
    // one of the channel's context, once for each context of the server.
    //
    // Calls and transfers to this context. Where the server has no such context, or the address
    // reaches another one only, they fail with OUT_OF_RANGE; effect none, or unknown if the server
    // started again with fewer contexts after they were sent; with RESOURCE_EXHAUSTED where as many
    // connections name it as may (docs/limits.md). A number of 64 or more aborts the program with a
    // message.
    Channel on(unsigned context) const;
    // on(place(hash, contexts())): clients with the same hash for a key reach the same context.
    // This channel while contexts() is not known, as before the first connection, or 1: such a call
    // runs on any context, and so does, as the channel knows the old number, one after the server
    // has started again with more contexts. So the handler of a sharded service passes on what is
    // for another context (examples/06_cores). After the server has started again with
    // another number of contexts, the next connection learns that, or the next operation, by
    // OUT_OF_RANGE: keep the hash, not the channel.
    Channel by(std::uint64_t hash) const;
    // The channel of the context that the calling thread is in: operations on it look up nothing.
    // This channel on any other thread.
    Channel here() const;
    // As of the last connection, or the last OUT_OF_RANGE; 0: there was none so far.
    unsigned contexts() const;

    // The executor on which completions run: on a thread that turns a context of the channel's
    // runtime that one, else the one that connect() ran on.
    Executor& executor() const;
    // True: this thread turns the channel's context, and calls from it cost no hop.
    bool on_thread() const;

    // The server's address: the first one that connect() was given.
    std::string uri() const;
    explicit operator bool() const { return impl_ != nullptr; }

  private:
    friend class rpc::ChannelImpl;
    explicit Channel(std::shared_ptr<rpc::ChannelImpl> impl) : impl_(std::move(impl)) {}

    std::shared_ptr<rpc::ChannelImpl> impl_;
};

}  // namespace weft
