// The same for a completion token, which a coroutine of Asio may await.
// EXPECT AwaitSafeArgument
#include <array>

#include <boost/asio/use_awaitable.hpp>

#include <weft/asio.h>

#include "echo.weft.h"

using Each = std::array<weft::RankRequest<echo::v1::EchoRequestText>, 2>;

boost::asio::awaitable<bool> ask(echo::v1::EchoGroupClient members) {
    const auto& token = boost::asio::use_awaitable;
#ifdef ALLOWED
    const Each each;
    co_return (co_await members.Everywhere(each, {}, token)).all_ok();
#else
    co_return (co_await members.Everywhere(Each(), {}, token)).all_ok();
#endif
}
