#include "na/address.h"
#include "base/text.h"

#include "support/catch.h"

using namespace weft;
using na::Address;
using na::parse_address;

TEST_CASE("valid addresses are parsed and formatted back to the same text") {
    struct Good {
        const char* uri;
        Address address;
    };
    const Good goods[] = {
        {"sm://store", {"sm", "store", "", 0}},
        {"sm://a.b-c_D9", {"sm", "a.b-c_D9", "", 0}},
        {"sim://n1", {"sim", "n1", "", 0}},
        {"tcp://host:80", {"tcp", "", "host", 80}},
        {"tcp://10.0.0.1:65535", {"tcp", "", "10.0.0.1", 65535}},
        {"tcp://:0", {"tcp", "", "", 0}},
        {"tcp://[::1]:7", {"tcp", "", "::1", 7}},
        {"tcp://[fe80::1%eth0]:7", {"tcp", "", "fe80::1%eth0", 7}},
        {"tcp://[fe80::1%eth0.100]:7", {"tcp", "", "fe80::1%eth0.100", 7}},
        {"tcp://[::ffff:192.0.2.1]:7", {"tcp", "", "::ffff:192.0.2.1", 7}},
        {"tcp://node.1:7", {"tcp", "", "node.1", 7}},
        {"tcp://0xff-box:7", {"tcp", "", "0xff-box", 7}},
        {"ofi+tcp://node-1.site.example:4000", {"ofi+tcp", "", "node-1.site.example", 4000}},
        {"ofi+verbs://h:1", {"ofi+verbs", "", "h", 1}},
        {"verbs://h:1", {"verbs", "", "h", 1}},
    };
    for (const Good& good : goods) {
        INFO(good.uri);
        const Result<Address> address = parse_address(good.uri);
        REQUIRE(address);
        CHECK(*address == good.address);
        CHECK(address->uri() == good.uri);
    }
    CHECK(parse_address("sm://" + std::string(64, 'x')).ok());
}

namespace {

struct BadAddress {
    std::string uri;
    const char* words;
};

void check_refused_addresses(const std::vector<BadAddress>& bads) {
    for (const BadAddress& bad : bads) {
        INFO(bad.uri);
        const Result<Address> address = parse_address(bad.uri);
        REQUIRE_FALSE(address);
        const Status& status = address.status();
        INFO(status.text());
        CHECK(status.code() == Code::invalid_argument);
        CHECK(status.text().find(bad.words) != std::string_view::npos);
        CHECK(status.text().find("address '" + base::printable(bad.uri.substr(0, 40))) !=
              std::string_view::npos);
        CHECK(status.text().size() < 600);
    }
}

}  // namespace

TEST_CASE("invalid addresses are refused with a text that quotes them and shows a valid form") {
    check_refused_addresses({
        {"", "no transport in front"},
        {"store", "no transport in front; use sm://name"},
        {"://store", "no transport in front"},
        {"sm:store", "no transport in front"},
        {"sm:/store", "no transport in front"},
        {"http://host:80", "unknown transport 'http'; use sm://name"},
        {"SM://store", "unknown transport 'SM' (is 'sm' meant?)"},
        {" tcp://host:80", "unknown transport ' tcp' (is 'tcp' meant?)"},
        {"Ofi+TCP://host:80", "(is 'ofi+tcp' meant?)"},
        {"ofi://host:80", "unknown transport 'ofi'"},
        {"ofi+shm://x", "libfabric's shm checks no keys, so weft does not offer it; use sm://name"},
        {"sm://", "1 to 64 letters, digits"},
        {"sm://.hidden", "not starting with '.'"},
        {"sm://..", "not starting with '.'"},
        {"sm://a/b", "1 to 64 letters"},
        {"sm://a b", "' ' is byte 2 of the name; the name must be 1 to 64 letters"},
        {"sm://store/0", "'/' is byte 6 of the name; "},
        {"sm://store ", "' ' is byte 6 of the name; "},
        {"sm://", "the name is empty; "},
        {"sm://" + std::string(300, 'x'), "the name has 300 bytes; "},
        {"unix:///" + std::string(107, 'x'), "the path has 108 bytes; expected unix:///path"},
        {"unix:///a/", "the path ends in '/'; "},
        {"unix://a", "the path is not absolute; "},
        {"unix:///a\nb", "the path has characters that do not print; "},
        {"sm://a\n", "1 to 64 letters"},
        {"sm://" + std::string(65, 'x'), "1 to 64 letters"},
        {"sim://a:1", "1 to 64 letters"},
    });
}

TEST_CASE("invalid hosts and ports are refused with the bad part and the reason") {
    check_refused_addresses({
        {"tcp://", "expected host:port"},
        {"tcp://host", "expected host:port"},
        {"tcp://host:", "expected host:port"},
        {"tcp://host:65536", "the port is '65536'; expected host:port with a port from 0 to 65535"},
        {"tcp://host:http", "the port is 'http'; "},
        {"tcp://127.0.0.1://1234", "the port is '//1234'; "},
        {"tcp://host", "no port; "},
        {"tcp://host:80 ", "the port is '80 '; "},
        {"tcp:// host:80", "' ' is byte 1 of the host; "},
        {"tcp://[fe80::1]:7", "a link-local address needs its interface, as in [fe80::1%eth0]; "},
        {"tcp://[FE90::1]:7", "a link-local address needs its interface"},
        {"tcp://[fe80::1%]:7", "the zone behind % is empty; "},
        {"tcp://[fe80::1%0123456789abcdef]:7", "the zone has 16 bytes; "},
        {"tcp://[::1%lo]:7", "a zone (%) is of link-local addresses (fe80::) only; "},
        {"tcp://host%eth0:7", "a zone (%) is of IPv6 addresses only; "},
        {"tcp://host:99999999999999999999", "expected host:port"},
        {"tcp://host:-1", "expected host:port"},
        {"tcp://127.0.0.010:1", "four numbers without leading zeros, as in 192.0.2.1; expected"},
        {"verbs://010.0.0.1:1", "four numbers without leading zeros"},
        {"tcp://127.1:1", "four numbers"},
        {"tcp://2130706433:1", "four numbers"},
        {"tcp://0x7f000001:1", "four numbers"},
        {"tcp://0X7f.1:1", "four numbers"},
        {"tcp://1.2.3.256:1", "four numbers"},
        {"tcp://host:+1", "expected host:port"},
        {"tcp://host: 1", "expected host:port"},
        {"tcp://host:1x", "expected host:port"},
        {"tcp://host:1/", "expected host:port"},
        {"tcp://ho st:1", "expected host:port"},
        {"tcp://user/host:1", "expected host:port"},
        {"tcp://::1:7", "[host]:port for IPv6"},
        {"tcp://[[]:5", "expected host:port"},
        {"tcp://a]:5", "expected host:port"},
        {"tcp://[::1]", "expected host:port"},
        {"tcp://[::1]7", "expected host:port"},
        {"tcp://[::1:7", "expected host:port"},
        {"tcp://" + std::string(254, 'x') + ":1", "expected host:port"},
        {"tcp://" + std::string(500, 'x') + ":1", "too long"},
    });
}

TEST_CASE("the error for an address is one printable line, whatever bytes the address has") {
    const Status told = na::parse_address("sm://a\nb\x1b[2J").status();
    CHECK(told.text().find("'sm://a\\x0ab\\x1b[2J'") != std::string_view::npos);
}
