// Lanes of tcp and unix peers open, break the rules and end at once, against a live server
// with honest clients. LANES sets how many; tools/soak.py sends 100 000 to each address.
#include <thread>

#include "na/tcp/wire.h"
#include "support/live_server.h"
#include "support/raw_socket.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::test;

namespace {

// A socket of an attacker thread, without Catch's macros, which are for the thread of the test.
base::UniqueFd open_raw(const na::SocketName& name) {
    base::UniqueFd socket(::socket(name.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{5, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const bool connected =
        ::connect(socket.get(), name.get(), static_cast<socklen_t>(name.size())) == 0;
    return connected ? std::move(socket) : base::UniqueFd();
}

struct Counts {
    std::atomic<std::uint64_t> welcomed{0};
    std::atomic<std::uint64_t> waited{0};  // Of these, for the server to end the connection.
    std::atomic<std::uint64_t> ended{0};   // Of these, ended by it.
};

// Sends a hello, then joins the bulk lane with the ticket and sends 40 bytes on it that are no
// operation.
void attack(const na::SocketName& name, ByteView hello, std::uint64_t number, Counts& counts) {
    base::UniqueFd talk = open_raw(name);
    if (!talk || !say(talk.get(), hello)) return;
    std::byte answer[na::tcp::handshake_bytes_max];
    const ssize_t got = ::recv(talk.get(), answer, sizeof answer, 0);
    if (got < static_cast<ssize_t>(sizeof(na::tcp::StreamHead))) return;
    const auto head = base::load<na::tcp::StreamHead>(answer);
    if (head.bytes > static_cast<std::size_t>(got)) return;
    const auto welcome = na::tcp::decode_welcome(ByteView(answer, head.bytes));
    if (!welcome) return;
    ++counts.welcomed;
    std::byte frame[na::tcp::handshake_bytes_max + sizeof(na::tcp::BulkHead)] = {};
    const std::size_t bytes = na::tcp::encode_join(welcome->ticket, welcome->hello.context, frame);
    base::UniqueFd bulk = open_raw(name);
    if (bulk) (void)say(bulk.get(), ByteView(frame, bytes + sizeof(na::tcp::BulkHead)));
    if (number % 4 == 1) reset(talk);
    if (number % 4 == 2) reset(bulk);
    if (number % 4 == 3 && bulk) {  // Until the server ends it.
        char byte = 0;
        ssize_t last = 0;
        while ((last = ::recv(talk.get(), &byte, 1, 0)) > 0) continue;
        ++counts.waited;
        counts.ended += last == 0 || errno == ECONNRESET;
    }
    reset(bulk);  // Leaves no port in TIME_WAIT.
    reset(talk);
}

}  // namespace

TEST_CASE("hostile peers: a lane that breaks the rules in the turn of its hello ends alone",
          "[lanes]") {
    const LiveServer server(
        {"tcp://127.0.0.1:0", "unix:///tmp/weft-lanes-" + std::to_string(::getpid())});
    HonestClient honest(server.addresses());
    REQUIRE(honest.is_served(10));
    const std::uint64_t lanes = setting("LANES", 500);
    std::vector<std::byte> hello(na::tcp::handshake_bytes_max);
    hello.resize(na::tcp::encode_hello({{77, 88}, 65 * 1024, 64 * 1024, "tcp://raw"}, hello));
    Counts counts;
    std::vector<std::jthread> attackers;
    for (const std::string& uri : server.addresses()) {
        const na::Address at = na::parse_address(uri).value();
        const na::SocketName name = at.name.empty()
                                        ? *na::SocketName::from_numeric(at.host, at.port)
                                        : *na::SocketName::from_path(at.name);
        attackers.emplace_back([name, lanes, &hello, &counts] {
            for (std::uint64_t i = 0; i < lanes; ++i) attack(name, hello, i, counts);
        });
    }
    attackers.clear();
    // Few find the table full of earlier lanes that have not ended yet.
    CHECK(counts.welcomed * 10 >= lanes * server.addresses().size() * 9);
    CHECK(counts.waited > 0);
    CHECK(counts.ended == counts.waited);
    CHECK(honest.is_served(10));
    CHECK(honest.wrong().empty());
    HonestClient late(server.addresses());
    CHECK(late.is_served(10));
    CHECK(late.wrong().empty());
}
