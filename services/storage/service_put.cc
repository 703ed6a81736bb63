// Uploads: Put stays open for the upload, PutChunk pulls and writes a chunk, PutCommit names the
// object.
#include <weft/await.h>

#include "background.h"
#include "crc32c.h"
#include "name.h"
#include "service.h"
#include "waiting.h"

namespace storage {

using weft::Call;
using weft::Code;
using weft::Result;
using weft::Status;
using weft::Task;

struct Upload {
    Upload(std::string as, weft::ClientId by) : name(std::move(as)), client(by) {}

    const std::string name;
    const weft::ClientId client;
    FifoGate line;  // Orders the access to the members below by arrival.
    std::optional<UnfinishedFile> file;
    std::uint64_t written = 0;
    std::uint32_t crc = 0;        // Checksum of the bytes written so far.
    std::uint64_t announced = 0;  // Offset at which the next chunk starts.
    OneShotStatus end;            // Committed, failed, or the client disconnected.
};

static Status no_such_upload() {
    return weft::rejected(Code::aborted, "the client has no open upload of this number here");
}

Task<Status> Store::Put(Call& call, const PutRequest& in, PutReply& out) {
    if (Status status = validate_name(in.name()); !status.ok()) co_return status;
    const auto share = shared_->uploads.take(call.client(), 1);
    if (!share) co_return share.status();
    const auto upload = std::make_shared<Upload>(in.name(), call.client());
    if (!uploads_.emplace(in.transfer(), upload).second) {
        co_return weft::rejected(Code::already_exists,
                                 "the client has an open upload of this number already");
    }
    call.on_cancel(
        [upload] { upload->end.set(weft::fail(Code::cancelled, "the client ended its upload")); });
    {
        // First in the line: chunks that have already arrived wait for the file.
        const FifoGate::Pass pass(upload->line);
        const auto create = [&] { return shared_->root.create(upload->name); };
        Result<UnfinishedFile> file = co_await in_background(create);
        if (file) {
            upload->file.emplace(*std::move(file));
        } else {
            upload->end.set(std::move(file).status());
        }
    }
    const Status status = co_await upload->end;
    FifoGate::Pass last(upload->line);
    co_await last;
    const auto discard = [&] {
        upload->file.reset();  // No effect after a commit.
        if (!status.ok()) shared_->root.remove_empty_above(upload->name);
        return Status();
    };
    const Status discarded = co_await in_background(discard);
    if (!discarded.ok()) (void)discard();  // No thread was available: discards on this thread.
    uploads_.erase(in.transfer());         // Until now, its chunks failed with this status.
    out.set_size(upload->written);
    out.set_crc32c(upload->crc);
    co_return status;
}

static std::string hex(std::uint32_t crc) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", crc);
    return text;
}

static Status append(Upload& upload, weft::ByteView bytes, std::uint32_t expected) {
    const std::uint32_t crc = crc32c(upload.crc, bytes);
    if (crc != expected) {
        return weft::fail(Code::data_loss, quote(upload.name) + " arrived damaged between bytes " +
                                               std::to_string(upload.written) + " and " +
                                               std::to_string(upload.written + bytes.size()) +
                                               ": CRC32C " + hex(crc) + ", the client says " +
                                               hex(expected));
    }
    Status status = upload.file->append(bytes);
    if (!status.ok()) return status;
    upload.crc = crc;
    upload.written += bytes.size();
    return {};
}

Status no_chunk() {
    return weft::rejected(Code::invalid_argument, "a chunk has 1 byte to " +
                                                      std::to_string(chunk_bytes >> 20) +
                                                      " MiB and starts where the last one ended");
}

Status validate_chunk_time(const Call& call) {
    if (call.time_left() <= chunk_time_max) return {};
    return weft::rejected(Code::invalid_argument,
                          "a chunk's timeout is at most " +
                              std::to_string(chunk_time_max / std::chrono::seconds(1)) + " s");
}

Task<Status> Store::PutChunk(Call& call, const PutChunkRequest& in, PutChunkReply&) {
    const auto found = uploads_.find(in.transfer());
    if (found == uploads_.end()) co_return no_such_upload();
    const std::shared_ptr<Upload> upload = found->second;
    const Result<weft::RegionRef> data = weft::from_proto(in.data());
    if (!data) co_return data.status();
    if (Status status = validate_chunk_time(call); !status.ok()) co_return status;
    if (in.length() == 0 || in.length() > chunk_bytes || in.offset() != upload->announced) {
        co_return no_chunk();
    }
    upload->announced += in.length();
    FifoGate::Pass pass(upload->line);
    // Acquired before its turn, so that the chunk arrives while earlier chunks are written.
    Result<ChunkBuffers::BufferLease> buffer_lease = co_await chunks_.acquire(upload->client);
    if (!buffer_lease) upload->end.set(weft::rejected(buffer_lease.status()));
    if (upload->end.is_set()) co_return upload->end.status();
    ChunkBuffers::BufferLease& buffer = *buffer_lease;
    Status status = co_await weft::get(call, *data, 0, buffer->slice(0, in.length()));
    if (!status.ok()) buffer.discard();
    co_await pass;
    if (upload->end.is_set()) co_return upload->end.status();
    if (status.ok()) {
        const weft::ByteView bytes = buffer->bytes().first(in.length());
        const auto write = [&] { return append(*upload, bytes, in.crc32c()); };
        status = co_await in_background(write);
    }
    if (!status.ok()) upload->end.set(status);
    co_return status;
}

Task<Status> Store::PutCommit(Call&, const PutCommitRequest& in, PutCommitReply&) {
    const auto found = uploads_.find(in.transfer());
    if (found == uploads_.end()) co_return no_such_upload();
    const std::shared_ptr<Upload> upload = found->second;
    FifoGate::Pass pass(upload->line);
    co_await pass;
    if (upload->end.is_set()) co_return upload->end.status();
    Status status;
    if (in.size() != upload->written || in.crc32c() != upload->crc) {
        status = weft::fail(Code::data_loss,
                            quote(upload->name) + " arrived as " + std::to_string(upload->written) +
                                " bytes with CRC32C " + hex(upload->crc) + ", the client sent " +
                                std::to_string(in.size()) + " with " + hex(in.crc32c()));
    } else {
        const auto commit = [&] {
            const Status noted =
                shared_->journal.put(in.transfer(), upload->written, upload->crc, upload->name);
            return noted.ok() ? upload->file->commit(upload->crc) : noted;
        };
        status = co_await in_background(commit);
    }
    upload->end.set(status);
    co_return status;
}

}  // namespace storage
