// A form that takes a callable is not awaited: g++ 12 would destroy its captures twice.
// EXPECT OperationId
#include <string>

#include "echo.weft.h"

weft::Task<void> ask(echo::v1::EchoClient stub, std::string text) {
    const auto say = [text](const weft::Status&, const echo::v1::EchoReply&) {};
#ifdef ALLOWED
    stub.Now({}, {}, say);
    (void)co_await stub.Now({});
#else
    co_await stub.Now({}, {}, say);
#endif
}
