// Every coroutine of weft's headers and of generated code.
#include <weft/combine.h>
#include <weft/runtime.h>

#include "echo.weft.h"

weft::Task<int> one() { co_return 1; }
weft::Task<void> nothing() { co_return; }
weft::Task<weft::Status> braces() { co_return {}; }
weft::Task<weft::Result<int>> braces_of_result() { co_return {}; }

weft::Task<void> all() {
    (void)co_await when_all(one(), nothing());
    std::vector<weft::Task<int>> many;
    many.push_back(one());
    (void)co_await weft::when_all(std::move(many));
    std::vector<weft::Task<void>> voids;
    voids.push_back(nothing());
    co_await weft::when_all(std::move(voids));
    (void)co_await when_any(one(), one());
    many.clear();
    many.push_back(one());
    (void)co_await weft::when_any(std::move(many));
    (void)co_await with_timeout(weft::Duration(1), one());
    (void)co_await with_timeout(weft::Duration(1), nothing());
}

void run(weft::Runtime& runtime, echo::v1::EchoService& service, weft::MethodRegistrar& methods) {
    runtime.block_on(all());
    (void)runtime.block_on(one());
    runtime.spawn([]() -> weft::Task<void> { co_return; });
    service.echo::v1::EchoService::register_methods(methods);
    using Handler = weft::Task<weft::Status> (echo::v1::EchoService::*)(
        weft::Call&, const echo::v1::EchoRequest&, echo::v1::EchoReply&);
    constexpr Handler later = &echo::v1::EchoService::Later;
    weft::serve<later>(methods, service, echo::v1::EchoMethods::Later);
}
