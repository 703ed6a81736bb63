// Many transfers over one connection, a few at a time.
#pragma once

#include <functional>

#include <weft/offload.h>
#include <weft/task.h>

#include "store/session.h"

namespace weft::tool {

// The result of all transfers.
struct TransferTotals {
    Status status;  // The first failure; nothing is started after it.
    std::size_t objects = 0;
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;  // Of the last object.
    double seconds = 0;
};

using TransferOne =
    std::function<Task<Result<storage::TransferResult>>(storage::Client& client, std::size_t at)>;

// Runs one(client, 0) to one(client, count - 1). Fewer than 4 run one after the other, each with
// the whole window; more share it, 4 at a time: 32 MiB of payload memory either way.
TransferTotals transfer_all(Session& session, std::size_t count, const TransferOne& one);

// Prints the summary of a success, unless `quiet`. With --json fills the answer, always.
void report(const char* verb, const std::string& name, const TransferTotals& done, bool quiet,
            Invocation& invocation);

}  // namespace weft::tool
