// The choice among a server's addresses, in every combination of five addresses.
#include <map>

#include "core/address_selector.h"
#include "support/catch.h"

using namespace weft;
using core::AddressSelector;

namespace {

constexpr na::Incarnation its_own{1, 1}, another{2, 2};

// What listens at an address.
enum class Listener { nothing, server, other_process };
using World = std::map<std::string, Listener>;

na::Address address(const std::string& uri) { return na::parse_address(uri).value(); }

struct Outcome {
    std::string used;  // Empty: no address works.
    bool reused = false;
    int connects = 0;
    std::string reason;
    Status failure_status;
};

// Connects as core::Context does, and checks that it keeps a connection that is used again.
Outcome walk(AddressSelector& path, const World& world) {
    Outcome result;
    AddressSelector::Step step = path.start();
    bool held = false;
    while (step.action == AddressSelector::Action::connect) {
        ++result.connects;
        REQUIRE(result.connects < 20);
        const Listener listener = world.at(path.address().uri());
        if (listener == Listener::nothing) {
            const Status why = fail(Code::unavailable, "connection refused");
            step = path.failed(why);
            result.failure_status = path.failure_status(why);
        } else {
            step = path.up(listener == Listener::server ? its_own : another);
            held |= step.keep_current;
        }
    }
    if (step.action == AddressSelector::Action::give_up) return result;
    result.reused = step.action == AddressSelector::Action::use_kept;
    CHECK((!result.reused || held));
    result.used = path.address().uri();
    result.reason = path.reason();
    return result;
}

AddressSelector path_of(const std::vector<std::string>& uris) {
    std::vector<na::Address> addresses;
    for (const std::string& uri : uris) addresses.push_back(address(uri));
    return AddressSelector(std::move(addresses));
}

const std::string sm = "sm://a", local = "unix:///a", card = "verbs://h:1", tcp = "tcp://h:2",
                  ofi = "ofi+tcp://h:3";

}  // namespace

TEST_CASE("a local address is used when the network shows that it is the same process") {
    const Listener all[] = {Listener::nothing, Listener::server, Listener::other_process};
    const Listener network[] = {Listener::nothing, Listener::server};
    for (const Listener at_sm : all) {
        for (const Listener at_local : all) {
            for (const Listener at_card : network) {
                for (const Listener at_tcp : network) {
                    for (const Listener at_ofi : network) {
                        const World world{{sm, at_sm},
                                          {local, at_local},
                                          {card, at_card},
                                          {tcp, at_tcp},
                                          {ofi, at_ofi}};
                        std::string best;
                        for (const std::string& uri : {card, tcp, ofi}) {
                            if (best.empty() && world.at(uri) == Listener::server) best = uri;
                        }
                        if (!best.empty()) {
                            if (at_local == Listener::server) best = local;
                            if (at_sm == Listener::server) best = sm;
                        }
                        AddressSelector path = path_of({ofi, local, tcp, sm, card});
                        const Outcome result = walk(path, world);
                        CHECK(result.used == best);
                        CHECK(walk(path, world).used == best);  // start() can be called again.
                    }
                }
            }
        }
    }
}

TEST_CASE("addresses are ordered by speed, and by the list at equal speed") {
    AddressSelector path = path_of({"ofi+tcp://h:1", "tcp://h:2", "sm://b", "sm://a", "unix:///c",
                                    "ofi+verbs://h:3", "verbs://h:4", "tcp://h:1"});
    std::vector<std::string> order;
    for (const na::Address& at : path.addresses()) order.push_back(at.uri());
    CHECK(order == std::vector<std::string>{"sm://b", "sm://a", "unix:///c", "verbs://h:4",
                                            "ofi+verbs://h:3", "tcp://h:2", "tcp://h:1",
                                            "ofi+tcp://h:1"});
}

TEST_CASE("the cheapest network is the witness, and is used when no faster address works") {
    AddressSelector path = path_of({sm, card, tcp});
    const Outcome proved =
        walk(path, {{sm, Listener::server}, {card, Listener::server}, {tcp, Listener::server}});
    CHECK(proved.used == sm);
    CHECK(proved.connects == 2);  // No verbs device was set up.
    CHECK(proved.reason == "the same process as " + tcp);

    const Outcome remote =
        walk(path, {{sm, Listener::nothing}, {card, Listener::nothing}, {tcp, Listener::server}});
    CHECK(remote.used == tcp);
    CHECK(remote.reused);
    CHECK(remote.connects == 3);

    const Outcome faster = walk(
        path, {{sm, Listener::other_process}, {card, Listener::server}, {tcp, Listener::server}});
    CHECK(faster.used == card);
    CHECK(faster.reason == "sm://a is another process");
}

