// The metrics `put` and `get`: one-sided transfers between the client's memory and a region that
// the server exposed once; code of the server does not run.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "perf/metrics.h"

namespace weft::tool {

namespace {

// Memory of the program that weft did not allocate.
Result<Buffer> private_memory(std::size_t bytes) {
    void* memory = std::aligned_alloc(4096, (bytes + 4095) & ~std::size_t{4095});
    if (!memory)
        return fail(Code::resource_exhausted, "this process has no memory for the client's buffer");
    return Buffer::adopt({static_cast<std::byte*>(memory), bytes}, [memory] { std::free(memory); });
}

std::byte pattern_at(std::size_t i) { return static_cast<std::byte>(i * 7 + (i >> 8)); }

class BulkOperation final : public ClientOperation {
  public:
    BulkOperation(PerfClient& client, Loop& loop, bool put)
        : ClientOperation(client, loop), put_(put) {}

    Status prepare(const PerfOptions& options) {
        Result<RegionRef> ref = client_.expose_at_server(options.size);
        if (!ref) return std::move(ref).status();
        remote_ = *ref;
        for (std::uint32_t slot = 0; slot < options.inflight; ++slot) {
            Result<Buffer> local = options.private_memory
                                       ? private_memory(options.size)
                                       : client_.runtime().allocate(options.size);
            if (!local) return std::move(local).status();
            std::memset(local->data(), 0, local->size());
            local_.push_back(*std::move(local));
        }
        return check();
    }

    void issue(std::uint32_t slot) override {
        auto done = [this, slot](const Status& status) {
            if (status.ok()) [[likely]] {
                loop_.succeeded(slot);
            } else {
                loop_.failed(slot, status);
            }
        };
        if (put_) {
            client_.channel().put(remote_, 0, local_[slot], {}, done);
        } else {
            client_.channel().get(remote_, 0, local_[slot], {}, done);
        }
    }

  private:
    // Checks that a get returns the bytes of a put before it.
    Status check() {
        const Bytes bytes = local_[0].bytes();
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_at(i);
        if (Status status = client_.transfer(true, remote_, local_[0]); !status.ok()) return status;
        std::memset(bytes.data(), 0, bytes.size());
        if (Status status = client_.transfer(false, remote_, local_[0]); !status.ok()) {
            return status;
        }
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            if (bytes[i] == pattern_at(i)) continue;
            return fail(Code::data_loss,
                        "a get after a put returned a wrong byte, number " + std::to_string(i));
        }
        return {};
    }

    const bool put_;
    RegionRef remote_;
    std::vector<Buffer> local_;
};

}  // namespace

Result<Measurement> measure_bulk(const PerfOptions& options, const std::string& uri) {
    Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
    if (!client) return std::move(client).status();
    Loop loop(loop_options(options));
    BulkOperation operation(**client, loop, options.metric == "put");
    if (Status status = operation.prepare(options); !status.ok()) return status;
    return run_metered(loop, operation, **client, options);
}

}  // namespace weft::tool
