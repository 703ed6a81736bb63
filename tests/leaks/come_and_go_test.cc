// Clients connect to a server that stays and disconnect, and servers start and end beside a client
// that stays: in order, and amid calls, transfers and handshakes. Both sides run in this process,
// so that leaks of either side are found. (Peers that die: killed_test.cc.)
#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "leaks/books.h"
#include "leaks/live_memory.h"
#include "leaks/load.h"
#include "leaks/place.h"
#include "na/address.h"
#include "support/contexts.h"
#include "support/raw_socket.h"

using namespace weft;
using namespace weft::test;

namespace {

enum class Way : std::uint8_t { in_order, in_calls, in_transfers, in_handshake };
constexpr std::size_t ways = 4;

// Starts the operations of a visit that is cut off; returns the number of those that end by
// themselves.
std::size_t begin(Visit& visit, Way way) {
    switch (way) {
        case Way::in_order:
            visit.call();
            visit.call_large();
            visit.get();
            visit.put();
            visit.be_read();
            return 5;
        case Way::in_calls:
            for (int i = 0; i < 4; ++i) {
                visit.call();
                visit.call_held();
                visit.call_large();
            }
            return 8;
        case Way::in_transfers:
            for (int i = 0; i < 2; ++i) {
                visit.get();
                visit.put();
                visit.be_read();
            }
            return 6;
        case Way::in_handshake: visit.call(); return 1;
    }
    return 0;
}

// Lets a visit complete, or run up to the moment at which it is cut off.
void go_on(Runtime& runtime, bool manual, Ops& ops, Way way, std::size_t sure,
           base::Random& random) {
    if (way == Way::in_order) {
        REQUIRE(ops.wait(runtime, manual, sure));
        INFO(ops.failed());
        REQUIRE(ops.ok() == sure);
    } else if (manual) {
        for (std::size_t turns = moment(random, 8); turns > 0; --turns) runtime.turn();
    } else {
        REQUIRE(ops.wait(runtime, manual, moment(random, 4) % (sure + 1)));
    }
}

// The common part of both directions: one side stays, and its books are checked.
class Staying {
  public:
    Staying(std::string title, const std::string& scheme, Slack slack, std::uint64_t seed)
        : random(seed),
          uri(place.uri(scheme)),
          books(std::move(title) + " over " + scheme, slack, [this] { pump(client); }) {}
    virtual ~Staying() = default;

    // Runs `visits` visits, after a fifth as many have filled the pools.
    void run(std::size_t visits) {
        (void)client.allocate(1).value();
        (void)client.connect(uri).value();
        // Some transports open objects with their first connection, and keep them.
        if (uri.starts_with("ofi") || uri.starts_with("verbs")) {
            visit(0);
            REQUIRE(soon(client, [this] { return is_all_quiet(); }));
        }
        books.open();
        visit_often(std::max(visits / 5, 2 * ways));
        books.warm();
        const auto warm = objects_of_device();
        books.check(visits, [&] { visit_often(visits); });
        check_device(warm, visits);
        CHECK(ops.ended_again() == 0);
        CHECK(ops.strange() == "");
        CHECK(place.files().size() == names_left());
    }

