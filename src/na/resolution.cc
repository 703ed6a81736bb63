#include "na/resolution.h"

#include <netdb.h>

#include <atomic>
#include <system_error>

#include "base/quiet_thread.h"

namespace weft::na {

struct Resolution::Shared {
    std::string host;
    std::uint16_t port = 0;
    SocketName name;
    std::string error;
    std::atomic<bool> done{false};  // Publishes the two before it.
};

static void look_up(const std::string& host, std::uint16_t port, SocketName& name,
                    std::string& error) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
        error = ::gai_strerror(code);
        return;
    }
    // IPv4 first: an endpoint speaks one family, and our listeners default to 127.0.0.1.
    for (const int family : {AF_INET, AF_INET6}) {
        for (const addrinfo* at = found; at && name.empty(); at = at->ai_next) {
            if (at->ai_family != family) continue;
            if (const auto known = SocketName::from_kernel(at->ai_addr, at->ai_addrlen)) {
                name = known->with_port(port);
            }
        }
    }
    ::freeaddrinfo(found);
    if (name.empty()) error = "no IPv4 or IPv6 address";
}

std::unique_ptr<Resolution> Resolution::start(const std::string& host, std::uint16_t port) {
    auto resolution = std::make_unique<Resolution>();
    auto shared = std::make_shared<Shared>();
    resolution->shared_ = shared;
    shared->host = host;
    shared->port = port;
    try {
        base::start_quiet_thread([shared] {
            look_up(shared->host, shared->port, shared->name, shared->error);
            shared->done.store(true, std::memory_order_release);
            shared->done.notify_all();
        }).detach();
    } catch (const std::system_error& error) {
        shared->error = std::string("no thread to ask the resolver with: ") + error.what();
        shared->done.store(true, std::memory_order_release);
    }
    return resolution;
}

void Resolution::wait() const { shared_->done.wait(false, std::memory_order_acquire); }
bool Resolution::done() const { return shared_->done.load(std::memory_order_acquire); }

Result<SocketName> Resolution::answer() const {
    if (!shared_->name.empty()) return shared_->name;
    return fail(Code::unavailable, "can't resolve '" + shared_->host + "': " + shared_->error);
}

std::optional<SocketName> numeric_name(const Address& address) {
    const bool loopback = address.host.empty() || address.host == "localhost";
    return SocketName::from_numeric(loopback ? "127.0.0.1" : address.host, address.port);
}

Result<SocketName> wait_for_name(const Address& address) {
    if (const auto name = numeric_name(address)) return *name;
    const auto resolution = Resolution::start(address.host, address.port);
    resolution->wait();
    return resolution->answer();
}

}  // namespace weft::na
