#include "group/host.h"

namespace weft::group {

std::optional<std::string_view> host_in(std::string_view uri) {
    const std::size_t mark = uri.find("://");
    if (mark == std::string_view::npos) return std::nullopt;
    const std::string_view scheme = uri.substr(0, mark);
    if (scheme == "sm" || scheme == "unix") return std::nullopt;
    const std::string_view rest = uri.substr(mark + 3);
    return rest.substr(0, rest.rfind(':'));
}

std::string_view host_of(const Member& member) {
    for (const std::string_view uri : member.uris) {
        if (const auto host = host_in(uri)) return *host;
    }
    return {};
}

}  // namespace weft::group
