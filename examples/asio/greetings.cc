#include <iostream>

#include <weft/asio.h>
#include <boost/asio.hpp>

#include "hello.weft.h"

namespace asio = boost::asio;
using namespace weft;

struct Greeter final : demo::GreeterService {
    Status Greet(Call&, const demo::Name& in, demo::Text& out) override {
        out.set_text("hello " + in.who());
        return {};
    }
};

asio::awaitable<void> greet(demo::GreeterClient greeter, std::string who) {
    demo::Name name;
    name.set_who(who);
    asio::steady_timer pause(co_await asio::this_coro::executor);
    for (int left = 3; left > 0; --left) {
        Result<demo::Text> reply = co_await greeter.Greet(name, {}, asio::use_awaitable);
        std::cout << (reply ? reply->text() : reply.status().to_string()) << std::endl;
        pause.expires_after(100ms);
        co_await pause.async_wait(asio::use_awaitable);
    }
}

int main() {
    asio::io_context io(1);  // Owned by the program, not by weft.
    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](auto, int) { io.stop(); });

    Greeter greeter;
    auto runtime = Runtime::create({.manual = true}).value();
    const Status status = runtime.serve(greeter, "sm://greetings");
    if (!status.ok()) {
        std::cerr << status.to_string() << '\n';
        return static_cast<int>(status.code());
    }
    const AsioDriver driver(io.get_executor(), runtime);

    auto channel = runtime.connect("sm://greetings").value();
    asio::co_spawn(io, greet(demo::GreeterClient(channel), "asio"), asio::detached);
    io.run();  // Runs until a signal.
}
