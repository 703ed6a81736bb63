// blobs_client ADDRESS: the counterpart of a client with blocking stubs, as coroutines.
#include <cstring>
#include <iostream>

#include <weft/runtime.h>
#include <weft/sleep.h>

#include "blobs.weft.h"

using namespace weft;

// One blocking call is `runtime.block_on(stat(channel, "log"))`.
Task<Result<porting::Info>> stat(Channel channel, std::string name) {
    porting::Name in;
    in.set_name(name);
    co_return co_await porting::BlobsClient(channel).Stat(in, {.timeout = 200ms});
}

// The retry policy of a method that is not idempotent: retries only calls without any effect.
Task<Result<porting::Info>> append(Channel channel, std::string name, std::string data) {
    porting::Record in;
    in.set_name(name);
    in.set_data(data);
    for (int left = 3;; --left) {
        Result<porting::Info> done = co_await porting::BlobsClient(channel).Append(in);
        const Status& status = done.status();
        const bool may_repeat =
            status.code() == Code::unavailable && status.effect() == Effect::none;
        if (done || !may_repeat || left == 0) co_return done;
        if (Status slept = co_await sleep_for(100ms); !slept.ok()) co_return slept;
    }
}

Task<Status> upload(Runtime& runtime, Channel channel, std::string name, Buffer data) {
    const Result<Region> region = runtime.expose(data, {.access = Access::read});
    if (!region) co_return region.status();
    porting::Extent in;
    in.set_name(name);
    to_proto(region->ref(), in.mutable_memory());
    const auto done = co_await porting::BlobsClient(channel).Upload(in);
    co_return done.status();  // The end of the region revokes the server's access.
}

// The loop over a stream's chunks becomes a loop over the blob, one window of memory at a time.
Task<Result<std::string>> download(Runtime& runtime, Channel channel, std::string name) {
    const Result<Buffer> window = runtime.allocate(1 << 20);
    if (!window) co_return window.status();
    const Result<Region> region = runtime.expose(*window, {.access = Access::write});
    if (!region) co_return region.status();
    porting::Extent in;
    in.set_name(name);
    to_proto(region->ref(), in.mutable_memory());
    std::string blob;
    while (true) {
        in.set_offset(blob.size());
        Result<porting::Info> part = co_await porting::BlobsClient(channel).Download(in);
        if (!part) co_return std::move(part).status();
        if (part->bytes() == 0) co_return blob;
        if (part->bytes() > window->size()) co_return fail(Code::data_loss, "more than the window");
        blob += as_text(window->bytes().first(part->bytes()));
    }
}

Task<Status> tour(Runtime& runtime, Channel channel) {
    for (const std::string line : {"one\n", "two\n"}) {
        const auto grown = (co_await append(channel, "log", line)).value();
        std::cout << "append: " << grown.bytes() << " bytes\n";
    }
    const auto missing = co_await stat(channel, "nothing");
    std::cout << "stat: " << missing.status().to_string() << '\n';

    const Buffer data = runtime.allocate(5 << 20).value();
    std::memset(data.data(), 'x', data.size());
    if (Status sent = co_await upload(runtime, channel, "large", data); !sent.ok()) co_return sent;
    const std::string back = (co_await download(runtime, channel, "large")).value();
    std::cout << "large: " << (back == as_text(data.bytes()) ? "the same" : "damaged") << '\n';
    co_return Status();
}

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: blobs_client ADDRESS\n", 64;
    Runtime runtime = Runtime::create().value();
    const Channel channel = runtime.connect(argv[1]).value();
    const Status status = runtime.block_on(tour(runtime, channel));
    if (status.ok()) {
        const auto log = runtime.block_on(stat(channel, "log")).value();
        std::cout << "stat: " << log.bytes() << " bytes\n";
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
