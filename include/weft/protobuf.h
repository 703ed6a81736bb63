// Protobuf on weft: the library part of the code that protoc-gen-weft generates. The only public
// header that includes protobuf.
//
// Messages are written straight into the transport's memory and parsed out of it. Message objects
// are kept per type and thread and reused, so that in a steady state a call costs no allocation.
#pragma once

#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <weft/await.h>
#include <weft/bulk.pb.h>
#include <weft/call.h>
#include <weft/channel.h>
#include <weft/group_options.h>
#include <weft/method.h>
#include <weft/protobuf_message.h>
#include <weft/service.h>
#include <weft/task.h>

namespace weft {

// A method as its .proto describes it.
template <class Request, class Reply>
struct ProtoMethod {
    MethodId id;
    Duration timeout{};  // timeout_ms; zero: none of its own.
    bool idempotent = false;
    std::uint32_t priority = 0;  // From 0 to 7.
    bool collective = false;
    MergeFunction merge = nullptr;  // For collective methods with merged replies.
    GroupCallOptions group{};       // Defaults for calls of a group.
};

// ---- bulk ---------------------------------------------------------------------------------------

void to_proto(const RegionRef& ref, BulkRef* into);
// Errors: PERMISSION_DENIED, naming the fault of the bytes.
Result<RegionRef> from_proto(const BulkRef& ref);

namespace detail {

Status not_served(const MethodId& method);

template <class Request, class Reply>
CallOptions options_for(const ProtoMethod<Request, Reply>& method, CallOptions options) {
    if (options.timeout == Duration::zero()) options.timeout = method.timeout;
    options.idempotent |= method.idempotent;
    if (options.priority == 0) options.priority = static_cast<std::uint8_t>(method.priority);
    return options;
}

}  // namespace detail

// ---- clients ------------------------------------------------------------------------------------

namespace detail {

// True for a handler with associations of Asio, which a callback of weft would ignore.
template <class Done>
concept HasAssociations = requires {
    typename Done::executor_type;
}
|| requires { typename Done::allocator_type; }
|| requires { typename Done::cancellation_slot_type; };

// Starts operations for completion tokens; <weft/asio.h> defines it.
template <class Token>
struct Tokens;

template <class T>
concept IsDefined = requires {
    sizeof(T);
};

// A function of its own, so that small replies of flat types cost no more.
template <class Reply, class Done>
[[gnu::noinline]] void receive_measured(Done& done, ByteView body, Pooled<Reply>& reply) {
    const Status status = reply.read_reply(body);
    done(status, status.ok() ? *reply : Reply::default_instance());
}

}  // namespace detail

// The callback of a stub, called on completion; `reply` is empty unless the status is OK, and valid
// until the callback returns.
template <class Done, class Reply>
concept Receives = std::invocable < std::decay_t<Done>
&, const Status&, const Reply& > &&!detail::HasAssociations<std::decay_t<Done>>;

// Called by generated stubs. `done` runs as a Completion does (weft/channel.h). Its result is
// dropped; a task or an operation is refused when it is compiled.
// Errors also, effect applied: INTERNAL for a reply that does not parse or lacks a required field,
// RESOURCE_EXHAUSTED for a reply that would take more than half of
// RuntimeOptions::parsed_bytes_max.
// Cost: allocates only for a `done` over 64 bytes.
template <class Request, class Reply, Receives<Reply> Done>
OperationId call(const Channel& channel, const ProtoMethod<Request, Reply>& method,
                 const Request& in, const CallOptions& options, Done&& done) {
    detail::require_no_task<
        std::invoke_result_t<std::decay_t<Done>&, const Status&, const Reply&>>();
    if (detail::is_empty(done)) detail::refuse_empty("a stub's callback");
    return channel.call_with(
        method.id, detail::writer_of(in), detail::options_for(method, options),
        [done = std::forward<Done>(done)](const Status& status, ByteView body) mutable {
            if (!status.ok()) [[unlikely]]
                return void(done(status, Reply::default_instance()));
            detail::Pooled<Reply> reply;
            if (body.size() > reply.unmeasured()) [[unlikely]]
                return detail::receive_measured(done, body, reply);
            if (reply.parse(body)) [[likely]]
                return void(done(status, *reply));
            done(detail::bad_reply(*reply, body, false), Reply::default_instance());
        });
}

namespace detail {

// Makes the result of a completion token's operation.
template <class Reply>
struct ReadReply {
    Result<Reply> operator()(const Status& status, ByteView body) const {
        if (!status.ok()) [[unlikely]]
            return status;
        Reply reply;
        if (Status read = read_reply<Reply>(&reply, body); !read.ok()) return read;
        return reply;
    }
};

}  // namespace detail

// Called by generated stubs with a completion token of Boost.Asio for void(Result<Reply>): see
// <weft/asio.h>.
template <class Request, class Reply, class Token>
    requires(!Receives<Token, Reply>)
decltype(auto) call(const Channel& channel, const ProtoMethod<Request, Reply>& method,
                    const Request& in, const CallOptions& options, Token&& token) {
    static_assert(detail::IsDefined<detail::Tokens<Token>>,
                  "the last argument takes no (const weft::Status&, const Reply&); for a "
                  "completion token include <weft/asio.h>");
    if constexpr (detail::IsDefined<detail::Tokens<Token>>) {
        return detail::Tokens<Token>::template call<detail::ReadReply<Reply>>(
            channel, method.id, detail::writer_of(in), detail::options_for(method, options), token);
    }
}

// The operation that `co_await client.Method(in)` awaits. `in` has been copied when the stub
// returns; for the rest see weft/await.h.
template <class Reply>
class [[nodiscard]] ProtoCall : public detail::AwaitableOperation {
  public:
    template <class Request>
    ProtoCall(const Channel& channel, const ProtoMethod<Request, Reply>& method, const Request& in,
              const CallOptions& options) {
        start_call(channel, method.id, detail::writer_of(in), detail::options_for(method, options),
                   {&reply_, &detail::read_reply<Reply>});
    }

