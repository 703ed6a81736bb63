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
    if (auto status = runtime.serve(greeter, "sm://hello"); !status) {
        std::cerr << status.to_string() << '\n';
        return 1;
    }
    return runtime.run() ? 0 : 1;
}
