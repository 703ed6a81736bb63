// The call would be cancelled as soon as it is made.
// EXPECT this callback returns a task or an operation
#include "echo.weft.h"

void ask(const echo::v1::EchoClient& stub) {
#ifdef ALLOWED
    stub.Now({}, {}, [&](const weft::Status&, const echo::v1::EchoReply&) {
        return stub.Now({}, {}, [](const weft::Status&, const echo::v1::EchoReply&) {});
    });
#else
    stub.Now({}, {}, [&](const weft::Status&, const echo::v1::EchoReply&) { return stub.Now({}); });
#endif
}
