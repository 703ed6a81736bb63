// A weft callback would ignore the executor that is bound to it.
// EXPECT nor a weft::Result<Reply>
#include <weft/asio.h>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>

#include "echo.weft.h"

void ask(const echo::v1::EchoClient& stub, boost::asio::io_context& io) {
#ifdef ALLOWED
    const auto say = [](const weft::Result<echo::v1::EchoReply>&) {};
#else
    const auto say = [](const weft::Status&, const echo::v1::EchoReply&) {};
#endif
    stub.Now({}, {}, boost::asio::bind_executor(io, say));
}
