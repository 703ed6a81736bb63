// The floors of tcp and unix: one connection between two threads, with only send and recv.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "cli/median.h"
#include "perf/floor.h"

namespace weft::tool {

namespace {

Status socket_error(const char* what) {
    return fail(Code::unavailable, std::string("the floor needs loopback sockets: ") + what + ": " +
                                       std::strerror(errno));
}

struct SocketPair {
    base::UniqueFd client;
    base::UniqueFd server;
};

Result<SocketPair> connect_pair(SocketKind kind) {
    if (kind == SocketKind::local) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            return socket_error("socketpair");
        }
        return SocketPair{base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
    }
    const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (!listener || bind(listener.get(), generic, sizeof address) != 0 ||
        listen(listener.get(), 1) != 0 || getsockname(listener.get(), generic, &length) != 0) {
        return socket_error("bind");
    }
    SocketPair pair;
    pair.client.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!pair.client || connect(pair.client.get(), generic, sizeof address) != 0) {
        return socket_error("connect");
    }
    pair.server.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!pair.server) return socket_error("accept");
    const int one = 1;
    for (const auto* end : {&pair.client, &pair.server}) {
        setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return pair;
}

bool send_all(int fd, const char* from, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        from += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
    return true;
}

// One recv that waits as weft would: spinning, asleep, or asleep after 20 us of spinning.
ssize_t receive_some(int fd, char* to, std::size_t bytes, WaitMode wait) {
    if (wait == WaitMode::block) return recv(fd, to, bytes, 0);
    TimePoint start{};
    while (true) {
        const ssize_t got = recv(fd, to, bytes, MSG_DONTWAIT);
        if (got >= 0 || errno != EAGAIN) return got;
        if (wait == WaitMode::spin) continue;
        const TimePoint now = std::chrono::steady_clock::now();
        if (start == TimePoint{}) start = now;
        if (now - start > 20us) return recv(fd, to, bytes, 0);
    }
}

bool receive_all(int fd, char* to, std::size_t bytes, WaitMode wait) {
    while (bytes > 0) {
        const ssize_t got = receive_some(fd, to, bytes, wait);
        if (got <= 0) return false;
        to += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

// At least so many, because the first ones run on cold memory.
constexpr std::size_t rounds_min = 9;

}  // namespace

Result<double> socket_round_trip_ns(SocketKind kind, RoundTrip trip, WaitMode wait,
                                    const CpuPair& cpus, Duration budget) {
    Result<SocketPair> pair = connect_pair(kind);
    if (!pair) return std::move(pair).status();
    // A receive of 0 bytes does not wait.
    const std::size_t request = std::max<std::size_t>(trip.request, 1);
    const std::size_t reply = std::max<std::size_t>(trip.reply, 1);
    const auto send_body = [&](int fd, const std::vector<char>& body, std::vector<char>& out) {
        if (trip.copied) std::copy(body.begin(), body.end(), out.begin());
        return send_all(fd, out.data(), out.size());
    };
    std::thread echo([&, fd = pair->server.get()] {
        bind_to_cpu(cpus.server);
        const std::vector<char> body(reply);
        std::vector<char> in(request), out(reply);
        while (receive_all(fd, in.data(), request, wait) && send_body(fd, body, out)) {
        }
    });
    const std::vector<char> body(request);
    std::vector<char> out(request), in(reply);
    const int fd = pair->client.get();
    std::vector<double> trips;
    bool ok = true;
    const TimePoint end = std::chrono::steady_clock::now() + budget;
    TimePoint last = std::chrono::steady_clock::now();
    while (ok && (last < end || trips.size() < rounds_min)) {
        ok = send_body(fd, body, out) && receive_all(fd, in.data(), reply, wait);
        const TimePoint now = std::chrono::steady_clock::now();
        trips.push_back(static_cast<double>((now - last).count()));
        last = now;
    }
    shutdown(fd, SHUT_RDWR);
    echo.join();
    if (!ok) return socket_error("echo");
    return median_of(std::move(trips));
}

Result<double> socket_stream_ns(SocketKind kind, std::size_t bytes, const StreamCpus& cpus,
                                Duration budget) {
    Result<SocketPair> pair = connect_pair(kind);
    if (!pair) return std::move(pair).status();
    bytes = std::max<std::size_t>(bytes, 1);
    std::thread source([&, fd = pair->server.get()] {
        bind_to_cpu(cpus.source);
        const std::vector<char> from(bytes, 1);
        while (send_all(fd, from.data(), bytes)) {
        }
    });
    std::vector<double> rounds;
    bool ok = true;
    std::thread sink([&, fd = pair->client.get()] {
        bind_to_cpu(cpus.sink);
        std::vector<char> to(bytes);
        // Rounds of at least 1 MiB, so that bytes in the socket buffers average out.
        const std::size_t per_round = std::max<std::size_t>(1, (std::size_t{1} << 20) / bytes);
        ok = receive_all(fd, to.data(), bytes, WaitMode::block);
        const TimePoint end = std::chrono::steady_clock::now() + budget;
        while (ok && (rounds.size() < 3 || std::chrono::steady_clock::now() < end)) {
            const TimePoint start = std::chrono::steady_clock::now();
            for (std::size_t i = 0; ok && i < per_round; ++i) {
                ok = receive_all(fd, to.data(), bytes, WaitMode::block);
            }
            const Duration took = std::chrono::steady_clock::now() - start;
            rounds.push_back(static_cast<double>(took.count()) / static_cast<double>(per_round));
        }
    });
    sink.join();
    // The source's end, too: with a full receive window it would block forever.
    shutdown(pair->server.get(), SHUT_RDWR);
    source.join();
    if (!ok) return socket_error("stream");
    return median_of(std::move(rounds));
}

}  // namespace weft::tool
