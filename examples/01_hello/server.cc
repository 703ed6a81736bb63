#include <iostream>

#include <weft/runtime.h>

#include "hello.weft.h"

struct Greeter final : demo::GreeterService {
    weft::Status Greet(weft::Call&, const demo::Name& in, demo::Text& out) override {
        out.set_text("hello " + in.who());
        return {};
    }
};

int main() {
    Greeter greeter;
    auto runtime = weft::Runtime::create().value();
    weft::Status status = runtime.serve(greeter, "sm://hello");
    if (status.ok()) status = runtime.run();  // Runs until SIGTERM.
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
}
