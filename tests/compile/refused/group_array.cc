// g++ 12 destroys the requests of the temporary array twice.
// EXPECT AwaitSafeArgument
#include <array>

#include "echo.weft.h"

using Each = std::array<weft::RankRequest<echo::v1::EchoRequestText>, 2>;

weft::Task<bool> ask(echo::v1::EchoGroupClient members) {
#ifdef ALLOWED
    const Each each;
    co_return (co_await members.Everywhere(each)).all_ok();
#else
    co_return (co_await members.Everywhere(Each())).all_ok();
#endif
}
