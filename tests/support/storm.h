// A live server under attack, and the sockets of those who attack it by hand.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/node.h"
#include "base/unique_fd.h"
#include "na/sm/names.h"
#include "na/socket_name.h"
#include "support/bare_peer.h"
#include "support/live_server.h"

namespace weft::test {

inline const std::string here = "/tmp/weft-peer-" + std::to_string(::getpid());

inline std::vector<std::string> all_uris() {
    std::vector<std::string> uris = {"sm://peer-" + std::to_string(::getpid()), "tcp://127.0.0.1:0",
                                     "unix://" + here};
    const api::NodeParts parts = api::real_parts();
    if (parts.providers->find("ofi+tcp")) uris.push_back("ofi+tcp://127.0.0.1:0");
    return uris;
}

inline std::string scheme_of(const std::string& uri) { return uri.substr(0, uri.find(':')); }
inline bool is_stream(const std::string& uri) {
    return uri.starts_with("tcp") || uri.starts_with("unix");
}

// A live server, an honest client, and what both must be afterwards.
class Storm {
  public:
    explicit Storm(std::size_t peers_max = 4096) : server(all_uris(), peers_max) {
        honest = std::make_unique<HonestClient>(server.addresses());
        REQUIRE(honest->is_served(64));
        before = server.usage();
    }
    ~Storm() {  // A killed server leaves its path.
        std::filesystem::remove(here);
        std::filesystem::remove(here + ".lock");
    }
    Storm(const Storm&) = delete;
    Storm& operator=(const Storm&) = delete;

    na::Provider& provider(const std::string& uri) {
        return **parts_.providers->find(scheme_of(uri));
    }

    // The honest were served in the midst of it, and everything is given back.
    void check_survived() {
        REQUIRE(honest->is_served(64));
        wait_for("descriptors",
                 [&](const Usage& now) { return now.descriptors <= before.descriptors; });
        check_served();
    }
    // The same but for descriptors.
    void check_served() {
        REQUIRE(honest->is_served(64));
        wait_for("threads", [&](const Usage& now) { return now.threads <= before.threads; });
        check_memory();
        CHECK(ask(LiveService::vault) == "intact");
        CHECK(honest->wrong() == "");
    }

    // What an allocator keeps; a sanitizer's quarantine is more.
    void check_memory() {
        if (slowness < 10) CHECK(server.usage().resident_kib < before.resident_kib + kept_kib());
    }

    // libfabric keeps the buffers that a flood made it take: 150 MiB were seen.
    std::size_t kept_kib() const {
        const std::vector<std::string>& uris = server.addresses();
        const bool fabric = std::any_of(uris.begin(), uris.end(), [](const std::string& uri) {
            return uri.starts_with("ofi");
        });
        return fabric ? 320 << 10 : 96 << 10;
    }

    std::string ask(const MethodId& method) {
        Runtime runtime = Runtime::create({.manual = true}).value();
        std::string answer;
        bool done = false;
        Channel channel = runtime.connect(server.addresses().front()).value();
        channel.call(method, {}, {.timeout = patience}, [&](const Status& status, ByteView reply) {
            done = true;
            answer = status.ok() ? std::string(as_text(reply)) : status.to_string();
        });
        REQUIRE(runtime.turn_until([&] { return done; }, 2 * patience));
        return answer;
    }

    LiveServer server;
    std::unique_ptr<HonestClient> honest;
    Usage before;

  private:
    template <class Good>
    void wait_for(const char* what, Good&& good) {
        INFO(what);
        const TimePoint end = BarePeer::now() + patience;
        while (!good(server.usage())) {
            REQUIRE(BarePeer::now() < end);
            REQUIRE(honest->is_served(1));
        }
    }
    const api::NodeParts parts_ = api::real_parts();
};

// ---- sockets by hand
// -----------------------------------------------------------------------------

inline base::UniqueFd connect_raw(const std::string& uri) {
    if (uri.starts_with("sm://")) {
        const auto address =
            na::sm::socket_address(na::sm::names_directory().value(), uri.substr(5) + ".sock");
        base::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address),
                          sizeof *address) == 0);
        return socket;
    }
    const na::Address address = na::parse_address(uri).value();
    const auto name = address.name.empty()
                          ? na::SocketName::from_numeric(address.host, address.port)
                          : na::SocketName::from_path(address.name);
    base::UniqueFd socket(::socket(name->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), name->get(), static_cast<socklen_t>(name->size())) == 0);
    return socket;
}

// False: the server hung up.
inline bool say(int socket, ByteView bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

// Reads, and drops it, until the server hangs up.
inline bool is_hung_up(int socket) {
    const timeval limit{30, 0};
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    char room[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket, room, sizeof room, 0)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// The end of a connection comes as a reset, with whatever was under way.
inline void reset(base::UniqueFd& socket) {
    const linger at_once{1, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket.reset();
}

}  // namespace weft::test
