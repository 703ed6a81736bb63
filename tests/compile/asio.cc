// Uses of <weft/asio.h> by a program, each once: some warnings appear only at the second use, and
// others only at a single use.
#include <weft/asio.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include "echo.weft.h"

namespace asio = boost::asio;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using echo::v1::EchoRequestText;

asio::awaitable<bool> call(const echo::v1::EchoClient& client, const EchoRequest& request) {
    const weft::Result<EchoReply> reply = co_await client.Later(request, {}, asio::use_awaitable);
    co_return reply.ok();
}

asio::awaitable<bool> call_all(const echo::v1::EchoGroupClient& group,
                               const EchoRequestText& request) {
    const weft::GroupResult<EchoReply> replies =
        co_await group.Everywhere(request, {}, asio::use_awaitable);
    co_return replies.status().ok();
}

void call_then(asio::io_context& io, const echo::v1::EchoClient& client,
               const EchoRequest& request) {
    client.Now(request, {},
               asio::bind_executor(io, [](const weft::Result<EchoReply>& reply) { (void)reply; }));
}

void call_all_then(asio::io_context& io, const echo::v1::EchoGroupClient& group,
                   const EchoRequestText& request) {
    group.Everywhere(request, {},
                     asio::bind_executor(
                         io, [](const weft::GroupResult<EchoReply>& replies) { (void)replies; }));
}

void forget(const echo::v1::EchoClient& client, const EchoRequest& request) {
    client.Held(request, {}, asio::detached);
}

std::size_t raw(const weft::Channel& channel, const weft::RegionRef& ref,
                const weft::Buffer& memory) {
    const weft::MethodId method("echo.v1.Echo/Now");
    auto reply = weft::async_call(channel, method, {}, {}, asio::use_future);
    auto put = weft::async_put(channel, ref, 0, memory, {}, asio::use_future);
    auto get = weft::async_get(channel, ref, 0, memory, {}, asio::use_future);
    (void)put.get();
    (void)get.get();
    return reply.get().value().size();
}

void drive(asio::io_context& io, weft::Runtime& runtime) {
    weft::AsioDriver driver(io.get_executor(), runtime);
    io.run();
}
