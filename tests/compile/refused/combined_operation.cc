// Only tasks are combined; an operation is awaited inside a task.
// EXPECT it is combined inside a task
#include <weft/combine.h>

#include "echo.weft.h"

weft::Task<bool> ask(echo::v1::EchoClient stub) {
#ifdef ALLOWED
    struct {
        weft::Task<bool> operator()(echo::v1::EchoClient from) {
            co_return (co_await from.Now({})).ok();
        }
    } now;
    co_return (co_await with_timeout(weft::Duration(1), now(stub))).ok();
#else
    co_return (co_await weft::with_timeout(weft::Duration(1), stub.Now({}))).ok();
#endif
}
