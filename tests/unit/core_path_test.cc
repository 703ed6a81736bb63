// The choice among a server's addresses, in every world of five addresses.
#include <map>

#include "core/path.h"
#include "support/catch.h"

using namespace weft;
using core::Path;

namespace {

constexpr na::Incarnation its_own{1, 1}, another{2, 2};

// What comes of an address.
enum class There { nothing, server, stranger };
using World = std::map<std::string, There>;

na::Address address(const std::string& uri) { return na::parse_address(uri).value(); }

struct Outcome {
    std::string used;  // Empty: given up.
    bool reused = false;
    int connects = 0;
    std::string reason;
    Status verdict;
};

// Connects as core::Context does, and lets go of nothing that it should have kept.
Outcome walk(Path& path, const World& world) {
    Outcome result;
    Path::Step step = path.start();
    bool held = false;
    while (step.action == Path::Action::connect) {
        ++result.connects;
        REQUIRE(result.connects < 20);
        const There there = world.at(path.address().uri());
        if (there == There::nothing) {
            const Status why = fail(Code::unavailable, "nobody listens");
            step = path.failed(why);
            result.verdict = path.verdict(why);
        } else {
            step = path.up(there == There::server ? its_own : another);
            held |= step.hold;
        }
    }
    if (step.action == Path::Action::give_up) return result;
    result.reused = step.action == Path::Action::use_held;
    CHECK((!result.reused || held));
    result.used = path.address().uri();
    result.reason = path.reason();
    return result;
}

Path path_of(const std::vector<std::string>& uris) {
    std::vector<na::Address> addresses;
    for (const std::string& uri : uris) addresses.push_back(address(uri));
    return Path(std::move(addresses));
}

const std::string sm = "sm://a", local = "unix:///a", card = "verbs://h:1", tcp = "tcp://h:2",
                  ofi = "ofi+tcp://h:3";

}  // namespace

TEST_CASE("an address of this host is used when the network shows that it is the same process") {
    const There all[] = {There::nothing, There::server, There::stranger};
    const There network[] = {There::nothing, There::server};
    for (const There at_sm : all) {
        for (const There at_local : all) {
            for (const There at_card : network) {
                for (const There at_tcp : network) {
                    for (const There at_ofi : network) {
                        const World world{{sm, at_sm},
                                          {local, at_local},
                                          {card, at_card},
                                          {tcp, at_tcp},
                                          {ofi, at_ofi}};
                        std::string best;
                        for (const std::string& uri : {card, tcp, ofi}) {
                            if (best.empty() && world.at(uri) == There::server) best = uri;
                        }
                        if (!best.empty()) {
                            if (at_local == There::server) best = local;
                            if (at_sm == There::server) best = sm;
                        }
                        Path path = path_of({ofi, local, tcp, sm, card});
                        const Outcome result = walk(path, world);
                        CHECK(result.used == best);
                        CHECK(walk(path, world).used == best);  // It may start again.
                    }
                }
            }
        }
    }
}

TEST_CASE("the order of a path is that of speed, among equals that of the list") {
    Path path = path_of({"ofi+tcp://h:1", "tcp://h:2", "sm://b", "sm://a", "unix:///c",
                         "ofi+verbs://h:3", "verbs://h:4", "tcp://h:1"});
    std::vector<std::string> order;
    for (const na::Address& at : path.addresses()) order.push_back(at.uri());
    CHECK(order == std::vector<std::string>{"sm://b", "sm://a", "unix:///c", "verbs://h:4",
                                            "ofi+verbs://h:3", "tcp://h:2", "tcp://h:1",
                                            "ofi+tcp://h:1"});
}

TEST_CASE("the cheapest network is the witness, and serves if nothing faster does") {
    Path path = path_of({sm, card, tcp});
    const Outcome proved =
        walk(path, {{sm, There::server}, {card, There::server}, {tcp, There::server}});
    CHECK(proved.used == sm);
    CHECK(proved.connects == 2);  // No card was set up for it.
    CHECK(proved.reason == "the same process as " + tcp);

    const Outcome remote =
        walk(path, {{sm, There::nothing}, {card, There::nothing}, {tcp, There::server}});
    CHECK(remote.used == tcp);
    CHECK(remote.reused);
    CHECK(remote.connects == 3);

    const Outcome faster =
        walk(path, {{sm, There::stranger}, {card, There::server}, {tcp, There::server}});
    CHECK(faster.used == card);
    CHECK(faster.reason == "sm://a is another process");
}

TEST_CASE("without an address of the network names are all there is") {
    Path path = path_of({local, sm});
    CHECK(walk(path, {{sm, There::stranger}, {local, There::server}}).used == sm);
    CHECK(walk(path, {{sm, There::nothing}, {local, There::server}}).used == local);
    const Outcome none = walk(path, {{sm, There::nothing}, {local, There::nothing}});
    CHECK(none.used.empty());
    CHECK(none.verdict.text() == "sm://a: nobody listens; unix:///a: nobody listens");
}

TEST_CASE("a name alone is not trusted where the network is silent, and the caller hears why") {
    Path path = path_of({sm, tcp});
    const Outcome result = walk(path, {{sm, There::server}, {tcp, There::nothing}});
    CHECK(result.used.empty());
    CHECK(result.verdict.code() == Code::unavailable);
    CHECK(result.verdict.text() ==
          "tcp://h:2: nobody listens; nothing shows that sm://a is the same server");
}

TEST_CASE("a witness that is lost while names are tried is no way to the server") {
    Path path = path_of({sm, tcp, ofi});
    const Status gone = fail(Code::unavailable, "gone");
    CHECK(path.start().action == Path::Action::connect);
    CHECK(path.up(its_own).hold);
    CHECK(path.failed(gone).action == Path::Action::use_held);  // No sm.
    CHECK(path.address().uri() == tcp);
    CHECK(path.failed(gone).action == Path::Action::connect);
    CHECK(path.address().uri() == ofi);
    CHECK(path.up(its_own).action == Path::Action::use);
}

TEST_CASE("no address is tried twice") {
    Path path = path_of({sm, card, tcp, ofi});
    const Outcome outcome = walk(path, {{sm, There::nothing},
                                        {card, There::nothing},
                                        {tcp, There::nothing},
                                        {ofi, There::server}});
    CHECK(outcome.used == ofi);
    CHECK(outcome.connects == 4);
}

TEST_CASE("one address is no choice") {
    Path path = path_of({tcp});
    const Outcome result = walk(path, {{tcp, There::server}});
    CHECK(result.used == tcp);
    CHECK(result.reason.empty());
    const Outcome none = walk(path, {{tcp, There::nothing}});
    CHECK(none.verdict.text() == "nobody listens");
}

TEST_CASE("a listener that does not answer yet is left for the others, and tried again") {
    Path path = path_of({tcp, ofi});
    const Status refused = fail(Code::unavailable, "nothing listens");
    CHECK(path.start().action == Path::Action::connect);
    CHECK(path.address().uri() == tcp);
    CHECK(path.unanswered().action == Path::Action::connect);
    CHECK(path.address().uri() == ofi);
    // None is of use: from the start.
    CHECK(path.failed(refused).action == Path::Action::connect);
    CHECK(path.address().uri() == tcp);
    SECTION("where the others do for now") {
        CHECK(path.unanswered().action == Path::Action::connect);
        CHECK(path.up(its_own).action == Path::Action::use);
        CHECK(path.address().uri() == ofi);
    }
    SECTION("until nothing listens any more") {
        CHECK(path.failed(refused).action == Path::Action::connect);
        CHECK(path.failed(refused).action == Path::Action::give_up);
    }
}
