#include <iostream>

#include <weft/runtime.h>

#include "hello.weft.h"

using namespace weft;

Task<Status> greet(Channel channel, std::string who) {
    demo::Name name;
    name.set_who(who);
    Result<demo::Text> reply = co_await demo::GreeterClient(channel).Greet(name);
    if (reply) std::cout << reply->text() << '\n';
    co_return reply.status();
}

int main(int argc, char** argv) {
    auto runtime = Runtime::create().value();
    auto channel = runtime.connect("sm://hello").value();
    const Status status = runtime.block_on(greet(channel, argc > 1 ? argv[1] : "world"));
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
}
