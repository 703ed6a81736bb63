// SIGKILL at random moments: of servers whose client stays, and of clients whose server stays. Each
// operation of the one who stays ends exactly once, and of the dead nothing is left.
#include <sstream>
#include <tuple>

#include "leaks/books.h"
#include "leaks/live_memory.h"
#include "leaks/load.h"
#include "leaks/nursery.h"
#include "leaks/place.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::size_t octaves = 12;  // Of turns to a moment: up to some milliseconds.
// Chance may need a table for the first time late: its first block has 64 places.
constexpr Slack slack{.bytes = 64 << 10};

Runtime make_runtime(bool manual) {
    return Runtime::create({.log_level = LogLevel::off, .manual = manual}).value();
}

std::string text_of(const RegionRef& ref) {
    std::array<std::byte, RegionRef::wire_bytes> bytes;
    ref.encode(bytes);
    return std::string(as_text(bytes));
}

// A reference and the text behind it.
std::pair<RegionRef, std::string> split(const std::string& text) {
    const std::string_view all = text;
    return {RegionRef::decode(as_bytes(all.substr(0, RegionRef::wire_bytes))).value(),
            text.substr(RegionRef::wire_bytes)};
}

// Operations of a visit, at most; while the pools fill, many more.
constexpr std::size_t usual = 16, flood = 60;

void begin_something(Visit& visit, base::Random& random, std::size_t most) {
    for (std::size_t i = 1 + random.next() % most; i > 0; --i) visit.any(random);
}

// `order`: an address. Tells of its memory, and the address that it got.
void be_server(const std::string& order, const Nursery::Tell& tell) {
    Desk desk;
    Runtime runtime = make_runtime(false);
    desk.open(runtime);
    if (!runtime.serve(desk, order).ok()) ::_exit(1);
    tell(text_of(desk.ref()) + runtime.addresses().front());
    (void)runtime.run();
}

// `order`: memory of the server, a seed, how much to begin at once, an address. Comes, begins this
// and that, and goes, for ever.
void be_client(const std::string& order, const Nursery::Tell&) {
    const auto [vault, rest] = split(order);
    std::istringstream words(rest);
    std::uint64_t seed = 0;
    std::size_t most = 0;
    std::string address;
    words >> seed >> most >> address;
    base::SeededRandom random(seed);
    Runtime runtime = make_runtime(true);
    Ops ops;
    for (;;) {
        ops.next();
        {
            Visit visit(runtime, runtime.connect(address).value(), vault, ops);
            begin_something(visit, random, most);
            for (std::size_t turns = moment(random, octaves); turns > 0; --turns) runtime.turn();
        }
        if (!ops.wait(runtime, true, ops.started())) ::_exit(1);
    }
}

class KilledServers {
  public:
    KilledServers(const std::string& scheme, std::uint64_t seed)
        : random_(seed),
          scheme_(scheme),
          uri_(place_.uri(scheme)),
          books_("killed servers over " + scheme, slack, [this] { pump(client_); }) {}

    void run(std::size_t kills) {
        (void)client_.allocate(1).value();
        (void)client_.connect(uri_).value();
        // These open something with their first connection, and keep it.
        if (scheme_.starts_with("ofi") || scheme_.starts_with("verbs")) {
            kill_one(usual);
            REQUIRE(soon(client_, [this] { return is_quiet(client_); }));
        }
        books_.open();
        for (std::size_t i = 0; i < kills / 4 + 2; ++i) kill_one(flood);
        books_.warm();
        books_.check(kills, [&] {
            for (std::size_t i = 0; i < kills; ++i) kill_one(usual);
        });
        CHECK(ops_.ended_again() == 0);
        CHECK(ops_.strange() == "");
        // A dead owner's lock and socket, which the next owner takes over and takes away. One that
        // died early may have had the lock only, and taken away its predecessor's socket.
        const bool has_name = scheme_ == "sm" || scheme_ == "unix";
        CHECK(place_.files().size() >= (has_name ? 1 : 0));
        CHECK(place_.files().size() <= (has_name ? 2 : 0));
        if (has_name) CHECK(make_runtime(true).listen(uri_).ok());
        CHECK(place_.files().empty());
    }

  private:
    void kill_one(std::size_t most) {
        nursery_.bear(uri_);
        ops_.next();
        RegionRef vault;
        std::string address = uri_;
        // Some die before they are there.
        const bool early = !uri_.ends_with(":0") && random_.next() % 4 == 0;
        if (!early) std::tie(vault, address) = split(nursery_.hear());
        {
            Visit visit(client_, client_.connect(address).value(), vault, ops_);
            begin_something(visit, random_, most);
            for (std::size_t turns = moment(random_, octaves); turns > 0; --turns) client_.turn();
            nursery_.kill();
            REQUIRE(ops_.wait(client_, true, ops_.started()));
        }
        for (int turns = 0; turns < 16; ++turns) client_.turn();  // Whatever ends again.
    }

