#include "store/session.h"

#include <cstdio>
#include <ctime>

#include "cli/text.h"

namespace weft::tool {

void add_server_option(CLI::App& command, std::vector<std::string>& uris, bool required) {
    command
        .add_option("--server", uris,
                    "An address of the server; of several, each with --server, the fastest is used")
        ->required(required)
        ->allow_extra_args(false);
}

Status rejected_locally(const Status& status) {
    return status.ok() ? Status() : fail(status.code(), std::string(status.text()));
}

std::string why_empty(const std::string& given) {
    return given.empty() ? "is empty; leave it out for the default" : "";
}

Result<Session> Session::open(const std::vector<std::string>& uris) {
    Result<Runtime> runtime = Runtime::create();
    if (!runtime) return std::move(runtime).status();
    Result<Channel> channel = runtime->connect(uris);
    if (!channel) return std::move(channel).status();
    return Session{*std::move(runtime), *std::move(channel)};
}

std::string format_crc32c(std::uint32_t crc) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", crc);
    return text;
}

std::string format_mtime(std::int64_t mtime_ns) {
    const auto seconds = static_cast<std::time_t>(mtime_ns / 1'000'000'000);
    std::tm parts{};
    localtime_r(&seconds, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%F %T", &parts);
    return text;
}

std::string format_rate(std::uint64_t bytes, double seconds) {
    const auto size = static_cast<double>(bytes);
    return format_bytes(size) + " in " + format_ns(seconds * 1e9) + ", " +
           format_bytes(seconds > 0 ? size / seconds : 0) + "/s";
}

}  // namespace weft::tool
