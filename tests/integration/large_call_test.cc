// Calls of every size over the real transports, within one process.
#include <unistd.h>

#include <vector>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/hold_server.h"
#include "support/rdma_host.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

std::vector<std::byte> pattern(std::size_t bytes) {
    std::vector<std::byte> body(bytes);
    for (std::size_t i = 0; i < bytes; ++i) body[i] = static_cast<std::byte>(i * 7 + i / 4096);
    return body;
}

// Two runtimes in one thread, both turned here.
struct LargePair {
    explicit LargePair(const std::string& uri) {
        REQUIRE(server.serve(service, uri).ok());
        channel = client.connect(server.addresses().front()).value();
    }

    Status call(const MethodId& method, ByteView body, bool& same) {
        bool done = false;
        Status status;
        channel.call(
            method, body, {.timeout = test_timeout}, [&](const Status& with, ByteView reply) {
                same = reply.size() == body.size() &&
                       (body.empty() || std::memcmp(reply.data(), body.data(), body.size()) == 0);
                status = with;
                done = true;
            });
        while (!done) {
            server.turn();
            client.turn();
        }
        return status;
    }

    HoldServer service;
    Runtime server = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Channel channel;
};

void check_sizes(const std::string& uri) {
    if (!is_in_this_build(uri)) return;
    LargePair pair(uri);
    std::vector<std::size_t> sizes{0, 1, 100'000};
    for (const std::size_t limit : {16u << 10, 64u << 10}) {
        for (const std::size_t bytes : {limit - 1, limit, limit + 1}) sizes.push_back(bytes);
    }
    for (std::size_t bytes = 128 << 10; bytes <= 64u << 20; bytes *= 8) sizes.push_back(bytes + 1);
    for (const std::size_t bytes : sizes) {
        INFO(bytes << " bytes over " << uri);
        bool same = false;
        const Status status = pair.call(HoldServer::echo, pattern(bytes), same);
        INFO(status.to_string());
        REQUIRE(status.ok());
        REQUIRE(same);
    }
}

}  // namespace

TEST_CASE("calls of 0 to 64 MiB are echoed over sm") {
    check_sizes("sm://large-" + std::to_string(::getpid()));
}
TEST_CASE("calls of 0 to 64 MiB are echoed over tcp") { check_sizes("tcp://127.0.0.1:0"); }
TEST_CASE("calls of 0 to 64 MiB are echoed over unix sockets") {
    check_sizes("unix:///tmp/weft-large-" + std::to_string(::getpid()));
}
TEST_CASE("calls of 0 to 64 MiB are echoed over ofi+tcp") { check_sizes("ofi+tcp://127.0.0.1:0"); }
TEST_CASE("calls of 0 to 64 MiB are echoed over verbs") {
    if (const auto uri = test::rdma_uri()) check_sizes(*uri);
}
TEST_CASE("calls of 0 to 64 MiB are echoed over ofi+verbs") {
    if (const auto uri = test::rdma_uri("ofi+verbs")) check_sizes(*uri);
}
