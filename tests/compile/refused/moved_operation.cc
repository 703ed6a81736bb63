// An operation stays where it was made: its completion uses its address.
// EXPECT An operation stays where it was made
#include "echo.weft.h"

weft::Task<bool> ask(echo::v1::EchoClient stub) {
    auto operation = stub.Now({});
#ifdef ALLOWED
    auto& same = operation;
#else
    auto same = std::move(operation);
#endif
    co_return (co_await same).ok();
}
