// server [ADDRESS]: prints its address, and serves until SIGTERM or ^C.
#include <iostream>
#include <string>

#include "greeter.h"

int main(int argc, char** argv) try {
    Greeter service;  // Outlives the runtime, which is declared after it.
    auto runtime = weft::Runtime::create().value();
    weft::Status status = runtime.serve(service, argc > 1 ? argv[1] : "sm://greeter");
    if (status.ok()) {
        for (const std::string& address : runtime.addresses()) std::cout << address << std::endl;
        status = runtime.run();
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const weft::BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
