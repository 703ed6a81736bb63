#include <iostream>

#include <weft/runtime.h>

#include "hello.weft.h"

using namespace weft;

Task<Status> greet(Channel channel, std::string who) {
    demo::Name name;
    name.set_who(who);
    Result<demo::Text> reply =
        co_await demo::GreeterClient(channel).Greet(name, {.timeout = 500ms});
    if (!reply) co_return reply.status();
    std::cout << reply->text() << '\n';
    co_return Status();
}

int main(int argc, char** argv) {
    auto runtime = Runtime::create().value();
    auto channel = runtime.connect("sm://hello").value();
    Status status = runtime.block_on(greet(channel, argc > 1 ? argv[1] : "world"));
    if (!status) std::cerr << status.to_string() << '\n';
    return status ? 0 : 1;
}
