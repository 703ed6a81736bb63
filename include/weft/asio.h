// weft for programs that use Boost.Asio: completion tokens for calls, transfers and collectives,
// and a driver that turns a runtime inside the program's own io_context.
//
//     weft::Result<Text> reply = co_await client.Greet(in, {.timeout = 1s}, asio::use_awaitable);
//     std::future<weft::Result<Text>> later = client.Greet(in, {}, asio::use_future);
//     client.Greet(in, {}, asio::bind_executor(strand, [](weft::Result<Text> reply) { … }));
//
// Generated stubs take a token as their last argument once this header is included, before or after
// theirs. A callable for (const Status&, const Reply&) remains a callback of weft.
//
// An operation completes once with one value; errors are in it, and nothing is thrown. The handler
// runs on its associated executor, inside the turn when the runtime turns on that executor. Without
// an associated executor it runs on the thread that turns the channel's context, and must not throw
// there; for an operation that is refused at once, on a thread of Asio's system_executor. (Out of
// io_context::run() a handler may throw.) It never runs inside the function that starts the
// operation. Memory comes from its associated allocator. A signal of its cancellation slot, of any
// type, ends the operation with CANCELLED and notifies the server of a call, or the ranks of a
// collective (Group::cancel).
//
// The operation keeps its channel. All arguments have been copied when the function returns, and
// the io_context has work until the handler has run. An io_context that is destroyed before that
// destroys its handlers uncalled.
#pragma once

#include <boost/version.hpp>

#if BOOST_VERSION < 108100
#error "<weft/asio.h> needs Boost 1.81 or later (Debian 12: libboost1.81-dev)"
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/async_result.hpp>

#include <weft/asio/driver.h>
#include <weft/asio/launch.h>
#include <weft/asio/launch_collective.h>
#include <weft/protobuf.h>

namespace weft {

namespace detail {

struct ReadBytes {
    Result<std::vector<std::byte>> operator()(const Status& status, ByteView body) const {
        if (!status.ok()) [[unlikely]]
            return status;
        return std::vector<std::byte>(body.begin(), body.end());
    }
};

struct ReadStatus {
    Status operator()(const Status& status) const { return status; }
};

// Declared in weft/protobuf.h.
template <class Token>
struct Tokens {
    template <class Read>
    static decltype(auto) call(const Channel& channel, const MethodId& method,
                               const BodyWriter& body, const CallOptions& options, Token& token) {
        using Signature = void(std::invoke_result_t<Read, const Status&, ByteView>);
        static_assert(boost::asio::completion_token_for<Token, Signature>,
                      "the last argument takes neither (const weft::Status&, const Reply&) nor a "
                      "weft::Result<Reply>, and is no completion token for the latter");
        return boost::asio::async_initiate<Token, Signature>(Launch<Read>(), token, channel,
                                                             CallWork{method, Body(body), options});
    }

    template <class Result, class AnyGroup>
    static decltype(auto) collective(const AnyGroup& group, const MethodId& method,
                                     const BodyWriter& body, const GroupCallOptions& options,
                                     Token& token) {
        return begin<Result>(group, CollectiveWork{method, Body(body), options}, token);
    }

    template <class Result, class AnyGroup>
    static decltype(auto) scatter(const AnyGroup& group, const MethodId& method, Bodies&& bodies,
                                  const GroupCallOptions& options, Token& token) {
        return begin<Result>(group, ScatterWork{method, std::move(bodies), options}, token);
    }

  private:
    template <class Result, class AnyGroup, class Work>
    static decltype(auto) begin(const AnyGroup& group, Work&& work, Token& token) {
        using Signature = void(Result);
        static_assert(boost::asio::completion_token_for<Token, Signature>,
                      "the last argument takes no weft::GroupResult<Reply> (of methods that are "
                      "merged: weft::MergedResult<Reply>), and is no completion token for one");
        return boost::asio::async_initiate<Token, Signature>(LaunchCollective<Result>(), token,
                                                             group, std::forward<Work>(work));
    }
};

template <class Token>
decltype(auto) async_transfer(const Channel& channel, TransferWork&& work, Token& token) {
    return boost::asio::async_initiate<Token, void(Status)>(Launch<ReadStatus>(), token, channel,
                                                            std::move(work));
}

}  // namespace detail

// As Channel::call(). The text that `id` names must outlive the call.
template <boost::asio::completion_token_for<void(Result<std::vector<std::byte>>)> Token>
decltype(auto) async_call(const Channel& channel, const MethodId& id, ByteView body,
                          const CallOptions& options, Token&& token) {
    return detail::Tokens<Token>::template call<detail::ReadBytes>(
        channel, id, BodyWriter::of(body), options, token);
}

// As Channel::get() and put(): bulk by a reference, into and from `local`.
template <boost::asio::completion_token_for<void(Status)> Token>
decltype(auto) async_get(const Channel& channel, const RegionRef& from, std::uint64_t offset,
                         Buffer local, const CallOptions& options, Token&& token) {
    return detail::async_transfer<Token>(channel, {false, from, offset, std::move(local), options},
                                         token);
}

template <boost::asio::completion_token_for<void(Status)> Token>
decltype(auto) async_put(const Channel& channel, const RegionRef& to, std::uint64_t offset,
                         Buffer local, const CallOptions& options, Token&& token) {
    return detail::async_transfer<Token>(channel, {true, to, offset, std::move(local), options},
                                         token);
}

}  // namespace weft