    base::SeededRandom random_;
    Place place_;
    Nursery nursery_{be_server};
    const std::string scheme_, uri_;
    Ops ops_;
    Runtime client_ = make_runtime(true);
    Books books_;
};

class KilledClients {
  public:
    KilledClients(const std::string& scheme, std::uint64_t seed)
        : random_(seed),
          scheme_(scheme),
          books_("killed clients over " + scheme, slack_of(scheme), [this] { pump(server_); }) {
        desk_.open(server_);
        REQUIRE(server_.serve(desk_, place_.uri(scheme)).ok());
        uri_ = server_.addresses().front();
    }

    void run(std::size_t kills) {
        books_.open();
        for (std::size_t i = 0; i < kills / 4 + 2; ++i) kill_one(flood);
        books_.warm();
        books_.check(kills, [&] {
            for (std::size_t i = 0; i < kills; ++i) kill_one(usual);
        });
        CHECK(desk_.ended_again() == 0);
        CHECK(place_.files().size() == (scheme_ == "sm" || scheme_ == "unix" ? 2 : 0));
    }

  private:
    // Now and then libfabric 1.17 forgets one of a client that died in its first words
    // (holdings.h).
    static Slack slack_of(const std::string& scheme) {
        return {.bytes = slack.bytes, .descriptors = scheme == "ofi+tcp" ? std::size_t{1} : 0};
    }

    // Not before it has called, mostly.
    void kill_one(std::size_t most) {
        nursery_.bear(text_of(desk_.ref()) + std::to_string(random_.next()) + " " +
                      std::to_string(most) + " " + uri_);
        const std::size_t calls = desk_.served() + moment(random_, 8);
        // On a busy machine a flood of them takes longer than a hang may.
        while (desk_.served() < calls) {
            const std::size_t before = desk_.served();
            REQUIRE(server_.turn_until([&] { return desk_.served() > before; }, patience));
        }
        for (std::size_t turns = moment(random_, octaves); turns > 0; --turns) server_.turn();
        nursery_.kill();
        REQUIRE(server_.turn_until([&] { return desk_.under_way() == 0; }, patience));
    }

    base::SeededRandom random_;
    Place place_;
    Nursery nursery_{be_client};
    const std::string scheme_;
    std::string uri_;
    Desk desk_;
    Runtime server_ = make_runtime(true);
    Books books_;
};

void servers(const std::string& scheme, std::size_t kills) {
    run_over<KilledServers>(scheme, kills);
}
void clients(const std::string& scheme, std::size_t kills) {
    run_over<KilledClients>(scheme, kills);
}

}  // namespace

TEST_CASE("servers are killed over sm and leave nothing", "[seeded]") { servers("sm", 40); }
TEST_CASE("servers are killed over unix and leave nothing", "[seeded]") { servers("unix", 40); }
TEST_CASE("servers are killed over tcp and leave nothing", "[seeded]") { servers("tcp", 40); }
TEST_CASE("servers are killed over ofi+tcp and leave nothing", "[seeded]") {
    servers("ofi+tcp", 4);
}
TEST_CASE("clients are killed over sm and leave nothing", "[seeded]") { clients("sm", 40); }
TEST_CASE("clients are killed over unix and leave nothing", "[seeded]") { clients("unix", 40); }
TEST_CASE("clients are killed over tcp and leave nothing", "[seeded]") { clients("tcp", 40); }
TEST_CASE("clients are killed over ofi+tcp and leave nothing", "[seeded]") {
    clients("ofi+tcp", 4);
}

// Where there is a device: `make softroce`.
TEST_CASE("servers are killed over verbs and leave nothing", "[seeded]") { servers("verbs", 8); }
TEST_CASE("clients are killed over verbs and leave nothing", "[seeded]") { clients("verbs", 8); }

TEST_CASE("100 servers are killed over sm and leave nothing", "[.][leaks]") { servers("sm", 100); }
TEST_CASE("100 servers are killed over unix and leave nothing", "[.][leaks]") {
    servers("unix", 100);
}
TEST_CASE("100 servers are killed over tcp and leave nothing", "[.][leaks]") {
    servers("tcp", 100);
}
TEST_CASE("100 servers are killed over ofi+tcp and leave nothing", "[.][leaks]") {
    servers("ofi+tcp", 100);
}
TEST_CASE("100 clients are killed over sm and leave nothing", "[.][leaks]") { clients("sm", 100); }
TEST_CASE("100 clients are killed over unix and leave nothing", "[.][leaks]") {
    clients("unix", 100);
}
TEST_CASE("100 clients are killed over tcp and leave nothing", "[.][leaks]") {
    clients("tcp", 100);
}
TEST_CASE("100 clients are killed over ofi+tcp and leave nothing", "[.][leaks]") {
    clients("ofi+tcp", 100);
}
