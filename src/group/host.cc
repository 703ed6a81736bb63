#include "group/host.h"

namespace weft::group {

std::string_view host_of(const Member& member) {
    for (const std::string_view uri : member.uris) {
        const std::size_t mark = uri.find("://");
        if (mark == std::string_view::npos) continue;
        const std::string_view scheme = uri.substr(0, mark);
        if (scheme == "sm" || scheme == "unix") continue;
        const std::string_view rest = uri.substr(mark + 3);
        return rest.substr(0, rest.rfind(':'));
    }
    return {};
}

}  // namespace weft::group
