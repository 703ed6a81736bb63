#include "na/address.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/text.h"

namespace weft::na {

static constexpr std::string_view forms =
    "sm://name, tcp://host:port, unix:///path, ofi+tcp://host:port, ofi+verbs://host:port, "
    "verbs://host:port or sim://node";

static constexpr std::string_view schemes[] = {"sm",      "sim",       "unix", "tcp",
                                               "ofi+tcp", "ofi+verbs", "verbs"};

static constexpr std::size_t shown_bytes_max = 100;
static constexpr std::size_t name_bytes_max = 64;
// Leaves room for the suffix of the socket's lock file.
static constexpr std::size_t path_bytes_max = 100;
static constexpr std::size_t host_bytes_max = 253;  // RFC 1035.
static constexpr std::size_t zone_bytes_max = 15;   // IFNAMSIZ.

static Status bad(std::string_view uri, std::string_view why) {
    const std::string shown =
        base::printable(uri.substr(0, shown_bytes_max)) + (uri.size() > shown_bytes_max ? "…" : "");
    return fail(Code::invalid_argument, "address '" + shown + "': " + base::printable(why));
}

// Why a part of an address is invalid; empty: it is valid.
using Reason = std::string;

static Reason too_long(const char* what, std::size_t bytes) {
    return std::string(what) + " has " + std::to_string(bytes) + " bytes; ";
}

// '/' at byte 3 of the name; bytes are counted from 1.
static Reason wrong_byte(const char* what, std::string_view text, std::size_t at) {
    return "'" + std::string(text.substr(at, 1)) + "' is byte " + std::to_string(at + 1) + " of " +
           what + "; ";
}

static Reason why_no_name(std::string_view name) {
    if (name.empty()) return "the name is empty; ";
    if (name.size() > name_bytes_max) return too_long("the name", name.size());
    for (std::size_t at = 0; at < name.size(); ++at) {
        const char c = name[at];
        const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || (c == '.' && at > 0);
        if (!good) return wrong_byte("the name", name, at);
    }
    return {};
}

static Reason why_no_path(std::string_view path) {
    if (path.empty() || path.front() != '/') return "the path is not absolute; ";
    if (path.size() > path_bytes_max) return too_long("the path", path.size());
    if (path.back() == '/') return "the path ends in '/'; ";
    if (base::printable(path) != path) return "the path has characters that do not print; ";
    return {};
}

// A zone follows an IPv6 address after '%': the interface of a link-local address.
static Reason why_no_zone(std::string_view host) {
    const std::size_t percent = host.find('%');
    const bool is_link_local = host.size() > 4 && (host[0] | 0x20) == 'f' &&
                               (host[1] | 0x20) == 'e' &&
                               std::string_view("89abAB").find(host[2]) != std::string_view::npos;
    if (host.find(':') == std::string_view::npos) {
        return percent == std::string_view::npos ? "" : "a zone (%) is of IPv6 addresses only; ";
    }
    if (percent == std::string_view::npos) {
        return is_link_local ? "a link-local address needs its interface, as in [fe80::1%eth0]; "
                             : "";
    }
    if (!is_link_local) return "a zone (%) is of link-local addresses (fe80::) only; ";
    const std::size_t bytes = host.size() - percent - 1;
    if (bytes == 0) return "the zone behind % is empty; ";
    return bytes > zone_bytes_max ? too_long("the zone", bytes) : "";
}

static bool is_dotted_quad(std::string_view host) {
    for (int part = 0; part < 4; ++part) {
        const std::string_view number = host.substr(0, host.find('.'));
        unsigned value = 0;
        const auto [end, error] =
            std::from_chars(number.data(), number.data() + number.size(), value);
        const bool is_whole = error == std::errc() && end == number.data() + number.size();
        if (!is_whole || value > 255 || (number.size() > 1 && number[0] == '0')) return false;
        if (part == 3) return number.size() == host.size();
        if (number.size() == host.size()) return false;
        host.remove_prefix(number.size() + 1);
    }
    return false;
}

// Decimal, octal or hexadecimal.
static bool is_number(std::string_view label) {
    const bool is_hex = label.starts_with("0x") || label.starts_with("0X");
    const std::string_view digits = is_hex ? "0123456789abcdefABCDEF" : "0123456789";
    if (is_hex) label.remove_prefix(2);
    return (is_hex || !label.empty()) && label.find_first_not_of(digits) == std::string_view::npos;
}

// A resolver takes a host of numbers for an IPv4 address, and a number with a leading 0 for octal.
static Reason why_no_ipv4(std::string_view host) {
    if (is_dotted_quad(host)) return "";
    for (std::string_view rest = host;;) {
        const std::size_t dot = rest.find('.');
        if (!is_number(rest.substr(0, dot))) return "";
        if (dot == std::string_view::npos) break;
        rest.remove_prefix(dot + 1);
    }
    return "an IPv4 address has four numbers without leading zeros, as in 192.0.2.1; ";
}

static Reason why_no_host(std::string_view host) {
    if (host.size() > host_bytes_max) return too_long("the host", host.size());
    for (std::size_t at = 0; at < host.size(); ++at) {
        const char c = host[at];
        if (c <= ' ' || c == '/' || c == '[' || c == ']' || c == 0x7f) {
            return wrong_byte("the host", host, at);
        }
    }
    if (Reason why = why_no_ipv4(host); !why.empty()) return why;
    return why_no_zone(host);
}

static Reason split_host_port(std::string_view rest, Address& into) {
    std::string_view host, port;
    if (rest.starts_with('[')) {
        const std::size_t end = rest.find("]:");
        if (end == std::string_view::npos) return "no ]: behind the host; ";
        host = rest.substr(1, end - 1);
        port = rest.substr(end + 2);
    } else {
        const std::size_t colon = rest.rfind(':');
        if (colon == std::string_view::npos) return "no port; ";
        host = rest.substr(0, colon);
        port = rest.substr(colon + 1);
        if (host.find(':') != std::string_view::npos) {
            return "more than one : without brackets; ";
        }
    }
    if (Reason why = why_no_host(host); !why.empty()) return why;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (error != std::errc() || end != port.data() + port.size() || value > 65535) {
        return "the port is '" + std::string(port.substr(0, shown_bytes_max)) + "'; ";
    }
    into.host = host;
    into.port = static_cast<std::uint16_t>(value);
    return {};
}

// A hint for an unknown transport that differs from a known one only in case or spaces.
static std::string meant_by(std::string_view scheme) {
    std::string near;
    for (const char c : scheme) {
        if (c > ' ') near += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    const bool is_one = std::ranges::find(schemes, near) != std::end(schemes);
    return is_one ? " (is '" + near + "' meant?)" : "";
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
    if (scheme == "ofi+shm") {
        return bad(uri, "libfabric's shm checks no keys, so weft does not offer it; use sm://name");
    }
    if (std::ranges::find(schemes, scheme) == std::end(schemes)) {
        return bad(uri, "unknown transport '" + scheme + "'" + meant_by(scheme) + "; use " +
                            std::string(forms));
    }
    if (scheme == "sm" || scheme == "sim" || scheme == "unix") {
        const bool is_path = scheme == "unix";
        const Reason why = is_path ? why_no_path(rest) : why_no_name(rest);
        if (!why.empty()) {
            return bad(
                uri,
                why + (is_path ? "expected unix:///path, absolute, of at most " +
                                     std::to_string(path_bytes_max) + " bytes of printable UTF-8"
                               : "the name must be 1 to " + std::to_string(name_bytes_max) +
                                     " letters, digits, '-', '_' or '.', not starting "
                                     "with '.'"));
        }
        address.name = rest;
        return address;
    }
    if (const Reason why = split_host_port(rest, address); !why.empty()) {
        return bad(uri,
                   why + "expected host:port with a port from 0 to 65535, [host]:port for IPv6");
    }
    return address;
}

}  // namespace weft::na
