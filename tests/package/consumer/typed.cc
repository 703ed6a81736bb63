// A generated service and its client in one process, with a transfer between them.
#include <cstdio>

#include <weft/runtime.h>

#include "ledger/ledger.weft.h"

using namespace weft;

struct Ledger final : ledger::LedgerService {
    Runtime* runtime = nullptr;

    Task<Status> Sum(Call& call, const ledger::SumRequest& in, ledger::SumReply& out) override {
        const Result<RegionRef> from = from_proto(in.from());
        if (!from) co_return from.status();
        const Result<Buffer> here = runtime->allocate(from->length);
        if (!here) co_return here.status();
        if (Status status = co_await get(call, *from, 0, *here); !status.ok()) co_return status;
        std::uint64_t sum = 0;
        for (const std::byte byte : here->bytes()) sum += std::to_integer<std::uint64_t>(byte);
        out.set_sum(sum);
        co_return Status();
    }
};

static Task<std::uint64_t> sum(Channel channel, RegionRef ref) {
    ledger::SumRequest request;
    to_proto(ref, request.mutable_from());
    co_return (co_await ledger::LedgerClient(channel).Sum(request)).value().sum();
}

int main() {
    Ledger service;
    Runtime server = Runtime::create().value();
    Runtime client = Runtime::create().value();
    service.runtime = &server;
    if (Status status = server.serve(service, "sm://weft-consumer"); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
        return 1;
    }
    const Buffer memory = client.allocate(1000).value();
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = std::byte(i % 100);
    const Region region = client.expose(memory, {.access = Access::read}).value();
    const Channel channel = client.connect("sm://weft-consumer").value();
    std::printf("typed: sum %llu\n",
                static_cast<unsigned long long>(client.block_on(sum(channel, region.ref()))));
    return 0;
}
