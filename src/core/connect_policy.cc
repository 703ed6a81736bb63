#include "core/connect_policy.h"

#include <algorithm>

#include "na/resolution.h"

namespace weft::core {

static std::string directory_of(const na::Address& address) {
    return address.name.substr(0, address.name.rfind('/'));
}

static na::SocketName name_of(const na::Address& address) {
    if (!address.name.empty()) return {};
    return na::numeric_name(address).value_or(na::SocketName());
}

const ConnectPolicy::Transport* ConnectPolicy::find(const std::string& scheme) const {
    const auto at = std::find_if(transports_.begin(), transports_.end(),
                                 [&](const Transport& one) { return one.scheme == scheme; });
    return at == transports_.end() ? nullptr : &*at;
}

void ConnectPolicy::add(std::string_view uri) {
    const Result<na::Address> own = na::parse_address(uri);
    if (own) add(*own);
}

void ConnectPolicy::add(const na::Address& own) {
    auto at = std::find_if(transports_.begin(), transports_.end(),
                           [&](const Transport& one) { return one.scheme == own.scheme; });
    if (at == transports_.end()) at = transports_.insert(at, {own.scheme, false, {}});
    if (own.scheme == "unix") at->directories.insert(directory_of(own));
    // A listener on "any" serves a network: it allows peers there to name no loopback address.
    at->has_loopback |= name_of(own).is_loopback();
}

bool ConnectPolicy::allows(const na::Address& named) const {
    const Transport* const own = find(named.scheme);
    if (!own) return false;
    if (named.scheme == "unix") return own->directories.contains(directory_of(named));
    const na::SocketName name = name_of(named);
    // A connect to "any" reaches this host.
    return own->has_loopback || !(name.is_loopback() || name.is_any());
}

std::string ConnectPolicy::transports() const {
    std::string all;
    for (const Transport& one : transports_) all += (all.empty() ? "" : ", ") + one.scheme;
    return all.empty() ? "none" : all;
}

}  // namespace weft::core
