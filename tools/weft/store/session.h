// The connection of one run to a store, and functions that its commands share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <weft/runtime.h>

#include "cli/invocation.h"
#include "storage/client.h"

namespace weft::tool {

// --server URI, once for each address of one server: the fastest that leads to it is used, sm and
// unix only beside a network address that answers (docs/adr/0005-best-path.md).
void add_server_option(CLI::App& command, std::vector<std::string>& uris, bool required = true);

// An error of the storage library about a name, from before anything was sent.
Status rejected_locally(const Status& status);

// For an option that has a default: an empty value is probably an unset variable.
std::string why_empty(const std::string& given);

struct Session {
    Runtime runtime;
    Channel channel;

    static Result<Session> open(const std::vector<std::string>& uris);
};

// For calls that move no payload.
inline constexpr Duration call_timeout = std::chrono::seconds(10);

std::string format_crc32c(std::uint32_t crc);
// "2026-01-31 12:00:00", local time.
std::string format_mtime(std::int64_t mtime_ns);
// "256 MiB in 0.31 s, 820 MiB/s".
std::string format_rate(std::uint64_t bytes, double seconds);

}  // namespace weft::tool
