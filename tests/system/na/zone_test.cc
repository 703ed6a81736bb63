// Link-local IPv6 addresses, which are valid only together with their interface.
#include <string>

#include <weft/group_view.h>
#include <weft/runtime.h>

#include "na/host_addresses.h"
#include "support/capability.h"
#include "support/catch.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace weft::na_zone_test {
namespace {

using Catch::Matchers::Contains;
using na::SocketName;

TEST_CASE("a link-local address keeps its interface from text to socket and back") {
    const auto name = SocketName::from_numeric("fe80::1%lo", 7);
    REQUIRE(name);
    CHECK(reinterpret_cast<const sockaddr_in6*>(name->get())->sin6_scope_id != 0);
    CHECK(name->host() == "fe80::1%lo");
    CHECK(name->text() == "[fe80::1%lo]:7");
    CHECK_FALSE(SocketName::from_numeric("fe80::1%no-such", 7));
    CHECK_FALSE(SocketName::from_numeric("::1%lo", 7));
    CHECK(SocketName::from_numeric("fe80::1", 7)->text() == "[fe80::1]:7");
}

Status call(const std::string& uri) {
    test::CallOutcome outcome;
    Runtime client = Runtime::create({.manual = true}).value();
    const Result<Channel> channel = client.connect(uri);
    if (!channel) return channel.status();
    channel->call(test::echo_method, {}, {.timeout = 60s}, outcome.done());
    REQUIRE(client.turn_until([&] { return outcome.completions == 1; }, test::test_timeout));
    return outcome.status;
}

TEST_CASE("a zone that is no interface of this host is named in the error of connect and serve") {
    CHECK_THAT(call("tcp://[fe80::1%no-such]:7000").to_string(),
               Contains("this host has no interface 'no-such'"));
    test::Echo echo;
    Runtime server = Runtime::create({.manual = true}).value();
    CHECK_THAT(server.serve(echo, "tcp://[fe80::1%no-such]:0").to_string(),
               Contains("this host has no interface 'no-such'"));
}

TEST_CASE("a server at a link-local address is reached at its reported address") {
    const std::vector<SocketName> of_host = na::addresses_of_host().value();
    for (const SocketName& name : of_host) {
        if (!name.is_link_local()) continue;
        const std::string at = "tcp://" + name.with_port(0).text();
        INFO(at);
        test::Echo echo;
        Runtime server = Runtime::create().value();
        REQUIRE(server.serve(echo, at).ok());
        REQUIRE(server.addresses().size() == 1);
        const std::string uri = server.addresses()[0];
        CHECK(uri.substr(0, uri.rfind(':')) == at.substr(0, at.rfind(':')));
        CHECK(call(uri).ok());
        const auto view = GroupView::parse(
            R"({"name":"g","epoch":1,"members":[{"rank":0,"uris":[")" + uri + "\"]}]}");
        REQUIRE(view);
        CHECK(call(view->at(0).uris[0]).ok());
        return;
    }
    test::note_capability("tcp", "no interface has a link-local address");
}

}  // namespace
}  // namespace weft::na_zone_test
