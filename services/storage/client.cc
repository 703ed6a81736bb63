#include "client.h"

#include <fcntl.h>

#include <cerrno>
#include <deque>
#include <memory>
#include <random>

#include <weft/await.h>
#include <weft/offload.h>

#include "bounds.h"
#include "crc32c.h"
#include "name.h"

namespace storage {

using weft::Code;
using weft::Result;
using weft::Status;
using weft::Task;

static constexpr weft::CallOptions chunk_options{.timeout = chunk_timeout};

// Time to wait for a source without data before the state of the Put is checked again.
static constexpr weft::Duration source_wait = std::chrono::milliseconds(200);

static std::uint64_t random_number() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

// ---- sinks -------------------------------------------------------------------------------------

Result<Sink> Sink::file(const std::string& given) {
    const Result<std::string> resolved = resolve_target(given);
    if (!resolved) return resolved.status();
    const std::string& path = *resolved;
    const std::size_t at = path.rfind('/');
    const std::string directory = at == path.npos ? "." : at == 0 ? "/" : path.substr(0, at);
    std::string leaf = at == path.npos ? path : path.substr(at + 1);
    Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened) return errno_status(errno, "can't open the directory '" + directory + "'");
    Result<UnfinishedFile> file =
        UnfinishedFile::create_nameless(std::move(opened), std::move(leaf), "'" + path + "'");
    if (!file) return std::move(file).status();
    Sink sink;
    sink.file_.emplace(*std::move(file));
    return sink;
}

Sink Sink::descriptor(int fd, std::string display_name) {
    Sink sink;
    sink.fd_ = fd;
    sink.display_name_ = std::move(display_name);
    return sink;
}

Status Sink::write(weft::ByteView bytes) {
    return file_ ? file_->append(bytes) : write_all(fd_, bytes, display_name_);
}

Status Sink::finish() { return file_ ? file_->commit(std::nullopt) : Status(); }

// ---- slots -------------------------------------------------------------------------------------

// The slots belong to the transfer alone. When a transfer ends early or is dropped, the peer may
// still access a chunk: its memory is not used again.
Result<std::vector<Client::Slot>> Client::make_slots(weft::Access access) {
    std::vector<Slot> slots;
    while (slots.size() < chunks_) {
        Result<weft::Buffer> buffer =
            buffers_.empty() ? runtime_->allocate(chunk_bytes) : std::move(buffers_.back());
        if (!buffers_.empty()) buffers_.pop_back();
        if (!buffer) return std::move(buffer).status();
        Result<weft::Region> region = runtime_->expose(*buffer, {.access = access});
        if (!region) return std::move(region).status();
        slots.push_back({*std::move(buffer), *std::move(region)});
    }
    return slots;
}

// Keeps the slots of a transfer that succeeded.
void Client::keep(std::vector<Slot> slots) {
    for (Slot& slot : slots) {
        if (buffers_.size() < chunks_) buffers_.push_back(std::move(slot.buffer));
    }
}

// ---- put ---------------------------------------------------------------------------------------

struct Client::PutTransfer {
    const int fd;
    const std::string display_name;
    const SourceCheck source;
    const std::uint64_t number = random_number();
    std::vector<Slot> slots;
    Progress progress;
    std::uint64_t chunks = 0;
    std::uint64_t read = 0;
    std::uint64_t answered = 0;
    std::uint32_t crc = 0;
    struct Flight {
        std::unique_ptr<weft::ProtoCall<PutChunkReply>> call;
        std::size_t bytes;
    };
    std::deque<Flight> flights{};
};

// Fills `into`, or less at the source's end. Returns early when the Put ends.
Task<Result<std::size_t>> Client::read_chunk(PutTransfer& transfer, weft::Bytes into,
                                             const weft::ProtoCall<PutReply>& put) {
    std::size_t filled = 0;
    bool is_at_end = false;
    while (filled < into.size() && !is_at_end) {
        if (put.await_ready()) co_return weft::fail(Code::aborted, "the server ended the upload");
        const auto read = [&]() -> Status {
            const weft::Bytes rest = into.subspan(filled);
            const Result<ReadPart> part =
                read_for(transfer.fd, rest, source_wait, transfer.display_name);
            if (!part) return part.status();
            transfer.crc = crc32c(transfer.crc, rest.first(part->bytes));
            filled += part->bytes;
            is_at_end = part->is_at_end;
            const bool is_whole = filled == into.size() || is_at_end;
            return is_whole ? transfer.source.check(transfer.read + filled, is_at_end) : Status();
        };
        if (Status status = co_await weft::offload(read); !status.ok()) co_return status;
    }
    co_return filled;
}

