// One of two connected virtual machines (docs/softroce.md), and its control connection over a
// network that the tests leave alone: tools/softroce/control.py.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "support/capability.h"

namespace weft::test {

class Machine {
  public:
    struct Answer {
        int status = -1;  // Of the command; -1: no reply.
        std::string words;
    };

    explicit Machine(std::string address) : address_(std::move(address)) {}

    // Runs a shell command to its end. Thread: any.
    Answer run(const std::string& command) const {
        const base::UniqueFd talk(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        if (::inet_pton(AF_INET, address_.c_str(), &to.sin_addr) != 1 ||
            ::connect(talk.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
            ::send(talk.get(), command.data(), command.size(), MSG_NOSIGNAL) !=
                static_cast<ssize_t>(command.size())) {
            return {};
        }
        ::shutdown(talk.get(), SHUT_WR);
        std::string all;
        char buffer[4096];
        ssize_t bytes = 0;
        while ((bytes = ::recv(talk.get(), buffer, sizeof buffer, 0)) > 0) {
            all.append(buffer, static_cast<std::size_t>(bytes));
        }
        const std::size_t end = all.find('\n');
        if (end == std::string::npos) return {-1, all};
        return {std::atoi(all.c_str()), all.substr(end + 1)};
    }

  private:
    static constexpr std::uint16_t port = 7077;
    std::string address_;
};

// This machine, the other one, and the address of a verbs server on the other one.
struct Machines {
    Machine near, far;
    std::string far_uri;
};

inline std::optional<Machines> machines_or_note() {
    const char* near = std::getenv("TEST_NEAR_CONTROL");
    const char* far = std::getenv("TEST_FAR_CONTROL");
    const char* host = std::getenv("TEST_RDMA_FAR");
    if (near && far && host) {
        return Machines{Machine(near), Machine(far), "verbs://" + std::string(host) + ":7471"};
    }
    note_capability("verbs", "not tested here: networks that fail; `make softroce` has one");
    return std::nullopt;
}

}  // namespace weft::test
