// Downloads and extents.
#include <weft/await.h>
#include <weft/offload.h>

#include <algorithm>
#include <vector>

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

// An open file stays the same version, whatever file replaces its name.
struct Opened {
    Fd file;
    ObjectInfo info;
};

struct Download {
    Download(std::string as, weft::ClientId by) : name(std::move(as)), client(by) {}

    const std::string name;
    const weft::ClientId client;
    FifoGate line;  // Orders the access to the members below by arrival.
    Opened object;
    std::uint64_t read = 0;
    std::uint32_t crc = 0;          // Checksum of the bytes read so far.
    std::uint64_t next_offset = 0;  // Offset at which the next chunk starts.
    std::uint64_t delivered = 0;
    OneShotStatus end;  // All delivered, failed, or the client disconnected.
};

static Result<Opened> open_for_reading(const Root& root, const std::string& name) {
    Result<Fd> file = root.open_object(name);
    if (!file) return std::move(file).status();
    const Result<ObjectInfo> info = info_of(file->get(), name);
    if (!info) return info.status();
    return Opened{*std::move(file), *info};
}

// Called after a read to `end`: puts replace files as a whole, but other programs may write to
// them.
static Status check_unchanged(const Opened& object, const std::string& name, std::uint64_t end,
                              bool is_short) {
    const Result<ObjectInfo> now = info_of(object.file.get(), name);
    if (!now) return now.status();
    const FileStamp& before = object.info;
    if (*now != before) return changed(quote(name), before, *now);
    return is_short ? changed(quote(name), before, {end, before.mtime_ns}) : Status();
}

Task<Status> Store::Get(Call& call, const GetRequest& in, GetReply& out) {
    const auto share = shared_->downloads.take(call.client(), 1);
    if (!share) co_return share.status();
    const auto download = std::make_shared<Download>(in.name(), call.client());
    if (!downloads_.emplace(in.transfer(), download).second) {
        co_return weft::rejected(Code::already_exists,
                                 "the client has an open download of this number already");
    }
    call.on_cancel([download] {
        download->end.set(weft::fail(Code::cancelled, "the client ended its download"));
    });
    {
        const FifoGate::Pass pass(download->line);
        const auto open = [&] { return open_for_reading(shared_->root, download->name); };
        Result<Opened> object = co_await in_background(open);
        if (object) {
            download->object = *std::move(object);
        } else {
            download->end.set(std::move(object).status());
        }
    }
    const Status status = co_await download->end;
    downloads_.erase(in.transfer());
    if (!status.ok()) co_return status;  // A read may be running on another thread.
    out.set_size(download->object.info.size);
    out.set_crc32c(download->crc);
    co_return status;
}

static Status damaged(const std::string& name) {
    return weft::fail(Code::data_loss, quote(name) +
                                           " is damaged on the server's disk: its bytes do not "
                                           "have the CRC32C that was stored with them");
}

// Reads the next bytes of the object into `into`; returns their number.
static Result<std::size_t> read_next(Download& download, weft::Bytes into) {
    const ObjectInfo& info = download.object.info;
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), info.size - download.read));
    Result<std::size_t> got = read_full(download.object.file.get(), download.read,
                                        into.first(wanted), quote(download.name));
    if (!got) return got;
    Status status =
        check_unchanged(download.object, download.name, download.read + *got, *got < wanted);
    if (!status.ok()) return status;
    download.crc = crc32c(download.crc, into.first(wanted));
    download.read += wanted;
    if (download.read == info.size && info.crc32c && *info.crc32c != download.crc) {
        return damaged(download.name);
    }
    return wanted;
}

Task<Status> Store::GetChunk(Call& call, const GetChunkRequest& in, GetChunkReply& out) {
    const auto found = downloads_.find(in.transfer());
    if (found == downloads_.end()) {
        co_return weft::rejected(Code::aborted,
                                 "the client has no open download of this number here");
    }
    const std::shared_ptr<Download> download = found->second;
    const Result<weft::RegionRef> into = weft::from_proto(in.into());
    if (!into) co_return weft::rejected(into.status());
    if (Status status = validate_chunk_time(call); !status.ok()) co_return status;
    if (into->length == 0 || into->length > chunk_bytes || in.offset() != download->next_offset) {
        co_return no_chunk();
    }
    download->next_offset += into->length;
    FifoGate::Pass pass(download->line);
    co_await pass;
    Result<ChunkBuffers::BufferLease> buffer_lease = co_await chunks_.acquire(download->client);
    if (!buffer_lease) download->end.set(weft::rejected(buffer_lease.status()));
    if (download->end.is_set()) co_return download->end.status();
    ChunkBuffers::BufferLease& buffer = *buffer_lease;
    const weft::Bytes bytes = buffer->bytes().first(into->length);
    const auto read = [&] { return read_next(*download, bytes); };
    const Result<std::size_t> got = co_await in_background(read);
    out.set_crc32c(download->crc);
    out.set_size(download->object.info.size);
    pass.release();  // The next chunk is read while this chunk is on the wire.
    Status status = got.status();
    if (got && *got > 0) status = co_await weft::put(call, *into, 0, buffer->slice(0, *got));
    if (!status.ok()) {
        buffer.discard();
        download->end.set(status);
        co_return status;
    }
    out.set_length(static_cast<std::uint32_t>(*got));
    download->delivered += *got;
    if (download->delivered == download->object.info.size) download->end.set(Status());
    co_return status;
}

