// co_await on calls in bytes and on bulk transfers; protobuf stubs stand on the same Operation.
//
// An operation starts when it is made, so several can be under way before the first is awaited:
//
//     auto left = weft::get(channel, ref, 0, buffer.slice(0, half));
//     auto right = weft::get(channel, ref, half, buffer.slice(half, half));
//     Status status = co_await left;
//
// Its result is had once, and it resumes on the executor it was made on. It is awaited there, too:
// with two threads that are not ordered a coroutine of another executor would go on on that one, or
// never. Such a coroutine makes the operation itself, by a channel of any runtime.
//
// A co_await of one that is awaited, or was, throws std::logic_error, and the first awaiter gets
// the result. Destroying it before its end cancels it, and the peer is told. A task that awaits it
// just then goes on in a later turn, with CANCELLED, effect unknown: what it refers to, its object
// too, is there until then. A coroutine of the program's own type is resumed no more, and is its
// program's to destroy. On another thread than the one that turns the executor, where it may be
// resuming, that aborts the program and says so.
// Everything that was passed in has been copied when the call returns.
//
// It neither moves nor copies, since its completion has its address. One that is to live elsewhere
// is made there: std::unique_ptr<CallOperation>(new CallOperation(weft::call(...))), and then
// `co_await *pointer`. When the coroutine that awaits it is destroyed meanwhile, it goes on,
// resumes nothing, and another coroutine may await it.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <weft/buffer.h>
#include <weft/call.h>
#include <weft/channel.h>
#include <weft/home.h>
#include <weft/in_place.h>
#include <weft/result.h>
#include <weft/sleep.h>

namespace weft {

namespace detail {

// Why no operation of `there` can be awaited on this thread, which is not in its turn. OK: it can.
// FAILED_PRECONDITION: this thread turns no context, or one of another time (a simulation's), or
// `there` is a runtime of the parent process; CANCELLED: the runtime here ends.
Status why_not_here(Executor& there);

// Where a reply's bytes go: read(object, reply), once, while they are valid.
struct ReplyReader {
    void* object = nullptr;
    Status (*read)(void* object, ByteView reply) = nullptr;
};

// What all awaiters have in common. Stays in place: whoever completes it knows its address.
//
// Thread: one that turns a context. When that is not the channel's own, the operation goes over
// and comes back by post(); it ends with CANCELLED when the runtime that it was made on does. By
// its deadline, and by the cancel of its call, it ends also while the channel's thread is blocked:
// at most 10 ms later, with effect none when it had not begun there, else unknown.
class Operation {
  public:
    Operation(const Operation&) = delete;  // An operation stays where it was made.
    Operation& operator=(const Operation&) = delete;

    bool await_ready() const noexcept { return done_; }

  protected:
    enum class Kind : std::uint8_t { none, call, get, put };

    Operation() = default;
    ~Operation() {
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
    friend class InPlace;

    Awaiting& awaiting() { return awaiting_; }
    template <class Start>
    bool start_at_home(const Channel& channel, const Start& start);
    std::shared_ptr<Relay> make_relay(const CallOptions& options);
    void arrive(const Status& status, ByteView reply);
    void refuse(Status why);
    void abandon();

    Status status_;
    bool done_ = false;
    Kind kind_ = Kind::none;
    OperationId id_;
    Awaiting awaiting_;
    ReplyReader reader_;
    Channel channel_;  // Empty for transfers of a Call.
    Call call_;        // Of those, answered: whose server it is, wherever that Call is by now.
    std::shared_ptr<Relay> relay_;
    Later later_;
};

}  // namespace detail

// What `co_await get(...)` and `put(...)` wait for.
class [[nodiscard]] TransferOperation : public detail::Operation {
  public:
    TransferOperation(const TransferOperation&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "weft::get() or weft::put()";
    Status await_resume() { return take_status(); }
    detail::InPlace<TransferOperation> operator co_await() { return detail::InPlace(*this); }

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

// As Channel::get and put.
TransferOperation get(const Channel& channel, const RegionRef& from, std::uint64_t offset,
                      Buffer local, CallOptions options = {});
TransferOperation put(const Channel& channel, const RegionRef& to, std::uint64_t offset,
                      Buffer local, CallOptions options = {});
// In a handler, as Call::get and put: the call's deadline counts, so there are no options.
TransferOperation get(const Call& call, const RegionRef& from, std::uint64_t offset, Buffer local);
TransferOperation put(const Call& call, const RegionRef& to, std::uint64_t offset, Buffer local);

// What `co_await call(...)` waits for.
class [[nodiscard]] CallOperation : public detail::Operation {
  public:
    CallOperation(const CallOperation&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "weft::call()";
    Result<std::vector<std::byte>> await_resume();
    detail::InPlace<CallOperation> operator co_await() { return detail::InPlace(*this); }

  private:
    friend CallOperation call(const Channel&, const MethodId&, ByteView, CallOptions);
    CallOperation(const Channel& channel, const MethodId& method, ByteView body,
                  const CallOptions& options);

    std::vector<std::byte> reply_;
};

// As Channel::call. `method` names a text that outlives the call.
CallOperation call(const Channel& channel, const MethodId& method, ByteView body,
                   CallOptions options = {});

}  // namespace weft
