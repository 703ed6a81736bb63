// EXPECT nor a weft::Result<Reply>
#include "echo.weft.h"
// Included after the stubs.
#include <weft/asio.h>

void ask(const echo::v1::EchoClient& stub) {
#ifdef ALLOWED
    stub.Now({}, {}, [](const weft::Result<echo::v1::EchoReply>&) {});
#else
    stub.Now({}, {}, [](const weft::Status&, int) {});
#endif
}