// ---- extents -----------------------------------------------------------------------------------

// The stored checksum covers the whole object, so a check of a part reads all of it. Only objects
// no longer than an extent may be are checked.
static Status check_whole(const Opened& object, const std::string& name) {
    const ObjectInfo& info = object.info;
    if (!info.crc32c || info.size > extent_bytes_max) return {};
    std::vector<std::byte> piece(std::min<std::uint64_t>(info.size, std::uint64_t{1} << 20));
    std::uint32_t crc = 0;
    for (std::uint64_t at = 0; at < info.size; at += piece.size()) {
        const weft::Bytes into = weft::Bytes(piece).first(
            static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), info.size - at)));
        const Result<std::size_t> got = read_full(object.file.get(), at, into, quote(name));
        if (!got) return got.status();
        Status status = check_unchanged(object, name, at + *got, *got < into.size());
        if (!status.ok()) return status;
        crc = crc32c(crc, into);
    }
    return crc == *info.crc32c ? Status() : damaged(name);
}

static Result<Opened> read_extent(const Root& root, const OpenExtentRequest& in, weft::Bytes into,
                                  std::size_t& got) {
    Result<Opened> object = open_for_reading(root, in.name());
    if (!object) return object;
    const std::uint64_t size = object->info.size;
    if (in.offset() >= size) {
        return weft::rejected(Code::out_of_range, quote(in.name()) + " has " +
                                                      std::to_string(size) + " bytes, none at " +
                                                      std::to_string(in.offset()));
    }
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), size - in.offset()));
    const Result<std::size_t> read =
        read_full(object->file.get(), in.offset(), into.first(wanted), quote(in.name()));
    if (!read) return read.status();
    Status status = check_unchanged(*object, in.name(), in.offset() + *read, *read < wanted);
    if (status.ok()) status = check_whole(*object, in.name());
    if (!status.ok()) return status;
    got = wanted;
    return object;
}

Task<Status> Store::OpenExtent(Call& call, const OpenExtentRequest& in, OpenExtentReply& out) {
    const weft::Duration lease =
        in.lease_ms() ? std::chrono::milliseconds(in.lease_ms()) : lease_default;
    if (in.length() == 0 || in.length() > extent_bytes_max || lease > lease_max) {
        co_return weft::rejected(Code::invalid_argument,
                                 "an extent has 1 byte to " +
                                     std::to_string(extent_bytes_max >> 20) +
                                     " MiB and a lease of up to " +
                                     std::to_string(lease_max / std::chrono::seconds(1)) + " s");
    }
    std::erase_if(extents_, [](const auto& entry) { return entry.second.memory.expired(); });
    const Result<std::shared_ptr<void>> share = shared_->extents.take(call.client(), 1);
    if (!share) co_return share.status();
    const Result<std::shared_ptr<void>> bytes =
        shared_->extent_bytes.take(call.client(), in.length());
    if (!bytes) co_return bytes.status();
    const Result<weft::Buffer> memory = runtime_.allocate(in.length());
    if (!memory) co_return memory.status();
    // The shares are returned with the last reference to the memory: the region's, after its fence.
    const auto hold = std::shared_ptr<void>(
        memory->data(), [memory = *memory, share = *share, bytes = *bytes](void*) {});
    std::size_t got = 0;
    const auto read = [&] { return read_extent(shared_->root, in, memory->bytes(), got); };
    const Result<Opened> object = co_await weft::offload(read);
    if (!object) co_return object.status();
    const weft::Buffer extent_buffer =
        weft::Buffer::adopt(memory->bytes(), [hold] {}).slice(0, got);
    const auto sum = [&] { return crc32c(0, extent_buffer.bytes()); };
    out.set_crc32c(co_await weft::offload(sum));
    // An extent leased from here on is replied to, and the client closes it.
    if (call.cancelled())
        co_return weft::rejected(Code::cancelled, "the client ended its read of an extent");
    Result<weft::Region> region =
        runtime_.expose(extent_buffer, {.access = weft::Access::read, .lease = lease});
    if (!region) co_return std::move(region).status();
    out.set_length(static_cast<std::uint32_t>(got));
    weft::to_proto(region->ref(), out.mutable_data());
    if (!extents_.emplace(in.extent(), Extent{*std::move(region), hold}).second) {
        co_return weft::rejected(Code::already_exists,
                                 "the client has an open extent of this number already");
    }
    co_return Status();
}

Status Store::CloseExtent(Call&, const CloseExtentRequest& in, CloseExtentReply&) {
    extents_.erase(in.extent());  // An unknown extent is one that expired or was never leased.
    return {};
}

}  // namespace storage
