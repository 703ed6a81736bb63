#include "store/parallel_transfers.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/text.h"
#include "cli/text.h"

namespace weft::tool {

namespace {

constexpr std::size_t parallel_max = 4;

struct TransferWork {
    const TransferOne& one;
    const std::size_t count;
    std::size_t next = 0;  // This and later members: context's thread only.
    TransferTotals done{};
};

Task<void> transfer_remaining(TransferWork& work, storage::Client& client) {
    while (work.next < work.count && work.done.status.ok()) {
        Task<Result<storage::TransferResult>> task = work.one(client, work.next++);
        const Result<storage::TransferResult> moved = co_await task;
        if (!moved) {
            if (work.done.status.ok()) work.done.status = moved.status();
            co_return;
        }
        ++work.done.objects;
        work.done.bytes += moved->size;
        work.done.crc32c = moved->crc32c;
    }
}

}  // namespace

TransferTotals transfer_all(Session& session, std::size_t count, const TransferOne& one) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t parallel = count < parallel_max ? 1 : parallel_max;
    TransferWork work{one, count};
    std::vector<storage::Client> clients;
    for (std::size_t i = 0; i < parallel; ++i) {
        clients.emplace_back(session.runtime, session.channel, storage::window / parallel);
    }
    std::vector<std::thread> waiters;
    for (std::size_t i = 1; i < parallel; ++i) {
        waiters.emplace_back(
            [&, i] { session.runtime.block_on(transfer_remaining(work, clients[i])); });
    }
    session.runtime.block_on(transfer_remaining(work, clients[0]));
    for (std::thread& waiter : waiters) waiter.join();
    work.done.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return work.done;
}

void report(const char* verb, const std::string& name, const TransferTotals& done, bool quiet,
            Invocation& invocation) {
    if (invocation.json) {
        Json json;
        json["name"] = name;
        json["objects"] = done.objects;
        json["bytes"] = done.bytes;
        json["crc32c"] = done.objects == 1 ? Json(format_crc32c(done.crc32c)) : Json(nullptr);
        json["seconds"] = done.seconds;
        json["mib_per_s"] =
            done.seconds > 0 ? static_cast<double>(done.bytes) / 1048576 / done.seconds : 0;
        json["error"] = nullptr;
        invocation.answer = std::move(json);
    } else if (done.status.ok() && !quiet) {
        const std::string rate = format_rate(done.bytes, done.seconds);
        if (done.objects == 1) {
            std::printf("%s %s: %s, CRC32C %s\n", verb, base::printable(name).c_str(), rate.c_str(),
                        format_crc32c(done.crc32c).c_str());
        } else {
            std::printf("%s %s: %zu objects, %s\n", verb, base::printable(name).c_str(),
                        done.objects, rate.c_str());
        }
    }
}

}  // namespace weft::tool
