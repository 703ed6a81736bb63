#include "info/limits.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/cgroup.h"
#include "cli/cpus.h"
#include "cli/text.h"

extern char** environ;

namespace weft::tool {

namespace {

std::string in_words(rlim_t limit, bool bytes) {
    if (limit == RLIM_INFINITY) return "unlimited";
    return bytes ? format_bytes(static_cast<double>(limit)) : std::to_string(limit);
}

rlim_t soft_limit(__rlimit_resource resource) {
    rlimit limit{};
    return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

Finding open_files() {
    const rlim_t limit = soft_limit(RLIMIT_NOFILE);
    Finding finding{"open files", in_words(limit, false), ""};
    if (limit < 4096) {
        finding.remedy =
            "each peer takes one to three: raise it with `ulimit -n 65536` or "
            "LimitNOFILE= of the service";
    }
    return finding;
}

std::optional<std::string> first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    return line;
}

// Whether the limit of locked memory does not bind this process: it has CAP_IPC_LOCK, bit 14, in
// the initial user namespace.
bool may_lock_anything() {
    std::uint64_t inside = 0, outside = 0, count = 0;
    std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
    if (inside != 0 || outside != 0 || count != 4294967295) return false;
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("CapEff:")) continue;
        return (std::strtoull(line.c_str() + 7, nullptr, 16) >> 14 & 1) != 0;
    }
    return false;
}

// An endpoint over verbs takes 16 MiB for its messages; transfers register the rest.
Finding locked_memory() {
    const rlim_t limit = soft_limit(RLIMIT_MEMLOCK);
    Finding finding{"locked memory", in_words(limit, true), ""};
    if (limit == RLIM_INFINITY) return finding;
    if (may_lock_anything()) {
        finding.value += ", which does not bind this process (CAP_IPC_LOCK)";
    } else if (limit < (64u << 20)) {
        finding.remedy =
            "RDMA (verbs, ofi+verbs) registers memory against it: `ulimit -l unlimited`, "
            "memlock in /etc/security/limits.d or LimitMEMLOCK=infinity of the service";
    } else {
        finding.value += ", of which memory for transfers over RDMA is taken";
    }
    return finding;
}

// Verbs puts messages on free huge pages, because a device then looks up fewer pages.
Finding huge_pages() {
    std::uint64_t free = 0, bytes = 0;
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        const auto value = [&](std::string_view name, std::uint64_t& into) {
            if (line.starts_with(name)) {
                into = std::strtoull(line.c_str() + name.size(), nullptr, 10);
            }
        };
        value("HugePages_Free:", free);
        value("Hugepagesize:", bytes);
    }
    const std::string often =
        first_line("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
    const std::size_t open = often.find('['), close = often.find(']');
    const std::string chosen = open < close && close != std::string::npos
                                   ? often.substr(open + 1, close - open - 1)
                                   : "not in this kernel";
    Finding finding{"huge pages",
                    std::to_string(free) + " free of " +
                        format_bytes(static_cast<double>(bytes) * 1024) +
                        ", transparent: " + chosen,
                    ""};
    if (free < 16 && chosen != "always" && chosen != "madvise") {
        finding.remedy =
            "verbs: `sysctl vm.nr_hugepages=32` (8 for each endpoint), or madvise in "
            "/sys/kernel/mm/transparent_hugepage/enabled";
    }
    return finding;
}

Finding address_space() {
    const rlim_t limit = soft_limit(RLIMIT_AS);
    Finding finding{"address space", in_words(limit, true), ""};
    if (limit != RLIM_INFINITY) {
        finding.remedy =
            "an arena reserves as much as the machine's memory, its peers map it too: "
            "`ulimit -v unlimited`, or set WEFT_ARENA to a smaller number of bytes";
    }
    return finding;
}

Finding cpus() {
    const std::size_t allowed = allowed_cpus().size();
    Finding finding{"cpus", std::to_string(allowed), ""};
    if (const std::optional<unsigned> quota = base::read_cgroup_limits().cpus)
        finding.value += "; the quota of the cgroup (cpu.max): " + std::to_string(*quota);
    if (base::usable_cpus() < 2) {
        finding.remedy =
            "spinning client and server would take turns on it: leave WEFT_WAIT at "
            "adaptive or block";
    }
    return finding;
}

Finding group_memory() {
    Finding finding{"memory of the cgroup", "unlimited", ""};
    const std::optional<std::uint64_t> limit = base::read_cgroup_limits().memory_bytes;
    if (!limit) return finding;
    finding.value = format_bytes(static_cast<double>(*limit));
    if (*limit < (256u << 20)) {
        finding.remedy = "touched arena pages count against it: raise memory.max or set WEFT_ARENA";
    }
    return finding;
}

Finding runtime_directory() {
    const char* set = std::getenv("XDG_RUNTIME_DIR");
    Finding finding{"runtime directory", set && *set ? set : "not set", ""};
    if (!set || !*set) {
        finding.value += " (sm:// uses a directory of its own, mode 0700)";
        return finding;
    }
    struct stat facts {};
    if (stat(set, &facts) != 0 || !S_ISDIR(facts.st_mode)) {
        finding.remedy = "XDG_RUNTIME_DIR is no directory: create it with mode 0700 or unset it";
    } else if (access(set, W_OK | X_OK) != 0) {
        finding.remedy =
            "XDG_RUNTIME_DIR can't be written by this user: correct its owner or unset it";
    }
    return finding;
}

}  // namespace

std::vector<Finding> examine_limits() {
    return {cpus(),          open_files(),   locked_memory(),    huge_pages(),
            address_space(), group_memory(), runtime_directory()};
}

std::vector<std::string> weft_environment() {
    std::vector<std::string> found;
    for (char** at = environ; at && *at; ++at) {
        if (std::string_view(*at).starts_with("WEFT_")) found.emplace_back(*at);
    }
    return found;
}

}  // namespace weft::tool
