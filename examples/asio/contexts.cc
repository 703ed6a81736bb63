#include <csignal>
#include <iostream>
#include <list>
#include <memory>
#include <thread>

#include <weft/asio.h>
#include <boost/asio.hpp>

#include "hello.weft.h"

namespace asio = boost::asio;
using namespace weft;

// One for each context, used by the thread of that context alone.
struct Greeter final : demo::GreeterService {
    explicit Greeter(unsigned k) : context(k) {}
    Status Greet(Call&, const demo::Name& in, demo::Text& out) override {
        out.set_text("hello " + in.who() + " from context " + std::to_string(context) + "\n");
        return {};
    }
    const unsigned context;
};

// Turns one context on a thread of its own.
struct Loop {
    explicit Loop(const ContextRef& context)
        : driver(io.get_executor(), context), thread([this] { io.run(); }) {}
    ~Loop() {
        io.stop();
        thread.join();
    }

    asio::io_context io{1};
    AsioDriver driver;  // Ends when no thread runs its io_context.
    std::thread thread;
};

asio::awaitable<void> greet(demo::GreeterClient greeter) {
    demo::Name name;
    name.set_who("asio");
    Result<demo::Text> reply = co_await greeter.Greet(name, {}, asio::use_awaitable);
    std::cout << (reply ? reply->text() : reply.status().to_string() + "\n") << std::flush;
}

int main() {
    sigset_t ends;  // Blocked in all threads: run() waits for them.
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);

    auto runtime = Runtime::create({.contexts = 2, .manual = true}).value();
    const auto make = [](const Here& here) { return std::make_unique<Greeter>(here.index); };
    Status status = runtime.serve(make, "sm://contexts");
    if (status.ok()) {
        const Channel channel = runtime.connect("sm://contexts").value();
        std::list<Loop> loops;
        for (unsigned k = 0; k < runtime.contexts(); ++k) {
            Loop& loop = loops.emplace_back(runtime.context(k));
            asio::co_spawn(loop.io, greet(demo::GreeterClient(channel.on(k))), asio::detached);
        }
        status = runtime.run();  // Until a signal; the loops turn the contexts meanwhile.
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
}
