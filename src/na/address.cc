#include "na/address.h"

#include <charconv>

#include "base/text.h"

namespace weft::na {

static constexpr std::string_view forms =
    "sm://name, tcp://host:port, unix:///path, ofi+tcp://host:port, ofi+verbs://host:port, "
    "verbs://host:port or sim://node";

static constexpr std::size_t shown_bytes_max = 100;

static Status bad(std::string_view uri, std::string_view why) {
    const std::string shown =
        base::printable(uri.substr(0, shown_bytes_max)) + (uri.size() > shown_bytes_max ? "…" : "");
    return fail(Code::invalid_argument, "address '" + shown + "': " + std::string(why));
}

static bool is_name(std::string_view name) {
    if (name.empty() || name.size() > 64 || name.front() == '.') return false;
    for (char c : name) {
        const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
        if (!good) return false;
    }
    return true;
}

// Room is left for the names of what stands beside a socket.
static bool is_path(std::string_view path) {
    return path.size() >= 2 && path.size() <= 100 && path.front() == '/' && path.back() != '/' &&
           base::printable(path) == path;
}

static bool split_host_port(std::string_view rest, Address& into) {
    std::string_view host, port;
    if (rest.starts_with('[')) {
        const std::size_t end = rest.find("]:");
        if (end == std::string_view::npos) return false;
        host = rest.substr(1, end - 1);
        port = rest.substr(end + 2);
    } else {
        const std::size_t colon = rest.rfind(':');
        if (colon == std::string_view::npos) return false;
        host = rest.substr(0, colon);
        port = rest.substr(colon + 1);
        if (host.find(':') != std::string_view::npos) return false;
    }
    unsigned value = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (error != std::errc() || end != port.data() + port.size() || value > 65535) return false;
    if (host.size() > 253) return false;
    for (char c : host) {
        if (c <= ' ' || c == '/' || c == '[' || c == ']' || c == 0x7f) return false;
    }
    into.host = host;
    into.port = static_cast<std::uint16_t>(value);
    return true;
}

std::string Address::uri() const {
    if (!name.empty()) return scheme + "://" + name;
    const bool v6 = host.find(':') != std::string::npos;
    return scheme + "://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> parse_address(std::string_view uri) {
    if (uri.size() > 400) return bad(uri, "too long");
    const std::size_t mark = uri.find("://");
    if (mark == std::string_view::npos || mark == 0) {
        return bad(uri, "no transport in front; use " + std::string(forms));
    }
    Address address;
    address.scheme = uri.substr(0, mark);
    const std::string_view rest = uri.substr(mark + 3);
    const std::string& scheme = address.scheme;
    if (scheme == "sm" || scheme == "sim") {
        if (!is_name(rest)) {
            return bad(
                uri,
                "the name must be 1 to 64 letters, digits, '-', '_' or '.', not starting with '.'");
        }
        address.name = rest;
        return address;
    }
    if (scheme == "unix") {
        if (!is_path(rest)) {
            return bad(uri,
                       "expected unix:///path, absolute, of at most 100 bytes of printable UTF-8");
        }
        address.name = rest;
        return address;
    }
    if (scheme == "ofi+shm") {
        return bad(uri, "libfabric's shm checks no keys, so weft does not offer it; use sm://name");
    }
    if (scheme != "tcp" && scheme != "ofi+tcp" && scheme != "ofi+verbs" && scheme != "verbs") {
        return bad(uri, "unknown transport '" + scheme + "'; use " + std::string(forms));
    }
    if (!split_host_port(rest, address)) {
        return bad(uri, "expected host:port with a port from 0 to 65535, [host]:port for IPv6");
    }
    return address;
}

}  // namespace weft::na
