// The addresses that a listener on all addresses of its host reports to clients.
#include "na/host_addresses.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

namespace {

SocketName host_name(const std::string& host, std::uint16_t port = 0) {
    return *SocketName::from_numeric(host, port);
}

std::string reachable(const std::vector<int>& families, const std::vector<SocketName>& of_host,
                      const std::vector<SocketName>& routes = {}) {
    std::string all;
    for (const SocketName& one : reachable_names(7, families, of_host, routes))
        all += one.text() + " ";
    return all;
}

const std::vector<int> v4 = {AF_INET};
const std::vector<int> v6 = {AF_INET6};
const std::vector<int> both = {AF_INET6, AF_INET};

bool has_others_than_loopback(int family) {
    const std::vector<SocketName> of_host = addresses_of_host().value();
    for (const SocketName& name : of_host) {
        if (name.family() == family && !name.is_loopback() && !name.is_link_local()) return true;
    }
    return false;
}

void check_echo(const std::string& uri) {
    INFO(uri);
    Runtime client = Runtime::create({.manual = true}).value();
    Channel channel = client.connect(uri).value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {.timeout = 60s}, outcome.done());
    REQUIRE(client.turn_until([&] { return outcome.completions == 1; }, test_timeout));
    CHECK(outcome.status.ok());
}

}  // namespace

TEST_CASE("a listener on all addresses reports those of its families, routes first") {
    const std::vector<SocketName> of_host = {host_name("127.0.0.1"), host_name("10.0.0.1"),
                                             host_name("::1"),       host_name("fe80::1"),
                                             host_name("10.0.0.2"),  host_name("2001::1")};
    CHECK(reachable(v4, of_host) == "10.0.0.1:7 10.0.0.2:7 ");
    CHECK(reachable(v4, of_host, {host_name("10.0.0.2")}) == "10.0.0.2:7 10.0.0.1:7 ");
    CHECK(reachable(v4, of_host, {host_name("10.0.0.9")}) == "10.0.0.1:7 10.0.0.2:7 ");
    CHECK(reachable(v6, of_host) == "[2001::1]:7 ");
    CHECK(reachable(both, of_host, {host_name("10.0.0.2"), host_name("2001::1")}) ==
          "[2001::1]:7 10.0.0.2:7 10.0.0.1:7 ");
}

TEST_CASE("a listener on all addresses of a host without any reports loopback") {
    CHECK(reachable(v4, {}) == "127.0.0.1:7 ");
    CHECK(reachable(v4, {host_name("127.0.0.1"), host_name("2001::1")}) == "127.0.0.1:7 ");
    CHECK(reachable(both, {host_name("fe80::1"), host_name("10.0.0.1")}) == "10.0.0.1:7 ");
    CHECK(reachable(v6, {host_name("fe80::1"), host_name("10.0.0.1")}) == "[::1]:7 ");
    CHECK(reachable(both, {}) == "[::1]:7 ");
    CHECK(reachable(both, {host_name("127.0.0.1"), host_name("::1")}) == "[::1]:7 ");
    CHECK(reachable(both, {host_name("127.0.0.1")}) == "127.0.0.1:7 ");
}

TEST_CASE("a listener on all addresses reports its routes when the host lists no addresses") {
    CHECK(reachable(v4, {}, {host_name("10.0.0.2")}) == "10.0.0.2:7 ");
    CHECK(reachable(both, {}, {host_name("10.0.0.2"), host_name("2001::1")}) ==
          "[2001::1]:7 10.0.0.2:7 ");
    CHECK(reachable(v4, {}, {host_name("127.0.0.1")}) == "127.0.0.1:7 ");
}

TEST_CASE("a specific address is reported unchanged") {
    for (const char* uri : {"tcp://127.0.0.1:5", "sm://name", "unix:///tmp/x", "tcp://host:1"}) {
        CHECK(reachable_addresses(uri).uris == std::vector<std::string>{uri});
    }
}

TEST_CASE("each address of a server that listens on all of its host answers") {
    const char* any =
        GENERATE("tcp://0.0.0.0:0", "tcp://[::]:0", "ofi+tcp://0.0.0.0:0", "ofi+tcp://[::]:0");
    Echo service;
    Runtime server = Runtime::create().value();
    const Status status = server.serve(service, any);
    if (!status.ok()) {
        WARN(any << ": " << status.to_string());  // This host has no IPv6 or no libfabric.
        return;
    }
    const std::vector<std::string> addresses = server.addresses();
    REQUIRE_FALSE(addresses.empty());
    const auto has = [&](const char* part) {
        return std::ranges::any_of(
            addresses, [&](const std::string& uri) { return uri.find(part) != uri.npos; });
    };
    CHECK_FALSE(has("0.0.0.0"));
    CHECK_FALSE(has("[::]"));
    const bool is_v4 =
        any == std::string("tcp://[::]:0") || std::string(any).find('[') == std::string::npos;
    if (is_v4 && has_others_than_loopback(AF_INET)) {
        CHECK_FALSE(has("127.0.0.1"));
        CHECK(has("."));
    }
    for (const std::string& uri : addresses) check_echo(uri);
}

TEST_CASE("a listener on all addresses logs that the system does not list them") {
    const auto route = SocketName::route_to(host_name("192.0.2.1", 9));
    const std::string expected = route ? route->host() : "127.0.0.1";
    const ChildOutput output = output_of_child([&] {
        if (!refuse_sockets(AF_NETLINK, EAFNOSUPPORT)) return 1;
        Echo service;
        Runtime server = Runtime::create({.manual = true}).value();
        if (!server.serve(service, "tcp://0.0.0.0:0").ok()) return 2;
        return server.addresses().at(0).find("tcp://" + expected + ':') == 0 ? 0 : 3;
    });
    CAPTURE(output.text);
    CHECK(output.end == 0);
    CHECK(output.text.find("tcp://0.0.0.0:") != std::string::npos);
    CHECK(output.text.find("getifaddrs: Address family not supported") != std::string::npos);
}

TEST_CASE("a host without IPv6 reaches a server by its name") {
    CHECK(end_of_child([] {
              if (!refuse_sockets(AF_INET6, EAFNOSUPPORT)) return 1;
              Echo service;
              Runtime server = Runtime::create({.manual = true}).value();
              if (!server.serve(service, "tcp://127.0.0.1:0").ok()) return 2;
              const std::string at = server.addresses().at(0);
              Channel channel =
                  server.connect("tcp://localhost" + at.substr(at.rfind(':'))).value();
              CallOutcome outcome;
              channel.call(echo_method, {}, {.timeout = 60s}, outcome.done());
              if (!server.turn_until([&] { return outcome.completions == 1; }, test_timeout))
                  return 3;
              return outcome.status.ok() ? 0 : 4;
          }) == 0);
}

TEST_CASE("a listener on all addresses of both families refuses a second one on its port") {
    Echo service;
    Runtime server = Runtime::create({.manual = true}).value();
    if (!server.serve(service, "tcp://[::]:0").ok()) {
        WARN("no IPv6 on this host");
        return;
    }
    const std::string at = server.addresses().at(0);
    const Status status = server.serve(service, "tcp://0.0.0.0" + at.substr(at.rfind(':')));
    CHECK(status.code() == Code::already_exists);
    CHECK(status.text().find("a socket listens on that port already") != status.text().npos);
}
