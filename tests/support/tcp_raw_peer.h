// A peer that writes to tcp's lanes by hand, well or badly.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "na/address.h"
#include "na/socket_name.h"
#include "na/tcp/wire.h"
#include "support/na_rig.h"

namespace weft::test {

class TcpRawConnection {
  public:
    explicit TcpRawConnection(const std::string& uri) {
        const na::Address address = na::parse_address(uri).value();
        const na::SocketName name = address.scheme == "unix"
                                        ? *na::SocketName::from_path(address.name)
                                        : *na::SocketName::from_numeric(address.host, address.port);
        socket_.reset(::socket(name.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(socket_.get(), name.get(), static_cast<socklen_t>(name.size())) == 0);
    }

    // False: the other side disconnected.
    bool say(ByteView bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        }
        return true;
    }
    template <class T>
    bool send_value(const T& value) {
        return say({reinterpret_cast<const std::byte*>(&value), sizeof value});
    }
    bool send_hello() {
        na::Hello hello{{77, 88}, 65 * 1024, 64 * 1024, "tcp://raw"};
        std::byte frame[na::tcp::handshake_bytes_max];
        return say({frame, na::tcp::encode_hello(hello, frame)});
    }
    void hang_up() { socket_.reset(); }

    // The bytes received; pumps the rig until there are `bytes` of them or the stream ends.
    std::vector<std::byte> hear(NaRig& rig, std::size_t bytes) {
        REQUIRE(rig.pump_until([&] { return listen(bytes) || heard_.size() >= bytes; }));
        const std::size_t taken = std::min(bytes, heard_.size());
        std::vector<std::byte> all(heard_.begin(), heard_.begin() + std::ptrdiff_t(taken));
        heard_.erase(heard_.begin(), heard_.begin() + std::ptrdiff_t(taken));
        return all;
    }
    bool has_come() const {
        std::byte room;
        return ::recv(socket_.get(), &room, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
    }
    // Discards the unread bytes and returns their number.
    std::size_t discard_received() {
        std::vector<std::byte> room(1 << 20);
        std::size_t all = 0;
        while (true) {
            const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
            if (got <= 0) return all;
            all += static_cast<std::size_t>(got);
        }
    }
    // A greeting frame, without its padding.
    std::vector<std::byte> receive_frame(NaRig& rig) {
        std::vector<std::byte> frame = hear(rig, sizeof(na::tcp::StreamHead));
        REQUIRE(frame.size() == sizeof(na::tcp::StreamHead));
        const auto head = base::load<na::tcp::StreamHead>(frame.data());
        const std::vector<std::byte> rest =
            hear(rig, na::tcp::padded(head.bytes) - sizeof(na::tcp::StreamHead));
        frame.insert(frame.end(), rest.begin(), rest.end());
        frame.resize(head.bytes);
        return frame;
    }
    // Pumps until the other side has disconnected.
    bool is_dropped(NaRig& rig) {
        return rig.pump_until([&] { return listen(1 << 20); });
    }
    // Completes the handshake; returns the ticket of a bulk lane.
    na::tcp::Ticket join(NaRig& rig) {
        REQUIRE(send_hello());
        const std::vector<std::byte> frame = receive_frame(rig);
        const Result<na::tcp::Welcome> welcome = na::tcp::decode_welcome(frame);
        INFO(welcome.status().to_string());
        REQUIRE(welcome);
        return welcome->ticket;
    }
    bool send_join(const na::tcp::Ticket& ticket) {
        std::byte frame[na::tcp::handshake_bytes_max];
        return say({frame, na::tcp::encode_join(ticket, 0, frame)});
    }

  private:
    // True: the stream has ended.
    bool listen(std::size_t bytes) {
        std::byte room[4096];
        while (heard_.size() < bytes) {
            const ssize_t got = ::recv(socket_.get(), room, sizeof room, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
            if (got < 0) return false;
            heard_.insert(heard_.end(), room, room + got);
        }
        return false;
    }

    base::UniqueFd socket_;
    std::vector<std::byte> heard_;
};

}  // namespace weft::test
