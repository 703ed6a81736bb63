// A relay between a client and a server over TCP that can hold back the server's bytes at any
// point. Turned by the test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "support/catch.h"

namespace weft::test {

class TcpRelay {
  public:
    // While `kept_max` bytes of a direction wait in the relay, it reads no more of that direction.
    explicit TcpRelay(std::uint16_t to,
                      std::size_t kept_max = std::numeric_limits<std::size_t>::max())
        : to_(to), kept_max_(kept_max), listener_(make_socket()) {
        sockaddr_in name = loopback(0);
        REQUIRE(::bind(listener_.get(), as_name(name), sizeof name) == 0);
        REQUIRE(::listen(listener_.get(), 8) == 0);
    }
    std::uint16_t port() const {
        sockaddr_in name{};
        socklen_t bytes = sizeof name;
        REQUIRE(::getsockname(listener_.get(), as_name(name), &bytes) == 0);
        return ntohs(name.sin_port);
    }

    // Forwards this many bytes more from the server to its client.
    void hold_after(std::size_t bytes) { allowed_ = bytes; }
    // Raises that number.
    void let_pass(std::size_t bytes) { allowed_ += bytes; }
    void release() { allowed_ = std::numeric_limits<std::size_t>::max(); }
    // Bytes of the server that are held back.
    std::size_t held() const {
        std::size_t all = 0;
        for (const Way& way : ways_) all += way.down.size();
        return all;
    }

    void turn() {
        base::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (client.get() >= 0) {
            Way way{std::move(client), make_socket(0), {}, {}};
            if (kept_max_ < 1u << 20) {  // Limits the kernel's buffer, too.
                const int bytes = static_cast<int>(kept_max_);
                REQUIRE(::setsockopt(way.server.get(), SOL_SOCKET, SO_RCVBUF, &bytes,
                                     sizeof bytes) == 0);
            }
            sockaddr_in name = loopback(to_);
            REQUIRE(::connect(way.server.get(), as_name(name), sizeof name) == 0);
            ways_.push_back(std::move(way));
        }
        for (std::size_t i = 0; i < ways_.size();) {
            Way& way = ways_[i];
            std::size_t no_limit = std::numeric_limits<std::size_t>::max();
            const bool is_open = move(way.client, way.up, way.server, no_limit) &&
                                 move(way.server, way.down, way.client, allowed_);
            if (is_open) {
                ++i;
            } else {
                ways_.erase(ways_.begin() + std::ptrdiff_t(i));
            }
        }
    }

  private:
    struct Way {
        base::UniqueFd client, server;
        std::vector<std::byte> up, down;  // Received and not forwarded yet.
    };

    static base::UniqueFd make_socket(int flags = SOCK_NONBLOCK) {
        base::UniqueFd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
        REQUIRE(made.get() >= 0);
        return made;
    }
    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        name.sin_port = htons(port);
        return name;
    }
    static sockaddr* as_name(sockaddr_in& name) { return reinterpret_cast<sockaddr*>(&name); }

    // False: an end has closed.
    bool move(const base::UniqueFd& from, std::vector<std::byte>& waiting, const base::UniqueFd& to,
              std::size_t& allowed) const {
        std::byte room[16384];
        const bool is_full = waiting.size() >= kept_max_;
        const ssize_t got = is_full ? -1 : ::recv(from.get(), room, sizeof room, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && !is_full && errno != EAGAIN)) return false;
        if (got > 0) waiting.insert(waiting.end(), room, room + got);
        const std::size_t bytes = std::min(waiting.size(), allowed);
        if (bytes == 0) return true;
        const ssize_t sent = ::send(to.get(), waiting.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN;
        waiting.erase(waiting.begin(), waiting.begin() + sent);
        allowed -= static_cast<std::size_t>(sent);
        return true;
    }

    const std::uint16_t to_;
    const std::size_t kept_max_;
    base::UniqueFd listener_;
    std::vector<Way> ways_;
    std::size_t allowed_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace weft::test
