#include "cli/own_uri.h"

#include <unistd.h>

#include <filesystem>

#ifdef WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#endif

namespace weft::tool {

std::string own_uri(const std::string& transport, const std::string& purpose) {
    const std::string name = "weft-" + purpose + '-' + std::to_string(getpid());
    if (transport == "sm") return "sm://" + name;
    if (transport == "unix") {
        std::error_code none;
        const auto folder = std::filesystem::temp_directory_path(none);
        return none ? "" : "unix://" + (folder / name).string();
    }
#ifdef WEFT_WITH_VERBS
    if (transport == "verbs" || transport == "ofi+verbs") {
        const auto host = na::find_rdma_host();
        return host ? transport + "://" + *host + ":0" : "";
    }
#endif
    if (transport == "tcp" || transport == "ofi+tcp") return transport + "://127.0.0.1:0";
    return "";
}

}  // namespace weft::tool
