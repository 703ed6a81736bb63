// Raw calls of 64 bytes.
#include "counting/stepped.h"

using namespace weft;
using counting::Caller;

static constexpr MethodId echo("counting.Echo/Echo");

struct Echo final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
    }
};

int main(int argc, char** argv) {
    Echo service;
    return counting::run(argc, argv, service, [](Caller& caller) {
        static const std::byte body[64] = {};
        caller.channel.call(echo, body, {},
                            [&caller](const Status& status, ByteView) { caller.on_done(status); });
    });
}
