// co_await on calls in bytes and on bulk transfers. Protobuf stubs use the same AwaitableOperation.
//
// An operation starts when it is made, so several can be in flight before the first is awaited:
//
//     auto left = weft::get(channel, ref, 0, buffer.slice(0, half));
//     auto right = weft::get(channel, ref, half, buffer.slice(half, half));
//     Status status = co_await left;
//
// An operation gives its result once, and resumes its awaiter on the executor that it was made on.
// It must be awaited on that executor: the coroutine of another one would continue on the wrong
// thread. Such a coroutine makes the operation itself, by a channel of any runtime. A co_await in a
// turn of another executor throws std::logic_error, unless the operation's own has ended; outside
// of turns, where the program resumes a coroutine by itself, the error is not detected.
//
// A co_await of an operation that is or was awaited throws std::logic_error, and the first awaiter
// gets the result. Destroying an operation before its end cancels it, and the server of a call is
// notified. A weft::Task that awaits it at that moment continues in a later turn, with CANCELLED,
// effect unknown; everything that the task uses, including the object of which it is a member, must
// exist until then. A coroutine of the program's own type is not resumed, and the program must
// destroy it. Destruction on another thread than the one that turns the executor, where the
// operation may be resuming, aborts the program with a message. All arguments have been copied when
// the function returns.
//
// An operation neither moves nor copies, since its completion holds its address. To place one
// elsewhere, make it there: std::unique_ptr<CallOperation>(new CallOperation(weft::call(...))), and
// then `co_await *pointer`. When the coroutine that awaits such an operation is destroyed, the
// operation continues and resumes nothing, and another coroutine may await it.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <weft/buffer.h>
#include <weft/call.h>
#include <weft/channel.h>
#include <weft/home_context.h>
#include <weft/reference_awaiter.h>
#include <weft/result.h>
#include <weft/sleep.h>

namespace weft {

namespace detail {

// Why this thread can't await an operation of executor `there`; OK if it can. Requires: not in a
// turn of `there`. FAILED_PRECONDITION: this thread turns no context, or one with another clock (a
// simulation's), or `there` belongs to a runtime of the parent process. CANCELLED: the runtime of
// this thread is ending.
Status why_not_awaitable_here(Executor& there);

// Receives a reply's bytes: read(object, reply) is called once, while they are valid.
struct ReplyReader {
    void* object = nullptr;
    Status (*read)(void* object, ByteView reply) = nullptr;
};

// The common part of all calls and transfers. Stays in place: its completion holds its address.
//
// Thread: one that turns a context. When that is not the channel's context, the operation is posted
// to the channel's context, and its outcome is posted back. It ends with CANCELLED when the runtime
// that it was made on ends. By its deadline, and by the cancel of its call, it ends even while the
// channel's thread is blocked: at most 10 ms later, with effect none when it had not begun there,
// else unknown.
class AwaitableOperation {
  public:
    AwaitableOperation(const AwaitableOperation&) =
        delete;  // An operation stays where it was made.
    AwaitableOperation& operator=(const AwaitableOperation&) = delete;

    bool await_ready() const noexcept { return done_; }

  protected:
    enum class Kind : std::uint8_t { none, call, get, put };

    AwaitableOperation() = default;
    ~AwaitableOperation() {
        if (!done_) abandon();
    }

    void start_call(const Channel& channel, const MethodId& method, const BodyWriter& body,
                    const CallOptions& options, ReplyReader reader);
    void start_transfer(Kind kind, const Channel& channel, const RegionRef& remote,
                        std::uint64_t offset, Buffer local, const CallOptions& options);
    void start_transfer(Kind kind, const Call& call, const RegionRef& remote, std::uint64_t offset,
                        Buffer local);
    Status take_status() { return std::move(status_); }

  private:
    struct Relay;
    template <class AnyOperation>
    friend class ReferenceAwaiter;

    AwaiterSlot& awaiter_slot() { return awaiter_slot_; }
    template <class Start>
    bool start_at_home(const Channel& channel, const Start& start);
    std::shared_ptr<Relay> make_relay(const CallOptions& options);
    void on_complete(const Status& status, ByteView reply);
    void refuse(Status why);
    void abandon();

    Status status_;
    bool done_ = false;
    Kind kind_ = Kind::none;
    OperationId id_;
    AwaiterSlot awaiter_slot_;
    ReplyReader reader_;
    Channel channel_;  // Empty for transfers of a Call.
    Call call_;        // For transfers of a Call: keeps the server reachable; is not itself open.
    std::shared_ptr<Relay> relay_;
    NextTurnWork later_;
};

}  // namespace detail

// The operation that `co_await get(...)` and `put(...)` await.
class [[nodiscard]] TransferOperation : public detail::AwaitableOperation {
  public:
    TransferOperation(const TransferOperation&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "weft::get() or weft::put()";
    Status await_resume() { return take_status(); }
    detail::ReferenceAwaiter<TransferOperation> operator co_await() {
        return detail::ReferenceAwaiter(*this);
    }

  private:
    friend TransferOperation get(const Channel&, const RegionRef&, std::uint64_t, Buffer,
                                 CallOptions);
    friend TransferOperation put(const Channel&, const RegionRef&, std::uint64_t, Buffer,
                                 CallOptions);
    friend TransferOperation get(const Call&, const RegionRef&, std::uint64_t, Buffer);
    friend TransferOperation put(const Call&, const RegionRef&, std::uint64_t, Buffer);

    TransferOperation(Kind kind, const Channel& channel, const RegionRef& remote,
                      std::uint64_t offset, Buffer local, const CallOptions& options) {
        start_transfer(kind, channel, remote, offset, std::move(local), options);
    }
    TransferOperation(Kind kind, const Call& call, const RegionRef& remote, std::uint64_t offset,
                      Buffer local) {
        start_transfer(kind, call, remote, offset, std::move(local));
    }
};

// As Channel::get() and Channel::put().
TransferOperation get(const Channel& channel, const RegionRef& from, std::uint64_t offset,
                      Buffer local, CallOptions options = {});
TransferOperation put(const Channel& channel, const RegionRef& to, std::uint64_t offset,
                      Buffer local, CallOptions options = {});
// In a handler, as Call::get() and Call::put(): the call's deadline applies, so there are no
// options.
TransferOperation get(const Call& call, const RegionRef& from, std::uint64_t offset, Buffer local);
TransferOperation put(const Call& call, const RegionRef& to, std::uint64_t offset, Buffer local);

// The operation that `co_await call(...)` awaits.
class [[nodiscard]] CallOperation : public detail::AwaitableOperation {
  public:
    CallOperation(const CallOperation&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "weft::call()";
    Result<std::vector<std::byte>> await_resume();
    detail::ReferenceAwaiter<CallOperation> operator co_await() {
        return detail::ReferenceAwaiter(*this);
    }

  private:
    friend CallOperation call(const Channel&, const MethodId&, ByteView, CallOptions);
    CallOperation(const Channel& channel, const MethodId& method, ByteView body,
                  const CallOptions& options);

    std::vector<std::byte> reply_;
};

// As Channel::call(). The text that `method` names must outlive the call.
CallOperation call(const Channel& channel, const MethodId& method, ByteView body,
                   CallOptions options = {});

}  // namespace weft
