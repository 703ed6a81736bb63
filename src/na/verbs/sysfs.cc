#include "na/verbs/sysfs.h"

#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weft::na::verbs {

std::string class_folder(const std::string& device) { return "/sys/class/infiniband/" + device; }

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
        names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

std::string as_text(const ibv_gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    (void)::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    return text;
}

}  // namespace weft::na::verbs
