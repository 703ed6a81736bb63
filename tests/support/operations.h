// Each kind of operation, made and awaited by reference on a simulated client.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include <weft/combine.h>
#include <weft/protobuf_group.h>

#include "support/echo.h"
#include "support/gate.h"
#include "support/owned_coroutine.h"

namespace weft::test {

struct Operations {
    EchoPair pair;
    Runtime& other = pair.rig.add("");
    Channel far = other.connect("sim://server").value();
    GroupView view = GroupView::make("operations", 1, {{0, {"sim://server"}}}).value();
    Group group = pair.client.group(view).value();
    Group far_group = other.group(view).value();

    // Calls check(name, make), outside of a turn. The result of make() completes later, in a turn
    // of the client.
    template <class Check>
    void each(Check check) {
        const auto calls = [&](const char* name, const Channel& through) {
            check(name, [&] { return call(through, MethodId("echo.v1.Echo/Now"), ByteView()); });
        };
        calls("call", pair.channel);
        calls("call through another runtime", far);
        const auto stubs = [&](const char* name, const Channel& through) {
            check(name, [&] { return echo::v1::EchoClient(through).Later(request_of("x")); });
        };
        stubs("stub", pair.channel);
        stubs("stub through another runtime", far);
        check("get", [&] { return get(pair.channel, {}, 0, {}); });
        check("get through another runtime", [&] { return get(far, {}, 0, {}); });
        check("put", [&] { return put(pair.channel, {}, 0, {}); });
        const auto collectives = [&](const char* name, const Group& through) {
            check(name, [&] {
                echo::v1::EchoRequestText request;
                return echo::v1::EchoGroupClient(through).Everywhere(request);
            });
        };
        collectives("collective", group);
        collectives("collective through another runtime", far_group);
        check("sleep", [] { return sleep_for(1ms); });
        check("offload", [] {
            const auto work = [] { return 1; };
            return offload(work);
        });
    }
    // Runs `work` in a turn of the client.
    void in_turn(Function<void()> work) {
        pair.client.executor().post(std::move(work));
        pair.rig.run_until_idle();
    }
};

template <class Make>
auto make_stored(Make& make) {
    using Operation = decltype(make());
    return std::unique_ptr<Operation>(new Operation(make()));
}

}  // namespace weft::test
