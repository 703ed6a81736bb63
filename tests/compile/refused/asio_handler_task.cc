// The same for a handler that Asio calls.
// EXPECT this callback returns a task or an operation
#include <weft/asio.h>

#include "echo.weft.h"

void ask(const echo::v1::EchoClient& stub) {
#ifdef ALLOWED
    stub.Now({}, {}, [](const weft::Result<echo::v1::EchoReply>&) {});
#else
    stub.Now({}, {}, [](weft::Result<echo::v1::EchoReply>) -> weft::Task<void> { co_return; });
#endif
}
