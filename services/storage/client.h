// The client of the store: stores files and fetches them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "bounds.h"
#include "file.h"
#include "storage.weft.h"
#include "unfinished_file.h"

namespace storage {

struct TransferResult {
    std::uint64_t size = 0;
    std::uint32_t crc32c = 0;
};

// Called on the context's thread with the bytes that the other side has acknowledged.
using Progress = std::function<void(std::uint64_t bytes)>;

// The target of a download: a file that gets its name at the end, or a descriptor.
class Sink {
  public:
    // Errors: as errno_status(). Blocks.
    static weft::Result<Sink> file(const std::string& path);
    static Sink descriptor(int fd, std::string display_name);

    weft::Status write(weft::ByteView bytes);
    weft::Status finish();

  private:
    std::optional<UnfinishedFile> file_;
    int fd_ = -1;
    std::string display_name_;
};

// Thread: the tasks run on the runtime's context, one transfer at a time; several clients may share
// a channel. Payload memory: `chunks` of 4 MiB, two at least, allocated by the first transfer and
// used by all.
class Client {
  public:
    Client(weft::Runtime& runtime, weft::Channel channel, std::size_t chunks = window)
        : runtime_(&runtime),
          channel_(std::move(channel)),
          stub_(channel_),
          chunks_(std::max<std::size_t>(chunks, 2)) {}

    // Stores the bytes that `fd` yields up to its end. Effect of a failure: none (nothing under the
    // name has changed) until the commit is sent, then the effect of the commit. `display_name`
    // names the source in errors. Errors also: ABORTED, when the source is a regular file and
    // changes meanwhile (SourceCheck).
    weft::Task<weft::Result<TransferResult>> put(int fd, std::string display_name, std::string name,
                                                 Progress progress);
    // Errors also: DATA_LOSS, when the bytes differ from the stored ones.
    weft::Task<weft::Result<TransferResult>> get(std::string name, Sink& sink, Progress progress);
    // Reads a range of at most 16 MiB from memory that the server leases.
    weft::Task<weft::Result<weft::Buffer>> read_extent(std::string name, std::uint64_t offset,
                                                       std::uint32_t length);

    const StoreClient& stub() const { return stub_; }
    const weft::Channel& channel() const { return channel_; }

  private:
    struct PutTransfer;
    struct GetTransfer;

    // A chunk's memory on this side, exposed while the transfer runs.
    struct Slot {
        weft::Buffer buffer;
        weft::Region region;
    };
    weft::Result<std::vector<Slot>> make_slots(weft::Access access);
    void keep(std::vector<Slot> slots);
    weft::Task<weft::Result<std::size_t>> read_chunk(PutTransfer& transfer, weft::Bytes into,
                                                     const weft::ProtoCall<PutReply>& put);
    weft::Task<weft::Status> send_chunks(PutTransfer& transfer,
                                         const weft::ProtoCall<PutReply>& put);
    weft::Task<weft::Status> receive_chunks(GetTransfer& transfer);
    void request_chunk(GetTransfer& transfer);

    weft::Runtime* runtime_;
    weft::Channel channel_;
    StoreClient stub_;
    std::size_t chunks_;
    std::vector<weft::Buffer> buffers_;
};

}  // namespace storage
