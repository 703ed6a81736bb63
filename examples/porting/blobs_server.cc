// blobs_server ADDRESS JOURNAL: prints its address and serves until SIGTERM.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>

#include <weft/offload.h>
#include <weft/runtime.h>

#include "blobs.weft.h"
#include "changes.h"

using namespace weft;

constexpr std::size_t blob_bytes_max = 64 << 20;

struct Blobs final : porting::BlobsService {
    Runtime* runtime = nullptr;
    std::map<std::string, Buffer> blobs;  // Used by the runtime's thread only: no lock.
    Changes changes;
    std::mutex writing;  // offload() runs on several threads.
    std::ofstream journal;

    Status Stat(Call&, const porting::Name& in, porting::Info& out) override {
        const auto found = blobs.find(in.name());
        if (found == blobs.end()) return rejected(Code::not_found, "no blob " + in.name());
        out.set_name(in.name());
        out.set_bytes(found->second.size());
        return {};
    }

    Task<Status> Append(Call&, const porting::Record& in, porting::Info& out) override {
        const auto write = [&] {
            const std::lock_guard lock(writing);
            journal << in.name() << ' ' << in.data().size() << std::endl;
            return journal.good();
        };
        if (!co_await offload(write)) co_return fail(Code::internal, "can't write the journal");
        const Buffer old = find(in.name());
        Result<Buffer> grown = runtime->allocate(old.size() + in.data().size());
        if (!grown) co_return std::move(grown).status();
        std::copy_n(old.data(), old.size(), grown->data());
        std::memcpy(grown->data() + old.size(), in.data().data(), in.data().size());
        keep(in.name(), *grown, out);
        co_return Status();
    }

    Task<Status> Download(Call& call, const porting::Extent& in, porting::Info& out) override {
        const Result<RegionRef> into = from_proto(in.memory());
        if (!into) co_return rejected(Code::invalid_argument, "no memory to write to");
        const Buffer blob = find(in.name());  // Stays valid when the map changes.
        if (in.offset() > blob.size()) co_return rejected(Code::out_of_range, "past the end");
        const auto bytes = std::min<std::size_t>(into->length, blob.size() - in.offset());
        out.set_bytes(bytes);
        co_return co_await put(call, *into, 0, blob.slice(in.offset(), bytes));
    }

    Task<Status> Upload(Call& call, const porting::Extent& in, porting::Info& out) override {
        const Result<RegionRef> from = from_proto(in.memory());
        if (!from) co_return rejected(Code::invalid_argument, "no memory to read");
        if (from->length > blob_bytes_max) co_return rejected(Code::out_of_range, "too large");
        const Result<Buffer> blob = runtime->allocate(from->length);
        if (!blob) co_return rejected(Code::resource_exhausted, "no room");
        if (Status got = co_await get(call, *from, 0, *blob); !got.ok()) co_return got;
        keep(in.name(), *blob, out);
        co_return Status();
    }

    Task<Status> Watch(Call& call, const porting::Info& in, porting::Info& out) override {
        call.on_cancel([this] { changes.tell(); });
        call.on_drain([this] { changes.tell(); });
        while (find(in.name()).size() == in.bytes() && !call.draining()) {
            if (call.cancelled()) co_return fail(Code::cancelled, "the caller cancelled");
            co_await changes.next();
        }
        out.set_name(in.name());
        out.set_bytes(find(in.name()).size());
        co_return Status();
    }

  private:
    // Empty for a blob that was never written.
    Buffer find(const std::string& name) const {
        const auto found = blobs.find(name);
        return found == blobs.end() ? Buffer() : found->second;
    }

    void keep(const std::string& name, const Buffer& blob, porting::Info& out) {
        blobs[name] = blob;
        out.set_name(name);
        out.set_bytes(blob.size());
        changes.tell();
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: blobs_server ADDRESS JOURNAL\n", 64;
    Blobs service;  // The service outlives the runtime that serves it.
    service.journal.open(argv[2], std::ios::app);
    Runtime runtime =
        Runtime::create({.argument_bytes_max = 4 << 20, .drain_timeout = 10s}).value();
    service.runtime = &runtime;
    Status status = runtime.serve(service, argv[1]);
    if (status.ok()) {
        std::cout << runtime.addresses().front() << std::endl;
        status = runtime.run();
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