  protected:
    virtual void visit(std::size_t number) = 0;
    virtual bool is_all_quiet() { return is_quiet(client); }
    // Counts of queue pairs and related objects by name, from the kernel; empty on other
    // transports.
    std::map<std::string, int> objects_of_device() const {
        std::map<std::string, int> objects;
        if (!uri.starts_with("verbs")) return objects;
        std::FILE* shown = ::popen("rdma resource show", "re");
        REQUIRE(shown);
        char line[512] = {};
        REQUIRE(std::fgets(line, sizeof line, shown));
        ::pclose(shown);
        std::istringstream words(line);  // "0: rxe0: pd 4 cq 3 qp 1 ..."
        std::string name;
        words >> name >> name;
        for (int count = 0; words >> name >> count;) objects[name] = count;
        REQUIRE(objects.count("qp"));
        return objects;
    }
    // Connections last a moment longer than their peers, and some cached registrations are made
    // late. A leak is one object per visit, or per four visits.
    void check_device(const std::map<std::string, int>& warm, std::size_t visits) {
        const int registrations_more_max = static_cast<int>(visits / 16);
        std::map<std::string, int> now;
        const bool back = soon(client, [&] {
            now = objects_of_device();
            return std::all_of(now.begin(), now.end(), [&](const auto& object) {
                const auto& [name, count] = object;
                return count <= warm.at(name) + (name == "mr" ? registrations_more_max : 0);
            });
        });
        INFO("objects of the device:" << text_of(warm) << " before," << text_of(now) << " now");
        CHECK(back);
    }
    static std::string text_of(const std::map<std::string, int>& objects) {
        std::string text;
        for (const auto& [name, count] : objects) text += " " + name + " " + std::to_string(count);
        return text;
    }
    // Of the server that stays: the session of a client lasts for ten seconds if the client's last
    // frame was lost.
    virtual std::size_t sessions_left() { return 0; }
    virtual std::size_t names_left() { return 0; }

    void visit_often(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) visit(i);
        REQUIRE(soon(client, [this] { return sessions_left() == 0; }));
    }

    base::SeededRandom random;
    Place place;
    std::string uri;
    Ops ops;
    Runtime client = Runtime::create({.log_level = LogLevel::error, .manual = true}).value();
    Books books;
};

// Every other client is a runtime of its own; every other of those has a thread.
class Clients final : public Staying {
  public:
    Clients(const std::string& scheme, std::uint64_t seed)
        : Staying("clients", scheme, {.bytes = 4 << 10}, seed) {
        desk_.open(server_);
        REQUIRE(server_.serve(shared(desk_), uri).ok());
        uri = server_.addresses().front();
    }

  private:
    void visit(std::size_t number) override {
        const Way way = static_cast<Way>(number % ways);
        ops.next();
        switch (number / ways % 4) {
            case 0: stranger(); [[fallthrough]];
            case 1:
                come(client, true, way);
                REQUIRE(ops.wait(client, true, ops.started()));
                break;
            case 2: come_alone(true, way); break;
            case 3: come_alone(false, way); break;
        }
        REQUIRE(ops.all_ended());
    }
    bool is_all_quiet() override { return is_quiet(client) && is_quiet(server_); }
    std::size_t sessions_left() override {
        std::size_t left = 0;
        for (const auto& node : impl_of(server_).nodes) {
            node->on_context([&] { left += node->server.sessions(); });
        }
        return left;
    }
    // Of the server that stays: its socket and its lock.
    std::size_t names_left() override {
        return uri.starts_with("sm") || uri.starts_with("unix") ? 2 : 0;
    }

    void come(Runtime& runtime, bool manual, Way way) {
        Visit visit(runtime, runtime.connect(uri).value(), desk_.ref(), ops);
        const std::size_t sure = begin(visit, way);
        go_on(runtime, manual, ops, way, sure, random);
    }
    void come_alone(bool manual, Way way) {
        Runtime guest = Runtime::create({.log_level = LogLevel::error, .manual = manual}).value();
        come(guest, manual, way);
    }
    // Connects, and disconnects in the middle of its greeting. (libfabric would keep its
    // descriptor.)
    void stranger() {
        if (uri.starts_with("ofi") || uri.starts_with("verbs")) return;
        const base::UniqueFd socket = connect_raw(uri);
        const std::vector<std::byte> nothing(random.next() % 16);
        if (!nothing.empty()) {
            (void)::send(socket.get(), nothing.data(), nothing.size(), MSG_NOSIGNAL);
        }
    }

    Desk desk_;
    Runtime server_ =
        Runtime::create({.contexts = server_contexts(), .log_level = LogLevel::error}).value();
};

// With a constant address, every other server meets a channel that was connected to its
// predecessors.
class Servers final : public Staying {
  public:
    Servers(const std::string& scheme, std::uint64_t seed)
        : Staying("servers", scheme, slack_of(scheme), seed) {
        if (place.uri(scheme).ends_with(":0")) uri = scheme + "://127.0.0.1:1";
        listen_at_ = place.uri(scheme);
    }

