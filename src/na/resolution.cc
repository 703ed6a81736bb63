#include "na/resolution.h"

#include <algorithm>

namespace weft::na {

std::unique_ptr<Resolution> Resolution::start(const Address& to, TimePoint now,
                                              Resolver& resolver) {
    const auto origin = to.named_by_peer ? Resolver::Origin::peer : Resolver::Origin::program;
    return std::make_unique<Resolution>(to, resolver.resolve(to.host, now, origin));
}

void Resolution::wait() const { query_->done.wait(false, std::memory_order_acquire); }
bool Resolution::done() const { return query_->done.load(std::memory_order_acquire); }

Result<std::vector<SocketName>> Resolution::answers() const {
    const Resolver::Answer& answer = query_->answer;
    if (answer.names.empty()) {
        return fail(answer.code, "can't resolve '" + host_ + "': " + answer.error);
    }
    std::vector<SocketName> names;
    for (const SocketName& name : answer.names) {
        // A name from a peer must not lead to services that only this host reaches.
        if (named_by_peer_ && (name.is_loopback() || name.is_any())) continue;
        names.push_back(name.with_port(port_));
    }
    if (!names.empty()) return names;
    return fail(Code::unavailable,
                "'" + host_ + "', which a peer named, stands for this host's loopback");
}

Result<SocketName> Resolution::answer() const {
    const Result<std::vector<SocketName>> names = answers();
    if (!names) return names.status();
    const auto v4 = std::ranges::find(*names, AF_INET, &SocketName::family);
    return v4 == names->end() ? names->front() : *v4;
}

std::optional<SocketName> numeric_name(const Address& address) {
    const bool loopback = address.host.empty() || address.host == "localhost";
    return SocketName::from_numeric(loopback ? "127.0.0.1" : address.host, address.port);
}

Result<SocketName> resolve_blocking(const Address& address) {
    if (const auto name = numeric_name(address)) return *name;
    const Resolution resolution(address, Resolver::system().resolve_again(address.host));
    resolution.wait();
    return resolution.answer();
}

}  // namespace weft::na