// Reads the next chunk while the chunks before it are on the wire.
Task<Status> Client::send_chunks(PutTransfer& transfer, const weft::ProtoCall<PutReply>& put) {
    bool at_end = false;
    while (!at_end || !transfer.flights.empty()) {
        if (at_end || transfer.flights.size() == transfer.slots.size()) {
            const PutTransfer::Flight oldest = std::move(transfer.flights.front());
            transfer.flights.pop_front();
            auto& call = *oldest.call;
            const Result<PutChunkReply> reply = co_await call;
            if (!reply) co_return reply.status();
            transfer.answered += oldest.bytes;
            if (transfer.progress) transfer.progress(transfer.answered);
            continue;
        }
        const Slot& slot = transfer.slots[transfer.chunks++ % transfer.slots.size()];
        const Result<std::size_t> got = co_await read_chunk(transfer, slot.buffer.bytes(), put);
        if (!got) co_return got.status();
        at_end = *got < slot.buffer.size();
        if (*got == 0) continue;
        PutChunkRequest chunk;
        chunk.set_transfer(transfer.number);
        chunk.set_offset(transfer.read);
        chunk.set_length(static_cast<std::uint32_t>(*got));
        chunk.set_crc32c(transfer.crc);
        weft::to_proto(slot.region.ref(0, *got), chunk.mutable_data());
        transfer.read += *got;
        transfer.flights.push_back({std::make_unique<weft::ProtoCall<PutChunkReply>>(
                                        channel_, StoreMethods::PutChunk, chunk, chunk_options),
                                    *got});
    }
    co_return Status();
}

Task<Result<TransferResult>> Client::put(int fd, std::string display_name, std::string name,
                                         Progress progress) {
    const auto begin = [&] { return SourceCheck::begin(fd, display_name); };
    Result<SourceCheck> source = co_await weft::offload(begin);
    if (!source) co_return std::move(source).status();
    Result<std::vector<Slot>> slots = make_slots(weft::Access::read);
    if (!slots) co_return std::move(slots).status();
    PutTransfer transfer{.fd = fd,
                         .display_name = std::move(display_name),
                         .source = *std::move(source),
                         .slots = *std::move(slots),
                         .progress = std::move(progress)};
    PutRequest request;
    request.set_transfer(transfer.number);
    request.set_name(name);
    auto put = stub_.Put(request, {.timeout = weft::no_timeout});
    Status status = co_await send_chunks(transfer, put);
    if (!status.ok()) {
        transfer.flights.clear();
        // The status of the Put itself names the reason why its chunks were refused.
        if (put.await_ready()) {
            const Result<PutReply> refused = co_await put;
            if (!refused) status = refused.status();
        }
        co_return std::move(status).with_effect(weft::Effect::none).in("can't put " + quote(name));
    }
    PutCommitRequest commit;
    commit.set_transfer(transfer.number);
    commit.set_size(transfer.read);
    commit.set_crc32c(transfer.crc);
    const Result<PutCommitReply> committed =
        co_await stub_.PutCommit(commit, {.timeout = commit_timeout});
    if (!committed) {
        co_return Status(committed.status()).in("can't put " + quote(name));
    }
    keep(std::move(transfer.slots));
    co_return TransferResult{transfer.read, transfer.crc};
}

// ---- get ---------------------------------------------------------------------------------------

struct Client::GetTransfer {
    const std::string name;
    Sink& sink;
    const std::uint64_t number = random_number();
    std::vector<Slot> slots;
    Progress progress;
    std::uint64_t chunks = 0;  // Chunks requested.
    std::uint64_t next_offset = 0;
    std::uint64_t landed = 0;
    std::uint64_t size = 0;  // Set by the first reply.
    std::uint32_t crc = 0;
    struct Flight {
        std::unique_ptr<weft::ProtoCall<GetChunkReply>> call;
        const Slot* slot;
    };
    std::deque<Flight> flights{};
};

void Client::request_chunk(GetTransfer& transfer) {
    const Slot& slot = transfer.slots[transfer.chunks++ % transfer.slots.size()];
    GetChunkRequest request;
    request.set_transfer(transfer.number);
    request.set_offset(transfer.next_offset);
    weft::to_proto(slot.region.ref(), request.mutable_into());
    transfer.next_offset += slot.buffer.size();
    transfer.flights.push_back({std::make_unique<weft::ProtoCall<GetChunkReply>>(
                                    channel_, StoreMethods::GetChunk, request, chunk_options),
                                &slot});
}

static Status take(const GetChunkReply& reply, weft::ByteView bytes, std::uint32_t& crc,
                   Sink& sink) {
    crc = crc32c(crc, bytes);
    if (crc != reply.crc32c()) {
        return weft::fail(Code::data_loss, "a chunk arrived damaged: its CRC32C is wrong");
    }
    return sink.write(bytes);
}

