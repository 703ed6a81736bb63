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
class Operation;
}  // namespace detail

// One of the clients of this runtime, for what a handler counts by client: comparable, and nothing
// else. The runtime hands the numbers out and uses none twice; no client can choose its own.
enum class ClientId : std::uint64_t { none = 0 };

// Handed to the handler, who answers exactly once; a Call that is dropped unanswered answers
// INTERNAL by itself. Move-only.
//
// Empty when default-made, moved from or answered: answers and notices go nowhere, the request and
// what tells of the call are empty, its deadline is `never`, and get() and put() fail.
//
// Thread: the context's that received the call; coroutine handlers are resumed there. On another
// one a call that is not answered aborts the program and says so, when it is answered, dropped,
// asked of its client or whether it is cancelled; request(), deadline(), time_left() and method()
// can be read there, while nothing answers it. Lifetime: may
// outlive its client and its runtime (on_cancel() tells of both); the answer then goes nowhere.
// Calls that are left when the runtime is gone are one thread's at a time; one that was answered
// can then only be destroyed.
//
// A handler that waits for something of the program's own ends the wait in on_cancel(), and in
// on_drain(): nothing of weft can resume or destroy it there, and its frame, and with it the memory
// of its runtime, stays until it goes on.
class Call {
  public:
    Call() = default;
    Call(Call&& other) noexcept : server_(other.server_), call_(other.call_) {
        other.call_ = nullptr;
    }
    Call& operator=(Call&& other) noexcept;
    ~Call();

    // Raw handlers: the request's bytes, valid until the handler first returns (a coroutine: until
    // it first suspends).
    ByteView request() const;

    // When the client gives up: nested calls take the smaller of this and their own.
    TimePoint deadline() const;
    // Until then, 0 when that is over or the runtime is gone; no_timeout for a client that waits
    // for ever. (CallOptions::timeout takes 0 for the method's own time.)
    Duration time_left() const;
    // The client gave up, cancelled or died: nobody waits for the reply.
    bool cancelled() const;
    // The same for code that takes one. Taken on the context's thread; it and its copies are used
    // on any, by what blocks in offload(), say. Empty for a call that was answered, and without
    // effect once this one is. Cost: an allocation.
    std::stop_token stop_token() const;
    // `notice` runs once when that happens, if the call is still open, or inside this when it has
    // happened already; replaces an earlier one. May answer the call; must not throw.
    void on_cancel(Function<void()> notice);
    // The runtime that serves the call has begun to end: it takes no new calls and, in run(), waits
    // for this one, for drain_timeout at most. The client still waits for the reply. True until the
    // call is answered.
    bool draining() const;
    // `notice` runs once when that begins, if the call is still open, or inside this when it has
    // begun already; replaces an earlier one. For a handler that waits for an event: it answers
    // with what it has. May answer the call; must not throw.
    void on_drain(Function<void()> notice);
    // The client, for logs: what it calls itself. Empty when it is gone.
    std::string peer() const;
    // The same client by its connection, whatever it calls itself; it keeps its number when it
    // resumes its session over another connection. One that connects several times is as many
    // clients. none: it is gone, or this process called
    // itself, as a collective does at each rank.
    ClientId client() const;
    // Valid as long as the runtime.
    std::string_view method() const;

    // Answers. Errors are told to the client instead: a reply over
    // RuntimeOptions::argument_bytes_max of either side becomes RESOURCE_EXHAUSTED, effect applied.
    void reply(ByteView body);
    // The same for a body that is written in place.
    void reply_with(const BodyWriter& body);
    // The largest reply that this side sends.
    std::size_t reply_bytes_max() const;
    // The client sees code and text. The effect it sees is `applied`, since the handler ran and
    // answered, with two exceptions: a status made by rejected() here says none, and one with
    // effect unknown (of a nested call, say) stays unknown. Requires: !status.ok(). A failure
    // without a reason becomes INTERNAL, and a line in the log.
    void fail(const Status& status);
    // For what a handler threw: INTERNAL with a text that tells nothing, effect unknown; or
    // RESOURCE_EXHAUSTED when offload() got no thread. What the exception says goes to the log of
    // this side only. Requires: not null, which is a failure without a reason.
    void fail(std::exception_ptr thrown);

    // Bulk with the client's memory, by a reference from the request: get() pulls, put() pushes. As
    // Channel::get and put; the call's deadline counts. Errors also: CANCELLED after the answer,
    // and for one whose runtime is gone, there inside the call; FAILED_PRECONDITION, inside the
    // call, for one that was default-made.
    OperationId get(const RegionRef& from, std::uint64_t offset, Buffer local,
                    TransferCompletion done) const;
    OperationId put(const RegionRef& to, std::uint64_t offset, Buffer local,
                    TransferCompletion done) const;

    // The transfer is cancelled and its completion never runs.
    void abandon_transfer(OperationId id) const;

    bool answered() const { return call_ == nullptr; }

  private:
    friend class rpc::Server;
    friend struct CallAccess;
    friend class detail::Operation;
    OperationId transfer(bool put, const RegionRef& remote, std::uint64_t offset, Buffer local,
                         TransferCompletion done) const;
    Call(rpc::Server& server, rpc::ServerCall& call) : server_(&server), call_(&call) {}
    // Ends the program, with the name of what was called, on a thread that is not the context's.
    void require_thread(const char* called) const;
    void require_no_other_thread(const char* called) const;
    bool has_server() const;
    void answer(const Status& status);
    Status without_reason(const char* given) const;

    rpc::Server* server_ = nullptr;
    rpc::ServerCall* call_ = nullptr;
};

using RawHandler = Function<void(Call)>;

}  // namespace weft
