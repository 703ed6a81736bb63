// The awaited value is one object: GCC 15 destroys a structured binding's parts wrongly.
// EXPECT decompose
#include "echo.weft.h"

weft::Task<bool> ask(echo::v1::EchoClient stub) {
#ifdef ALLOWED
    const auto reply = co_await stub.Now({});
    co_return reply.ok();
#else
    const auto [status, reply] = co_await stub.Now({});
    co_return status.ok();
#endif
}