    ProtoCall(const ProtoCall&) = delete;  // An operation stays where it was made.
    static constexpr const char* what = "a stub's call";
    detail::ReferenceAwaiter<ProtoCall> operator co_await() {
        return detail::ReferenceAwaiter(*this);
    }

    Result<Reply> await_resume() {
        if (Status status = take_status(); !status.ok()) [[unlikely]]
            return status;
        return std::move(reply_);
    }

  private:
    Reply reply_;
};

// ---- servers ------------------------------------------------------------------------------------

namespace detail {

template <class Reply>
[[gnu::always_inline]] inline void answer(Call& call, const Status& status, Pooled<Reply>& reply) {
    if (!status.ok()) [[unlikely]] {
        reply.not_written();
        return call.fail(status);
    }
    call.reply_with(reply.writer());
}

template <auto handler, class Service, class Request, class Reply>
[[gnu::always_inline]] inline void serve_parsed(Service& service, Call& call, const Request& in) {
    Pooled<Reply> out;
    try {
        answer(call, (service.*handler)(call, in, *out), out);
    } catch (...) {
        out.not_written();
        call.fail(std::current_exception());
    }
}

// A function of its own, so that small requests of flat types cost no more.
template <auto handler, class Service, class Request, class Reply>
[[gnu::noinline]] void serve_measured(Service& service, Call& call, Pooled<Request>& in) {
    if (Status status = in.read_request(call); !status.ok()) return call.fail(status);
    serve_parsed<handler, Service, Request, Reply>(service, call, *in);
}

template <auto handler, class Service, class Request, class Reply>
void serve_inline(Service& service, Call call) {
    Pooled<Request> in;
    const ByteView body = call.request();
    if (body.size() > in.unmeasured()) [[unlikely]] {
        return serve_measured<handler, Service, Request, Reply>(service, call, in);
    }
    if (!in.parse(body)) return call.fail(bad_request(*in, call, false));
    serve_parsed<handler, Service, Request, Reply>(service, call, *in);
}

template <auto handler, class Service, class Request, class Reply>
WEFT_HEADER_COROUTINE Detached serve_task(Service& service, Call call) {
    Pooled<Request> in;
    Pooled<Reply> out;
    if (Status status = in.read_request(call); !status.ok()) {
        call.fail(status);
        co_return;
    }
    try {
        const Status status = co_await (service.*handler)(call, *in, *out);
        answer(call, status, out);
    } catch (...) {
        out.not_written();
        call.fail(std::current_exception());
    }
}

}  // namespace detail

// Called by generated services. `handler` is `Status (Call&, const Request&, Reply&)`, which runs
// on the context's thread and must not block, or the same as a coroutine, `Task<Status>`.
//
// The call, the request and the reply live until the handler has returned. Its result is the
// outcome of the call; Call::fail() describes the effect that the client gets. An exception becomes
// INTERNAL, effect unknown. A request that does not parse, or lacks a required field of proto2,
// which the text names, is refused with INVALID_ARGUMENT. A request that would take too much memory
// as a message is refused with RESOURCE_EXHAUSTED (docs/limits.md). Both have effect none.
template <auto handler, class Service, class Request, class Reply>
void serve(MethodRegistrar& registrar, Service& service,
           const ProtoMethod<Request, Reply>& method) {
    using Outcome = decltype((service.*handler)(std::declval<Call&>(), std::declval<Request&>(),
                                                std::declval<Reply&>()));
    if constexpr (std::is_same_v<Outcome, Status>) {
        const auto handle = [&service](Call call) {
            detail::serve_inline<handler, Service, Request, Reply>(service, std::move(call));
        };
        registrar.add(method.id, handle, {.collective = method.collective, .merge = method.merge});
    } else {
        static_assert(std::is_same_v<Outcome, Task<Status>>);
        const auto handle = [&service](Call call) {
            detail::serve_task<handler, Service, Request, Reply>(service, std::move(call));
        };
        registrar.add(method.id, handle, {.collective = method.collective, .merge = method.merge});
    }
}

}  // namespace weft
