// Many transfers over one connection, a few at a time.
#pragma once

#include <functional>

#include <weft/offload.h>
#include <weft/task.h>

#include "store/session.h"

namespace weft::tool {

// What came of all of them.
struct Transferred {
    Status status;  // The first failure; nothing is started after it.
    std::size_t objects = 0;
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;  // Of the last object.
    double seconds = 0;
};

using TransferOne =
    std::function<Task<Result<storage::Moved>>(storage::Client& client, std::size_t at)>;

// Runs one(client, 0) to one(client, count - 1). One object gets the whole window, several share
// it in lanes: 32 MiB of payload memory either way.
Transferred transfer_all(Session& session, std::size_t count, const TransferOne& one);

// Prints the summary, or with --json one object, unless all failed.
void report(const char* verb, const std::string& name, const Transferred& done, bool quiet,
            Invocation& invocation);

}  // namespace weft::tool