TEST_CASE("without a network address, local names are trusted") {
    AddressSelector path = path_of({local, sm});
    CHECK(walk(path, {{sm, Listener::other_process}, {local, Listener::server}}).used == sm);
    CHECK(walk(path, {{sm, Listener::nothing}, {local, Listener::server}}).used == local);
    const Outcome none = walk(path, {{sm, Listener::nothing}, {local, Listener::nothing}});
    CHECK(none.used.empty());
    CHECK(none.failure_status.text() ==
          "sm://a: connection refused; unix:///a: connection refused");
}

TEST_CASE("a local name is not trusted when the network fails, and the error says why") {
    AddressSelector path = path_of({sm, tcp});
    const Outcome result = walk(path, {{sm, Listener::server}, {tcp, Listener::nothing}});
    CHECK(result.used.empty());
    CHECK(result.failure_status.code() == Code::unavailable);
    CHECK(result.failure_status.text() ==
          "tcp://h:2: connection refused; nothing shows that sm://a is the same server");
}

TEST_CASE("a witness that is lost while local names are tried is not used") {
    AddressSelector path = path_of({sm, tcp, ofi});
    const Status gone = fail(Code::unavailable, "gone");
    CHECK(path.start().action == AddressSelector::Action::connect);
    CHECK(path.up(its_own).keep_current);
    CHECK(path.failed(gone).action == AddressSelector::Action::use_kept);  // sm fails.
    CHECK(path.address().uri() == tcp);
    CHECK(path.failed(gone).action == AddressSelector::Action::connect);
    CHECK(path.address().uri() == ofi);
    CHECK(path.up(its_own).action == AddressSelector::Action::use);
}

TEST_CASE("the next address follows one over which the server can't be used") {
    AddressSelector path = path_of({sm, local, tcp, ofi});
    const Status elsewhere = fail(Code::out_of_range, "elsewhere");
    CHECK(path.start().action == AddressSelector::Action::connect);
    CHECK(path.up(its_own).keep_current);
    for (const std::string& uri : {sm, local}) {
        CHECK(path.address().uri() == uri);
        CHECK(path.up(its_own).action == AddressSelector::Action::use);
        if (uri == sm) CHECK(path.failed(elsewhere).action == AddressSelector::Action::connect);
    }
    CHECK(path.failed(elsewhere).action == AddressSelector::Action::use_kept);
    CHECK(path.address().uri() == tcp);
    CHECK(path.failed(elsewhere).action == AddressSelector::Action::connect);
    CHECK(path.address().uri() == ofi);
    CHECK(path.up(its_own).action == AddressSelector::Action::use);
    CHECK(path.failed(elsewhere).action == AddressSelector::Action::give_up);
    CHECK(path.failure_status(elsewhere).code() == Code::out_of_range);
}

TEST_CASE("no address is tried twice") {
    AddressSelector path = path_of({sm, card, tcp, ofi});
    const Outcome outcome = walk(path, {{sm, Listener::nothing},
                                        {card, Listener::nothing},
                                        {tcp, Listener::nothing},
                                        {ofi, Listener::server}});
    CHECK(outcome.used == ofi);
    CHECK(outcome.connects == 4);
}

TEST_CASE("a single address is used without a reason") {
    AddressSelector path = path_of({tcp});
    const Outcome result = walk(path, {{tcp, Listener::server}});
    CHECK(result.used == tcp);
    CHECK(result.reason.empty());
    const Outcome none = walk(path, {{tcp, Listener::nothing}});
    CHECK(none.failure_status.text() == "connection refused");
}

TEST_CASE("a listener that does not answer yet is retried after the other addresses") {
    AddressSelector path = path_of({tcp, ofi});
    const Status refused = fail(Code::unavailable, "nothing listens");
    CHECK(path.start().action == AddressSelector::Action::connect);
    CHECK(path.address().uri() == tcp);
    CHECK(path.timed_out().action == AddressSelector::Action::connect);
    CHECK(path.address().uri() == ofi);
    // No address works: from the start.
    CHECK(path.failed(refused).action == AddressSelector::Action::connect);
    CHECK(path.address().uri() == tcp);
    SECTION("until another address works") {
        CHECK(path.timed_out().action == AddressSelector::Action::connect);
        CHECK(path.up(its_own).action == AddressSelector::Action::use);
        CHECK(path.address().uri() == ofi);
    }
    SECTION("until nothing listens at it") {
        CHECK(path.failed(refused).action == AddressSelector::Action::connect);
        CHECK(path.failed(refused).action == AddressSelector::Action::give_up);
    }
}
