// blobs_async ADDRESS: the counterpart of a client with completion queues or reactors.
#include <iostream>
#include <latch>

#include <weft/runtime.h>

#include "blobs.weft.h"

using namespace weft;

// Many calls by callback, sixteen in flight. Callbacks run on the runtime's thread, one at a time.
struct Fill {
    porting::BlobsClient blobs;
    int left = 100;
    int in_flight = 0;
    Status first_error{};
    std::latch end{1};

    void start() {
        while (left > 0 && in_flight < 16) {
            porting::Record in;
            in.set_name("blob-" + std::to_string(--left));
            in.set_data("data");
            ++in_flight;
            blobs.Append(in, {.timeout = 5s},
                         [this](const Status& status, const porting::Info&) { arrive(status); });
        }
    }
    void arrive(const Status& status) {
        --in_flight;
        if (!status.ok() && first_error.ok()) first_error = status;
        start();
        if (left == 0 && in_flight == 0) end.count_down();
    }
};

// Two calls at a time by coroutine: a call starts when it is made, not when it is awaited.
Task<std::uint64_t> sum(Channel channel) {
    const porting::BlobsClient blobs(channel);
    porting::Name first, second;
    first.set_name("blob-0");
    second.set_name("blob-1");
    auto one = blobs.Stat(first);
    auto other = blobs.Stat(second);
    const std::uint64_t bytes = (co_await one).value().bytes();
    co_return bytes + (co_await other).value().bytes();
}

// A stream of changes is a call that waits for the next change.
Task<Status> follow(Channel channel, std::string name) {
    const porting::BlobsClient blobs(channel);
    porting::Info known;
    known.set_name(name);
    porting::Record more;
    more.set_name(name);
    more.set_data("!");
    for (int changes = 0; changes < 3; ++changes) {
        auto watched = blobs.Watch(known);
        if (Result<porting::Info> done = co_await blobs.Append(more); !done)
            co_return done.status();
        Result<porting::Info> changed = co_await watched;
        if (!changed) co_return std::move(changed).status();
        known = *changed;
        std::cout << "watch: " << known.bytes() << " bytes\n";
    }
    co_return Status();
}

// A call by callback has an id, from the runtime's thread. Any thread may cancel by it.
Status cancelled(Runtime& runtime, const Channel& channel) {
    Status outcome;
    std::latch end(1);
    runtime.executor().post([&] {
        const OperationId id = porting::BlobsClient(channel).Watch(
            porting::Info(), {}, [&](const Status& status, const porting::Info&) {
                outcome = status;
                end.count_down();
            });
        channel.cancel_call(id);
    });
    end.wait();
    return outcome;
}

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: blobs_async ADDRESS\n", 64;
    Runtime runtime = Runtime::create().value();
    const Channel channel = runtime.connect(argv[1]).value();
    Fill fill{.blobs = porting::BlobsClient(channel)};
    runtime.executor().post([&] { fill.start(); });
    fill.end.wait();
    std::cout << "fill: " << fill.first_error.to_string() << '\n';
    std::cout << "sum: " << runtime.block_on(sum(channel)) << " bytes\n";
    const Status status = runtime.block_on(follow(channel, "news"));
    std::cout << "cancel: " << name_of(cancelled(runtime, channel).code()) << '\n';
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
