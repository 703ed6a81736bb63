// "No registration and no allocation in a steady flow", counted over the real transports, for
// requests and replies up to 1 MiB: inline in a message and by rendezvous.
#include <unistd.h>

#include <filesystem>
#include <vector>

#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/hold_server.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

// Two runtimes in one thread, both turned here: all allocations are counted.
struct Pair {
    explicit Pair(const std::string& uri) {
        REQUIRE(server.serve(service, uri).ok());
        channel = client.connect(server.addresses().front()).value();
    }
    void call(ByteView body) {
        bool done = false;
        channel.call(HoldServer::echo, body, {.timeout = test_timeout},
                     [&](const Status& with, ByteView reply) {
                         if (with.ok() && reply.size() == body.size()) ++completed;
                         done = true;
                     });
        while (!done) {
            server.turn();
            client.turn();
        }
    }
    std::uint64_t exposed() {
        return node_of(server).bulk.regions->counters().exposed +
               node_of(client).bulk.regions->counters().exposed;
    }

    HoldServer service;
    Runtime server = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Channel channel;
    int completed = 0;
};

void count_over(const std::string& uri) {
    Pair pair(uri);
    constexpr std::size_t mib = 1 << 20;
    for (std::size_t bytes :
         {std::size_t{0}, std::size_t{64}, std::size_t{4096}, mib / 64, mib / 64 + 1, mib / 16,
          mib / 16 + 1, mib / 8, mib / 8 + 1, mib / 4, mib / 2, mib - 1}) {
        INFO(bytes << " bytes over " << uri);
        const std::vector<std::byte> body(bytes, std::byte{7});
        // The number of buffers in use at once depends on how sockets cut the stream: pools grow to
        // the highest use, and no further.
        std::uint64_t allocated = 0, registered = 0;
        for (int round = 0; round < 10; ++round) {
            allocated = allocations(), registered = pair.exposed();
            pair.completed = 0;
            for (int i = 0; i < 100; ++i) pair.call(body);
            REQUIRE(pair.completed == 100);
            allocated = allocations() - allocated;
            registered = pair.exposed() - registered;
            if (allocated == 0 && registered == 0) break;
        }
        CHECK(allocated == 0);
        CHECK(registered == 0);
    }
}

}  // namespace

TEST_CASE("bodies of up to 1 MiB over sm allocate and register nothing") {
    count_over("sm://sizes-" + std::to_string(::getpid()));
}
TEST_CASE("bodies of up to 1 MiB over tcp allocate and register nothing") {
    count_over("tcp://127.0.0.1:0");
}
TEST_CASE("bodies of up to 1 MiB over unix sockets allocate and register nothing") {
    count_over("unix://" + (std::filesystem::temp_directory_path() /
                            ("weft-sizes-" + std::to_string(::getpid())))
                               .string());
}
TEST_CASE("bodies of up to 1 MiB over ofi+tcp allocate and register nothing") {
    const std::string uri = "ofi+tcp://127.0.0.1:0";
    if (api::production_parts().providers->find("ofi+tcp")) count_over(uri);
}
