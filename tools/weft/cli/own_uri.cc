#include "cli/own_uri.h"

#include <unistd.h>

#include <filesystem>

namespace weft::tool {

std::string own_uri(const std::string& transport, const std::string& purpose) {
    const std::string name = "weft-" + purpose + '-' + std::to_string(getpid());
    if (transport == "sm") return "sm://" + name;
    if (transport == "unix") {
        std::error_code none;
        const auto folder = std::filesystem::temp_directory_path(none);
        return none ? "" : "unix://" + (folder / name).string();
    }
    if (transport == "tcp" || transport == "ofi+tcp") return transport + "://127.0.0.1:0";
    return "";
}

}  // namespace weft::tool
