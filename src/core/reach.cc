#include "core/reach.h"

#include <algorithm>

#include "na/resolution.h"

namespace weft::core {

static std::string directory_of(const na::Address& address) {
    return address.name.substr(0, address.name.rfind('/'));
}

// What connects to "any" reaches this host.
static bool is_loopback(const na::Address& address) {
    if (!address.name.empty()) return false;
    const auto name = na::numeric_name(address);
    return name && (name->is_loopback() || name->is_any());
}

const Reach::Transport* Reach::find(const std::string& scheme) const {
    const auto at = std::find_if(transports_.begin(), transports_.end(),
                                 [&](const Transport& one) { return one.scheme == scheme; });
    return at == transports_.end() ? nullptr : &*at;
}

void Reach::add(std::string_view uri) {
    const Result<na::Address> own = na::parse_address(uri);
    if (own) add(*own);
}

void Reach::add(const na::Address& own) {
    auto at = std::find_if(transports_.begin(), transports_.end(),
                           [&](const Transport& one) { return one.scheme == own.scheme; });
    if (at == transports_.end()) at = transports_.insert(at, {own.scheme, false, {}});
    if (own.scheme == "unix") at->directories.insert(directory_of(own));
    at->has_loopback |= is_loopback(own);
}

bool Reach::covers(const na::Address& named) const {
    const Transport* const own = find(named.scheme);
    if (!own) return false;
    if (named.scheme == "unix") return own->directories.contains(directory_of(named));
    return own->has_loopback || !is_loopback(named);
}

std::string Reach::transports() const {
    std::string all;
    for (const Transport& one : transports_) all += (all.empty() ? "" : ", ") + one.scheme;
    return all.empty() ? "none" : all;
}

}  // namespace weft::core
