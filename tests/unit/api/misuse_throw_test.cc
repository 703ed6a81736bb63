// Exceptions where a program must not throw: the program ends. The text of the exception is not
// always printed, because g++ may call terminate() after it has unwound the stack.
#include <stdexcept>

#include "support/child.h"
#include "support/raw_echo.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

namespace misuse_throw_test {

using namespace weft;
using namespace weft::test;

Runtime by_hand() {
    RuntimeOptions options;
    options.log_level = LogLevel::off;
    options.manual = true;
    return Runtime::create(options).value();
}

void turn(Runtime& runtime) {
    (void)runtime.turn_until([] { return false; }, test_timeout);
}

[[noreturn]] void fail_there() { throw std::runtime_error("thrown there"); }

// Never answers; its notices throw.
struct Notices final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            held = std::move(call);
            is_called = true;
            held.on_cancel(fail_there);
            held.on_drain(fail_there);
        });
    }
    Call held;
    bool is_called = false;
};

// Returns when the handler has the call and, after that, the client has cancelled it or the server
// has ended.
void notice(bool by_cancel) {
    Notices service;
    Runtime server = by_hand();
    if (!server.serve(service, "sm://" + unique_name("throw")).ok()) return;
    Runtime client = by_hand();
    Channel channel = client.connect(server.addresses().at(0)).value();
    const OperationId call =
        channel.call(echo_method, {}, {.timeout = 60s}, [](const Status&, ByteView) {});
    while (!service.is_called) server.turn(), client.turn();
    if (by_cancel) {
        channel.cancel_call(call);
        while (true) server.turn(), client.turn();
    }
    server.stop();
    (void)server.run();
}

TEST_CASE("an exception from a completion, a notice or posted work ends the program") {
    const std::vector<std::string> words = {"terminate called"};
    check({"a completion",
           [] {
               Runtime runtime = by_hand();
               Channel channel = runtime.connect("sm://" + unique_name("nothing")).value();
               channel.call(echo_method, {}, {}, [](const Status&, ByteView) { fail_there(); });
               turn(runtime);
           },
           words});
    check({"BodyWriter::write",
           [] {
               Notices service;
               Runtime runtime = by_hand();
               if (!runtime.serve(service, "sm://" + unique_name("throw")).ok()) return;
               runtime.turn();
               Channel channel = runtime.connect(runtime.addresses().at(0)).value();
               const BodyWriter body{100, nullptr, [](void*, std::byte*) { fail_there(); }};
               channel.call_with(echo_method, body, {}, [](const Status&, ByteView) {});
               turn(runtime);
           },
           words});
    check({"Executor::post()",
           [] {
               Runtime runtime = by_hand();
               runtime.executor().post(fail_there);
               turn(runtime);
           },
           words});
    check({"Executor::offload()",
           [] {
               Runtime runtime = by_hand();
               runtime.executor().offload(fail_there);
               turn(runtime);
           },
           words});
    check({"Region::close()",
           [] {
               Runtime runtime = by_hand();
               if (!runtime.listen("sm://" + unique_name("throw")).ok()) return;
               Region region = runtime.expose(runtime.allocate(4096).value(), {}).value();
               region.close(fail_there);
               turn(runtime);
           },
           words});
    check({"Call::on_cancel()", [] { notice(true); }, words});
    check({"Call::on_drain()", [] { notice(false); }, words});
}

}  // namespace misuse_throw_test
