// A client and a server stepped by one thread over sm, for counting what one call costs: run with
// two numbers of calls, the difference is the calls' alone.
//
//   stepped_rpc CALLS [SIZE]     prints the heap allocations made after the warm-up
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <weft/runtime.h>

static std::size_t allocations = 0;

// Every allocation of the program and its libraries passes here.
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* malloc(std::size_t bytes) {
    ++allocations;
    return __libc_malloc(bytes);
}

using namespace weft;

static constexpr MethodId echo("counting.Echo/Echo");

struct Echo final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
    }
};

// One call after the other, each started by the completion of the one before.
struct Caller {
    Channel& channel;
    ByteView body;
    std::size_t left = 0;

    void next() {
        channel.call(echo, body, {}, [this](const Status& status, ByteView) {
            if (!status.ok()) {
                std::fprintf(stderr, "%s\n", status.to_string().c_str());
                std::exit(1);
            }
            if (--left > 0) next();
        });
    }
};

// Separate and never inlined: callgrind counts what is inside.
[[gnu::noinline]] static void run_calls(Runtime& server, Runtime& client, Caller& caller,
                                        std::size_t calls) {
    caller.left = calls;
    caller.next();
    while (caller.left > 0) {
        server.turn();
        client.turn();
    }
}

int main(int argc, char** argv) {
    const std::size_t calls = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
    const std::size_t size = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 64;
    Echo service;
    const std::string uri = "sm://counting-" + std::to_string(getpid());
    Runtime server = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    if (Status status = server.serve(service, uri); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
        return 1;
    }
    Channel channel = client.connect(uri).value();
    const std::vector<std::byte> body(size);
    Caller caller{channel, body};
    run_calls(server, client, caller, 2000);
    const std::size_t before = allocations;
    run_calls(server, client, caller, calls);
    std::printf("{\"calls\":%zu,\"allocations\":%zu}\n", calls, allocations - before);
}
