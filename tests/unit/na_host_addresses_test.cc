// What a listener on all addresses of its host says that others may type.
#include "na/host_addresses.h"

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/patience.h"
#include "support/raw_echo.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

namespace {

SocketName host_name(const std::string& host, std::uint16_t port = 0) {
    return *SocketName::from_numeric(host, port);
}

std::string typed(const SocketName& any, const std::vector<SocketName>& of_host,
                  const SocketName& preferred = {}) {
    std::string all;
    for (const SocketName& one : typable(any, of_host, preferred)) all += one.text() + " ";
    return all;
}

}  // namespace

TEST_CASE("a listener on all addresses is reached at those of its family, the preferred first") {
    const std::vector<SocketName> of_host = {host_name("127.0.0.1"), host_name("10.0.0.1"),
                                             host_name("::1"),       host_name("fe80::1"),
                                             host_name("10.0.0.2"),  host_name("2001::1")};
    CHECK(typed(host_name("0.0.0.0", 7), of_host) == "10.0.0.1:7 10.0.0.2:7 ");
    CHECK(typed(host_name("0.0.0.0", 7), of_host, host_name("10.0.0.2")) ==
          "10.0.0.2:7 10.0.0.1:7 ");
    CHECK(typed(host_name("0.0.0.0", 7), of_host, host_name("10.0.0.9")) ==
          "10.0.0.1:7 10.0.0.2:7 ");
    CHECK(typed(host_name("::", 7), of_host) == "[2001::1]:7 ");
}

TEST_CASE("a listener on all addresses of a host that has none is reached over loopback") {
    CHECK(typed(host_name("0.0.0.0", 7), {}) == "127.0.0.1:7 ");
    CHECK(typed(host_name("0.0.0.0", 7), {host_name("127.0.0.1"), host_name("2001::1")}) ==
          "127.0.0.1:7 ");
    CHECK(typed(host_name("::", 7), {host_name("fe80::1"), host_name("10.0.0.1")}) ==
          "10.0.0.1:7 ");
    CHECK(typed(host_name("::", 7), {}) == "[::1]:7 ");
    CHECK(typed(host_name("::", 7), {host_name("127.0.0.1"), host_name("::1")}) == "[::1]:7 ");
    CHECK(typed(host_name("::", 7), {host_name("127.0.0.1")}) == "127.0.0.1:7 ");
}

TEST_CASE("an address that is not of all is typed as it is") {
    for (const char* uri : {"tcp://127.0.0.1:5", "sm://name", "unix:///tmp/x", "tcp://host:1"}) {
        CHECK(addresses_to_type(uri) == std::vector<std::string>{uri});
    }
}

TEST_CASE("each address of a server that listens on all of its host answers") {
    for (const char* any : {"tcp://0.0.0.0:0", "tcp://[::]:0"}) {
        Echo service;
        Runtime server = Runtime::create().value();
        const Status status = server.serve(service, any);
        if (!status.ok()) {
            WARN(any << ": " << status.to_string());  // No IPv6 on this host.
            continue;
        }
        Runtime client = Runtime::create({.manual = true}).value();
        const std::vector<std::string> addresses = server.addresses();
        REQUIRE_FALSE(addresses.empty());
        for (const std::string& uri : addresses) {
            INFO(uri);
            CHECK(uri.find("0.0.0.0") == std::string::npos);
            CHECK(uri.find("[::]") == std::string::npos);
            Channel channel = client.connect(uri).value();
            CallOutcome outcome;
            channel.call(echo_method, {}, {.timeout = 60s}, outcome.done());
            REQUIRE(client.turn_until([&] { return outcome.completions == 1; }, patience));
            CHECK(outcome.status.ok());
        }
    }
}
