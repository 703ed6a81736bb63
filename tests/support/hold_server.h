// A service on bytes that replies to one method and holds the calls of another, for tests over real
// transports.
#pragma once

#include <vector>

#include <weft/runtime.h>

namespace weft::test {

struct HoldServer final : Service {
    static constexpr MethodId echo{"test.Echo/Echo"};
    static constexpr MethodId hold{"test.Echo/Hold"};

    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
        registrar.add(hold, [this](Call call) { held.push_back(std::move(call)); });
    }
};

}  // namespace weft::test
