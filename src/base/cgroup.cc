#include "base/cgroup.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/cpu_set.h"
#include "base/unique_fd.h"

namespace weft::base {

// Much more than the paths of all hierarchies in /proc/self/cgroup.
static constexpr std::size_t file_bytes_max = std::size_t{64} << 10;
// Version 1 reports a number near 2^63 bytes for no limit.
static constexpr std::uint64_t memory_bytes_max = 9'000'000'000'000'000'000;

static std::optional<std::string> read_file(const std::string& path) {
    const UniqueFd file =
        UniqueFd::close_on_fork([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    if (!file) return {};
    std::string text;
    std::array<char, 4096> piece;
    while (text.size() < file_bytes_max) {
        const ssize_t bytes = ::read(file.get(), piece.data(), piece.size());
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        text.append(piece.data(), static_cast<std::size_t>(bytes));
    }
    return text;
}

// Takes the text up to `end` off, with `end` itself; all of it if there is none.
static std::string_view take_until(std::string_view& text, char end) {
    const std::size_t length = std::min(text.find(end), text.size());
    const std::string_view taken = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    return taken;
}

static bool has_name(std::string_view list, std::string_view name) {
    while (!list.empty()) {
        if (take_until(list, ',') == name) return true;
    }
    return false;
}

// The cgroup of a controller, from lines "4:cpu,cpuacct:/path" of version 1 or "0::/path" of
// version 2 (`controller` is empty). "": the root, or unknown.
static std::string_view group_of(std::string_view memberships, std::string_view controller) {
    while (!memberships.empty()) {
        std::string_view path = take_until(memberships, '\n');
        const std::string_view id = take_until(path, ':');
        const std::string_view controllers = take_until(path, ':');
        const bool is_own = controller.empty() ? id == "0" && controllers.empty()
                                               : has_name(controllers, controller);
        if (is_own) return path == "/" ? "" : path;
    }
    return "";
}

// nullopt: "max", or no number above zero.
static std::optional<std::uint64_t> number_in(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number == 0) return {};
    return number;
}

namespace {

class LimitReader {
  public:
    explicit LimitReader(const FileReader& read)
        : read_(read), memberships_(read("/proc/self/cgroup").value_or("")) {}

    CgroupLimits limits() {
        visit("", "/sys/fs/cgroup", [this](const std::string& folder) {
            const std::string line = first_line(folder + "/cpu.max");  // "150000 100000"
            std::string_view rest = line;
            const std::string_view quota = take_until(rest, ' ');
            limit_cpus(quota, rest);
            limit_memory(first_line(folder + "/memory.max"));
        });
        visit("cpu", "/sys/fs/cgroup/cpu", [this](const std::string& folder) {
            limit_cpus(first_line(folder + "/cpu.cfs_quota_us"),
                       first_line(folder + "/cpu.cfs_period_us"));
        });
        visit("memory", "/sys/fs/cgroup/memory", [this](const std::string& folder) {
            limit_memory(first_line(folder + "/memory.limit_in_bytes"));
        });
        return limits_;
    }

  private:
    // The folders of the cgroup and of its ancestors. A container may see its own as the root.
    template <class Visit>
    void visit(std::string_view controller, const std::string& root, const Visit& each) {
        std::string group(group_of(memberships_, controller));
        while (true) {
            each(root + group);
            const std::size_t slash = group.rfind('/');
            if (slash == std::string::npos) return;
            group.resize(slash);
        }
    }
    std::string first_line(const std::string& path) const {
        const std::string text = read_(path).value_or("");
        return text.substr(0, text.find('\n'));
    }

    void limit_cpus(std::string_view quota_text, std::string_view period_text) {
        const std::optional<std::uint64_t> quota = number_in(quota_text);
        const std::optional<std::uint64_t> period = number_in(period_text);
        if (!quota || !period) return;
        const std::uint64_t rounded_up = (*quota - 1) / *period + 1;
        if (rounded_up < limits_.cpus.value_or(CpuSet::cpus_max))
            limits_.cpus = static_cast<unsigned>(rounded_up);
    }
    void limit_memory(std::string_view text) {
        const std::optional<std::uint64_t> bytes = number_in(text);
        if (bytes && *bytes < limits_.memory_bytes.value_or(memory_bytes_max))
            limits_.memory_bytes = *bytes;
    }

    const FileReader& read_;
    const std::string memberships_;
    CgroupLimits limits_;
};

}  // namespace

CgroupLimits read_cgroup_limits(const FileReader& read) { return LimitReader(read).limits(); }

CgroupLimits read_cgroup_limits() { return read_cgroup_limits(read_file); }

unsigned usable_cpus() {
    const std::optional<CpuSet> allowed = CpuSet::of_this_thread();
    const unsigned count = allowed ? std::max(allowed->size(), 1u) : 1;
    return std::min(count, read_cgroup_limits().cpus.value_or(count));
}

}  // namespace weft::base
