// server [ADDRESS]: serves until SIGTERM or ^C.
#include <iostream>

#include "greeter.h"

int main(int argc, char** argv) {
    Greeter service;  // Outlives the runtime, which is declared after it.
    auto runtime = weft::Runtime::create().value();
    weft::Status status = runtime.serve(service, argc > 1 ? argv[1] : "sm://greeter");
    if (status.ok()) status = runtime.run();
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
}
