// client URI NAME TEXT: stores TEXT as the object NAME at a `weft serve`, fetches it back and
// compares. The object fits in one chunk. services/storage/client.h shows objects of any size.
#include <cstring>
#include <iostream>
#include <random>

#include <weft/runtime.h>

#include "storage.weft.h"

using namespace weft;

// CRC32C (RFC 3720), bit by bit. services/storage/crc32c.h uses the processor's instructions.
std::uint32_t crc32c(ByteView bytes) {
    std::uint32_t crc = ~0u;
    for (const std::byte one : bytes) {
        crc ^= std::to_integer<std::uint32_t>(one);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

std::uint64_t random_number() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

// The server reads the bytes from `memory`, checks them, and names the object at the commit.
Task<Status> put(Runtime& runtime, const storage::StoreClient& store, const std::string& name,
                 const Buffer& memory) {
    const Region region = runtime.expose(memory, {.access = Access::read}).value();
    storage::PutRequest open;
    open.set_transfer(random_number());
    open.set_name(name);
    auto upload = store.Put(open);  // Runs until the commit. To drop it ends the upload.
    storage::PutChunkRequest chunk;
    chunk.set_transfer(open.transfer());
    chunk.set_length(static_cast<std::uint32_t>(memory.size()));
    chunk.set_crc32c(crc32c(memory.bytes()));
    to_proto(region.ref(), chunk.mutable_data());
    storage::PutCommitRequest commit;
    commit.set_transfer(open.transfer());
    commit.set_size(memory.size());
    commit.set_crc32c(chunk.crc32c());
    if (const auto sent = co_await store.PutChunk(chunk); sent.ok()) {
        (void)co_await store.PutCommit(commit);
    }
    co_return (co_await upload).status();  // A refused chunk or commit ends the upload.
}

// The server writes the object into memory of this side. Returns the part that was written.
Task<Result<Buffer>> get(Runtime& runtime, const storage::StoreClient& store,
                         const std::string& name, std::size_t bytes_max) {
    const Buffer memory = runtime.allocate(bytes_max).value();
    const Region region = runtime.expose(memory, {.access = Access::write}).value();
    storage::GetRequest open;
    open.set_transfer(random_number());
    open.set_name(name);
    auto download = store.Get(open);
    storage::GetChunkRequest chunk;
    chunk.set_transfer(open.transfer());
    to_proto(region.ref(), chunk.mutable_into());
    const auto reply = co_await store.GetChunk(chunk);
    if (!reply.ok()) co_return reply.status();
    const Buffer object = memory.slice(0, reply->length());
    const bool is_whole = reply->size() == reply->length();
    if (!is_whole || crc32c(object.bytes()) != reply->crc32c()) {
        co_return fail(Code::data_loss, "'" + name + "' is larger than the memory, or damaged");
    }
    co_return object;
}

Task<Status> store_and_check(Runtime& runtime, Channel channel, std::string name,
                             std::string text) {
    const storage::StoreClient store(channel);
    const Buffer memory = runtime.allocate(text.size()).value();
    std::memcpy(memory.data(), text.data(), text.size());
    if (Status status = co_await put(runtime, store, name, memory); !status.ok()) co_return status;
    std::cout << "put: " << memory.size() << " bytes as " << name << '\n';

    const Result<Buffer> object = co_await get(runtime, store, name, memory.size());
    if (!object.ok()) co_return object.status();
    const bool is_equal =
        object->size() == text.size() && std::memcmp(object->data(), text.data(), text.size()) == 0;
    if (!is_equal) co_return fail(Code::data_loss, "'" + name + "' differs from what was stored");
    std::cout << "get: the same bytes\n";
    co_return Status();
}

int main(int argc, char** argv) try {
    if (argc != 4) return std::cerr << "usage: client URI NAME TEXT\n", 64;
    Runtime runtime = Runtime::create().value();
    const Channel channel = runtime.connect(argv[1]).value();
    const Status status = runtime.block_on(store_and_check(runtime, channel, argv[2], argv[3]));
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
