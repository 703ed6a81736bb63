// EXPECT include <weft/asio.h>
#include "echo.weft.h"
#ifdef ALLOWED
#include <weft/asio.h>
#endif
#include <boost/asio/use_future.hpp>

bool ask(const echo::v1::EchoClient& stub) {
    return stub.Now({}, {}, boost::asio::use_future).get().ok();
}
