#include "perf/first_line.h"

#include <charconv>
#include <cstdio>

#include "base/text.h"
#include "cli/output.h"

namespace weft::tool {

Status print_listening(const std::string& uri) {
    std::printf("listening %s\n", uri.c_str());
    return flush_output();
}

void print_failed(const Status& status) {
    const std::string text = base::printable(status.text());
    std::printf("failed %d %s\n", static_cast<int>(status.code()), text.c_str());
    std::fflush(stdout);
}

Result<std::string> read_first_line(std::string_view line) {
    constexpr std::string_view good = "listening ", bad = "failed ";
    if (line.starts_with(good)) return std::string(line.substr(good.size()));
    if (line.starts_with(bad)) {
        line.remove_prefix(bad.size());
        unsigned code = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), code);
        if (error == std::errc() && code != 0 && code <= code_max) {
            line.remove_prefix(static_cast<std::size_t>(end - line.data()));
            if (line.starts_with(' ')) line.remove_prefix(1);
            return fail(static_cast<Code>(code), std::string(line));
        }
    }
    return fail(Code::internal, "the server process did not start");
}

}  // namespace weft::tool
