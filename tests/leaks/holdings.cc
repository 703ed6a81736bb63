#include "leaks/holdings.h"

#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "na/socket_name.h"

namespace weft::test {

// Each count includes the descriptor that reads it.
static std::size_t entries_of(const char* folder) {
    std::size_t entries = 0;
    DIR* open = ::opendir(folder);
    while (open && ::readdir(open)) ++entries;
    if (open) ::closedir(open);
    return entries - 2;  // "." and ".."
}

static bool is_memory_file(const char* line) { return std::strstr(line, "/memfd:weft-"); }

Holdings Holdings::now() {
    Holdings held;
    // Read first, because reading the others allocates.
    held.live = live_memory();
    held.c_bytes =
        static_cast<std::ptrdiff_t>(malloc_bytes()) - held.live.bytes - held.live.large_bytes;
    held.descriptors = entries_of("/proc/self/fd");
    held.threads = entries_of("/proc/self/task");
    char line[1024];
    if (std::FILE* maps = std::fopen("/proc/self/maps", "re")) {
        while (std::fgets(line, sizeof line, maps)) {
            ++(is_memory_file(line) ? held.shared_mappings : held.other_mappings);
        }
        std::fclose(maps);
    }
    if (std::FILE* status = std::fopen("/proc/self/status", "re")) {
        while (std::fgets(line, sizeof line, status)) {
            (void)std::sscanf(line, "VmRSS: %zu", &held.resident_kib);
        }
        std::fclose(status);
    }
    return held;
}

std::string Holdings::text() const {
    std::ostringstream out;
    out << descriptors << " descriptors, " << threads << " threads, " << shared_mappings
        << " shared and " << other_mappings << " other mappings, " << live.blocks << " blocks of "
        << live.bytes << " bytes, " << live.large_blocks << " large, " << c_bytes
        << " bytes of C, resident " << resident_kib << " KiB";
    return out.str();
}

std::size_t close_forgotten(std::uint16_t port) {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(entry.path().filename());
        sockaddr_storage name{};
        socklen_t bytes = sizeof name;
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) continue;
        const auto at = na::SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes);
        if (at && at->port() == port) found.push_back(fd);
    }
    for (const int fd : found) ::close(fd);
    return found.size();
}

std::string names_of_objects() {
    std::map<std::string, int> names;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        ++names["descriptor " + std::filesystem::read_symlink(entry, gone).string()];
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (is_memory_file(line.c_str())) ++names["mapping " + line.substr(line.find('/'))];
    }
    std::string text;
    for (const auto& [name, count] : names) text += name + " x" + std::to_string(count) + '\n';
    return text;
}

}  // namespace weft::test