// Writes the oldest chunk while the chunks behind it are on the wire.
Task<Status> Client::receive_chunks(GetTransfer& transfer) {
    request_chunk(transfer);  // One request alone: its reply carries the object's size.
    while (!transfer.flights.empty()) {
        const GetTransfer::Flight oldest = std::move(transfer.flights.front());
        transfer.flights.pop_front();
        auto& call = *oldest.call;
        const Result<GetChunkReply> reply = co_await call;
        if (!reply) co_return reply.status();
        const weft::Buffer& buffer = oldest.slot->buffer;
        if (transfer.landed != 0 && reply->size() != transfer.size) {
            co_return weft::fail(Code::data_loss, "the object's size changed while it was read");
        }
        transfer.size = reply->size();
        const std::uint64_t left = transfer.size - transfer.landed;
        if (reply->length() != std::min<std::uint64_t>(left, buffer.size())) {
            co_return weft::fail(Code::data_loss, "the server sent a chunk of the wrong length");
        }
        // One slot still holds data that this side has to write.
        while (transfer.next_offset < transfer.size &&
               transfer.flights.size() + 1 < transfer.slots.size()) {
            request_chunk(transfer);
        }
        const weft::ByteView bytes = buffer.bytes().first(reply->length());
        const auto write = [&] { return take(*reply, bytes, transfer.crc, transfer.sink); };
        if (Status status = co_await weft::offload(write); !status.ok()) co_return status;
        transfer.landed += bytes.size();
        if (transfer.progress) transfer.progress(transfer.landed);
    }
    if (transfer.landed != transfer.size) {
        co_return weft::fail(Code::data_loss, "the object ended before its size");
    }
    co_return Status();
}

Task<Result<TransferResult>> Client::get(std::string name, Sink& sink, Progress progress) {
    Result<std::vector<Slot>> slots = make_slots(weft::Access::write);
    if (!slots) co_return std::move(slots).status();
    GetTransfer transfer{.name = std::move(name),
                         .sink = sink,
                         .slots = *std::move(slots),
                         .progress = std::move(progress)};
    GetRequest request;
    request.set_transfer(transfer.number);
    request.set_name(transfer.name);
    auto get = stub_.Get(request, {.timeout = weft::no_timeout});
    Status status = co_await receive_chunks(transfer);
    if (!status.ok()) {
        transfer.flights.clear();
        if (get.await_ready()) {
            const Result<GetReply> refused = co_await get;
            if (!refused) status = refused.status();
        }
        co_return std::move(status).in("can't get " + quote(transfer.name));
    }
    keep(std::move(transfer.slots));
    const auto finish = [&] { return transfer.sink.finish(); };
    status = co_await weft::offload(finish);
    if (!status.ok()) co_return status;
    co_return TransferResult{transfer.landed, transfer.crc};
}

// ---- extents -----------------------------------------------------------------------------------

namespace {

// Closes an extent when its scope is left, even before the extent's reply has arrived: until its
// lease ends it counts against the client's quota.
class ExtentCloser {
  public:
    explicit ExtentCloser(const StoreClient& stub) : stub_(stub) {
        request_.set_extent(random_number());
    }
    ExtentCloser(const ExtentCloser&) = delete;
    ExtentCloser& operator=(const ExtentCloser&) = delete;
    ~ExtentCloser() {
        if (is_closed_) return;
        stub_.CloseExtent(request_, {.timeout = lease_default, .detached = true},
                          [](const Status&, const CloseExtentReply&) {});
    }

    std::uint64_t extent() const { return request_.extent(); }
    // Closes the extent now and waits for the reply.
    Task<void> close() {
        is_closed_ = (co_await stub_.CloseExtent(request_, {.timeout = lease_default})).ok();
    }

  private:
    const StoreClient stub_;
    CloseExtentRequest request_;
    bool is_closed_ = false;
};

}  // namespace

Task<Result<weft::Buffer>> Client::read_extent(std::string name, std::uint64_t offset,
                                               std::uint32_t length) {
    ExtentCloser closer(stub_);
    OpenExtentRequest request;
    request.set_extent(closer.extent());
    request.set_name(name);
    request.set_offset(offset);
    request.set_length(length);
    const Result<OpenExtentReply> open_reply = co_await stub_.OpenExtent(request);
    if (!open_reply) co_return open_reply.status();
    const Result<weft::RegionRef> ref = weft::from_proto(open_reply->data());
    if (!ref) co_return ref.status();
    Result<weft::Buffer> memory = runtime_->allocate(length);
    if (!memory) co_return std::move(memory).status();
    if (open_reply->length() > length) {
        co_return weft::fail(Code::data_loss, "the server leased more than the requested length");
    }
    const weft::Buffer local = memory->slice(0, open_reply->length());
    if (Status status = co_await weft::get(channel_, *ref, 0, local); !status.ok()) {
        co_return std::move(status).in("can't read the extent of " + quote(name));
    }
    co_await closer.close();
    const auto sum = [&] { return crc32c(0, local.bytes()); };
    if (co_await weft::offload(sum) != open_reply->crc32c()) {
        co_return weft::fail(Code::data_loss, "the extent of " + quote(name) + " arrived damaged");
    }
    co_return local;
}

}  // namespace storage
