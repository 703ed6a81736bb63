#include "cli/cpus.h"

#include <charconv>

#include "base/cpu_set.h"

namespace weft::tool {

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    const std::optional<base::CpuSet> allowed = base::CpuSet::of_this_thread();
    if (!allowed) return cpus;
    for (unsigned cpu = 0; cpu < base::CpuSet::cpus_max; ++cpu) {
        if (allowed->contains(cpu)) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
}

std::vector<int> parse_cpu_list(std::string_view text) {
    constexpr int numbers_max = base::CpuSet::cpus_max;
    std::vector<int> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
        int first = 0;
        auto [next, error] = std::from_chars(at, end, first);
        int last = first;
        if (error == std::errc() && next < end && *next == '-') {
            const auto more = std::from_chars(next + 1, end, last);
            next = more.ptr;
            error = more.ec;
        }
        const bool ends = next == end || *next == ',';
        const bool is_range = first >= 0 && last >= first && last < numbers_max;
        if (error != std::errc() || !ends || !is_range ||
            numbers.size() + static_cast<std::size_t>(last - first) >= numbers_max)
            return {};
        for (int number = first; number <= last; ++number) numbers.push_back(number);
        at = next == end ? end : next + 1;
    }
    return numbers;
}

std::string cpu_list_text(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last != i) text += "-" + std::to_string(numbers[last]);
        i = last + 1;
    }
    return text;
}

bool bind_to_cpus(const std::vector<int>& cpus) {
    base::CpuSet set;
    for (const int cpu : cpus) {
        if (cpu < 0 || static_cast<unsigned>(cpu) >= base::CpuSet::cpus_max) return false;
        set.add(static_cast<unsigned>(cpu));
    }
    return set.apply_to_this_thread();
}

CpuPair pick_cpus() {
    const std::vector<int> cpus = allowed_cpus();
    if (cpus.empty()) return {};
    return {cpus.front(), cpus.size() > 1 ? cpus[1] : cpus.front()};
}

std::string why_cpus_hurt(const CpuPair& cpus) {
    if (cpus.two()) return "";
    return "only cpu " + std::to_string(cpus.client) +
           " may be used: client and server take turns on it, which measures the scheduler";
}

}  // namespace weft::tool
