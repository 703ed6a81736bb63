// client [NAME [ADDRESS]]: sends a greeting and prints the reply.
#include <iostream>

#include "greeter.h"

int main(int argc, char** argv) try {
    auto runtime = weft::Runtime::create().value();
    auto channel = runtime.connect(argc > 2 ? argv[2] : "sm://greeter").value();
    const weft::Result<std::string> text =
        runtime.block_on(greet(channel, argc > 1 ? argv[1] : "world"));
    if (text) {
        std::cout << *text << '\n';
    } else {
        std::cerr << text.status().to_string() << '\n';
    }
    return static_cast<int>(text.status().code());
} catch (const weft::BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
