// The server's side of one call.
#pragma once

#include <cstdint>
#include <exception>
#include <stop_token>
#include <string_view>

#include <weft/channel.h>
#include <weft/time.h>

namespace weft {

namespace rpc {
class Server;
struct ServerCall;
}  // namespace rpc
namespace detail {
class AwaitableOperation;
}  // namespace detail

// One client of this runtime, for counts that a handler keeps by client. Values can only be
// compared. The runtime assigns the numbers and reuses none; no client can choose its own.
enum class ClientId : std::uint64_t { none = 0 };

// One call, as its handler has it. The handler answers exactly once; a Call that is destroyed
// unanswered sends INTERNAL. Move-only.
//
// Empty when default-made, moved from or answered: answers and notices have no effect, the request
// and all properties of the call are empty, its deadline is `never`, and get() and put() fail.
//
// Thread: that of the context that received the call; coroutine handlers are resumed there. On
// another thread only answered() and, while no thread answers the call, request(), deadline(),
// time_left(), method() and reply_bytes_max() of an unanswered call may be called; any other
// function, and dropping it, aborts the program with a message.
//
// Lifetime: a Call may outlive its client and its runtime (on_cancel() reports both); the answer is
// then dropped. Calls left when the runtime is destroyed may be used by one thread at a time; an
// answered one can then only be destroyed.
//
// A handler that waits for an event that the program, not weft, signals ends the wait in
// on_cancel() and in on_drain(). weft can't resume or destroy a handler in such a wait: its frame,
// and with it the memory of its runtime and the services that a ServiceFactory made, stays until
// the handler continues.
class Call {
  public:
    Call() = default;
    Call(Call&& other) noexcept : server_(other.server_), call_(other.call_) {
        other.call_ = nullptr;
    }
    Call& operator=(Call&& other) noexcept;
    ~Call();

    // For raw handlers: the request's bytes, valid until the handler first returns (a coroutine:
    // until it first suspends).
    ByteView request() const;

    // When the client ends the call. Nested calls use the earlier of this and their own deadline.
    TimePoint deadline() const;
    // The time until the deadline: 0 when it has passed, the runtime is destroyed or the call is
    // empty; no_timeout for a client without a deadline. Do not pass 0 on as a timeout: in
    // CallOptions, 0 means the method's default.
    Duration time_left() const;
    // The client timed out, cancelled or died, or this runtime is being destroyed: no client waits
    // for the reply.
    bool cancelled() const;
    // The same as a std::stop_token. Taken on the context's thread; it and its copies can be used
    // on any thread, for example by blocking work in offload(). Empty for an answered call, and
    // without effect after the answer. Cost: an allocation.
    std::stop_token stop_token() const;
    // `notice` runs once when the call is cancelled, if it is still open, or inside on_cancel()
    // when it is cancelled already. Replaces an earlier notice. May answer the call; must not
    // throw.
    void on_cancel(Function<void()> notice);
    // The runtime that serves the call has begun to end. It takes no new calls and, in run(), waits
    // for this one, for drain_timeout at most. The client still waits for the reply. True until the
    // call is answered.
    bool draining() const;
    // `notice` runs once when the drain begins, if the call is still open, or inside on_drain()
    // when it has begun already. Replaces an earlier notice. For a handler that waits for an event:
    // the notice answers with the data so far. May answer the call; must not throw.
    void on_drain(Function<void()> notice);
    // The name that the client gives itself, for logs. Empty when the client has disconnected, and
    // for the call of a collective at this rank.
    std::string peer() const;
    // The client by its connection, whatever its name. It keeps its number when it resumes its
    // session over another connection; a client that connects several times has several numbers.
    // none: the client has disconnected, or the call is that of a collective at this rank.
    ClientId client() const;
    // The method's full name, valid as long as the runtime.
    std::string_view method() const;

    // Answers the call. If the reply exceeds RuntimeOptions::argument_bytes_max of either side, the
    // client gets RESOURCE_EXHAUSTED, effect applied.
    void reply(ByteView body);
    // The same for a body that is written in place.
    void reply_with(const BodyWriter& body);
    // The largest reply that this side sends.
    std::size_t reply_bytes_max() const;
    // The client gets code and text. The effect that it gets is `applied`, since the handler ran
    // and answered, with two exceptions: a status that rejected() made in this process has effect
    // none, and a status with effect unknown (of a nested call, say) keeps it. Requires:
    // !status.ok(). A status that is OK becomes INTERNAL, and is logged.
    void fail(const Status& status);
    // For an exception of a handler: INTERNAL with a text that reveals nothing, effect unknown; or
    // RESOURCE_EXHAUSTED when offload() got no thread. The exception's text is logged on this side
    // only. Requires: not null; null becomes INTERNAL, and is logged.
    void fail(std::exception_ptr thrown);

    // Bulk transfers with the client's memory, by a reference from the request: get() reads it,
    // put() writes it. As Channel::get() and put(), within the call's deadline.
    // Errors also:
    //   CANCELLED            the call was answered, or moved from
    //   CANCELLED            the runtime is destroyed; `done` runs before the function returns
    //   FAILED_PRECONDITION  a default-made Call, or a runtime of the parent process in a forked
    //                        child; `done` runs before the function returns
    OperationId get(const RegionRef& from, std::uint64_t offset, Buffer local,
                    TransferCompletion done) const;
    OperationId put(const RegionRef& to, std::uint64_t offset, Buffer local,
                    TransferCompletion done) const;

    // Cancels the transfer; its completion never runs.
    void abandon_transfer(OperationId id) const;

    bool answered() const { return call_ == nullptr; }

  private:
    friend class rpc::Server;
    friend struct CallAccess;
    friend class detail::AwaitableOperation;
    OperationId transfer(bool put, const RegionRef& remote, std::uint64_t offset, Buffer local,
                         TransferCompletion done) const;
    Call(rpc::Server& server, rpc::ServerCall& call) : server_(&server), call_(&call) {}
    // Aborts the program, naming `called`, on a thread that is not the context's.
    void require_thread(const char* called) const;
    void require_no_other_thread(const char* called) const;
    bool has_server() const;
    void reply_with_status(const Status& status);
    Status without_reason(const char* given) const;

    rpc::Server* server_ = nullptr;
    rpc::ServerCall* call_ = nullptr;
};

using RawHandler = Function<void(Call)>;

}  // namespace weft
