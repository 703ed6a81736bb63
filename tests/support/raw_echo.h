// A service on bytes that echoes its requests, or holds them, and a client.
#pragma once

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/sim_rig.h"

namespace weft::test {

inline constexpr MethodId echo_method("test.Echo/Echo");

struct Echo final : Service {
    std::vector<Call> held;
    bool hold = false;
    std::uint64_t handled = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            ++handled;
            if (hold) {
                held.push_back(std::move(call));
            } else {
                call.reply(call.request());
            }
        });
    }
};

struct CallOutcome {
    int completions = 0;
    Status status;
    std::string reply;
    Completion done() {
        return [this](const Status& with, ByteView body) {
            ++completions;
            status = with;
            reply = as_text(body);
        };
    }
};

struct Pair {
    Echo service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    Channel channel;
    Pair() {
        REQUIRE(server.add(service).ok());
        channel = client.connect("sim://server").value();
    }
    // A call that has arrived at the server and has no reply yet.
    Call hold_one(CallOutcome& outcome) {
        service.hold = true;
        channel.call(echo_method, as_bytes("x"), {}, outcome.done());
        REQUIRE(rig.run_until([&] { return !service.held.empty(); }));
        Call call = std::move(service.held[0]);
        service.held.clear();
        return call;
    }
};

}  // namespace weft::test