  private:
    void visit(std::size_t number) override {
        const Way way = static_cast<Way>(number % ways);
        std::string address;
        ops.next();
        {
            Desk desk;
            Runtime server =
                Runtime::create({.contexts = server_contexts(), .log_level = LogLevel::error})
                    .value();
            desk.open(server);
            REQUIRE(server.serve(shared(desk), listen_at_).ok());
            address = server.addresses().front();
            const bool again = number / ways % 2 == 0 && address == listen_at_;
            if (!again || !channel_) channel_ = client.connect(address).value();
            Visit visit(client, channel_, desk.ref(), ops);
            const std::size_t sure = begin(visit, way);
            go_on(client, true, ops, way, sure, random);
        }
        REQUIRE(ops.wait(client, true, ops.started()));
        if (number / ways % 2 != 0 || address != listen_at_) channel_ = Channel();
        if (address.starts_with("ofi")) {
            // A leak of libfabric 1.17 (holdings.h), occasionally also after a complete exchange.
            CHECK(close_forgotten(na::parse_address(address)->port) <= 1);
        }
    }

    // libfabric 1.17 leaks one or two records of 376 bytes with a leaked socket.
    static Slack slack_of(const std::string& scheme) {
        return {.bytes = 4 << 10, .c_bytes_per_visit = scheme == "ofi+tcp" ? 752 : 0};
    }

    std::string listen_at_;
    Channel channel_;
};

void clients(const std::string& scheme, std::size_t visits) { run_over<Clients>(scheme, visits); }
void servers(const std::string& scheme, std::size_t visits) { run_over<Servers>(scheme, visits); }

}  // namespace

TEST_CASE("clients that connect and disconnect over sm leak nothing", "[seeded]") {
    clients("sm", 320);
}
TEST_CASE("clients that connect and disconnect over unix leak nothing", "[seeded]") {
    clients("unix", 320);
}
TEST_CASE("clients that connect and disconnect over tcp leak nothing", "[seeded]") {
    clients("tcp", 320);
}
TEST_CASE("clients that connect and disconnect over ofi+tcp leak nothing", "[seeded]") {
    clients("ofi+tcp", 64);
}
// Fewer visits: a client with calls in flight looks for a closed server for a second.
TEST_CASE("servers that start and end over sm leak nothing", "[seeded]") { servers("sm", 48); }
TEST_CASE("servers that start and end over unix leak nothing", "[seeded]") { servers("unix", 48); }
TEST_CASE("servers that start and end over tcp leak nothing", "[seeded]") { servers("tcp", 48); }
TEST_CASE("servers that start and end over ofi+tcp leak nothing", "[seeded]") {
    servers("ofi+tcp", 16);
}

// Requires a device: `make softroce`.
TEST_CASE("clients that connect and disconnect over verbs leak nothing", "[seeded]") {
    clients("verbs", 200);
}
TEST_CASE("servers that start and end over verbs leak nothing", "[seeded]") {
    servers("verbs", 16);
}

TEST_CASE("1000 clients that connect and disconnect over sm leak nothing", "[.][leaks]") {
    clients("sm", 1000);
}
TEST_CASE("1000 clients that connect and disconnect over unix leak nothing", "[.][leaks]") {
    clients("unix", 1000);
}
TEST_CASE("1000 clients that connect and disconnect over tcp leak nothing", "[.][leaks]") {
    clients("tcp", 1000);
}
TEST_CASE("1000 clients that connect and disconnect over ofi+tcp leak nothing", "[.][leaks]") {
    clients("ofi+tcp", 1000);
}
// A second per visit, as above.
TEST_CASE("250 servers that start and end over sm leak nothing", "[.][leaks]") {
    servers("sm", 250);
}
TEST_CASE("250 servers that start and end over unix leak nothing", "[.][leaks]") {
    servers("unix", 250);
}
TEST_CASE("250 servers that start and end over tcp leak nothing", "[.][leaks]") {
    servers("tcp", 250);
}
TEST_CASE("250 servers that start and end over ofi+tcp leak nothing", "[.][leaks]") {
    servers("ofi+tcp", 250);
}
