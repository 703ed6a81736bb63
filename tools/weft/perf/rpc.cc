// The metric `rpc`: requests and replies of bytes through Channel and Call, the path of every call.
#include <cstring>
#include <vector>

#include "base/codec.h"
#include "perf/background.h"
#include "perf/metrics.h"
#include "perf/service.h"

namespace weft::tool {

namespace {

// Every weft server echoes the request of this method, so any server can be measured.
constexpr MethodId ping("weft.Node/Ping");

class RpcOperation final : public ClientOperation {
  public:
    RpcOperation(PerfClient& client, Loop& loop, const PerfOptions& options)
        : ClientOperation(client, loop),
          method_(options.reply_bytes() == options.size ? ping : perf_reply),
          body_(options.size, std::byte{0x5a}),
          reply_bytes_(options.reply_bytes()) {
        if (method_.hash == perf_reply.hash) {
            base::store(body_.data(), static_cast<std::uint32_t>(reply_bytes_));
        }
    }

    void issue(std::uint32_t slot) override {
        client_.channel().call(method_, body_, {},
                               [this, slot](const Status& status, ByteView reply) {
                                   if (status.ok() && reply.size() == reply_bytes_) [[likely]] {
                                       loop_.succeeded(slot);
                                   } else {
                                       loop_.failed(slot, why_wrong(status, reply));
                                   }
                               });
    }

    // Makes one call and checks every byte of its reply.
    Status check() {
        Result<std::string> reply = client_.call(method_, body_);
        if (!reply) return std::move(reply).status();
        const bool echoed = method_.hash == ping.hash;
        for (std::size_t i = 0; i < reply->size(); ++i) {
            const std::byte expected = echoed ? body_[i] : std::byte{0x5a};
            if (static_cast<std::byte>((*reply)[i]) != expected) {
                return fail(Code::data_loss, "the reply is wrong at byte " + std::to_string(i));
            }
        }
        return reply->size() == reply_bytes_ ? Status() : wrong_size(reply->size());
    }

  private:
    Status wrong_size(std::size_t bytes) const {
        return fail(Code::data_loss, "a reply of " + std::to_string(bytes) + " bytes instead of " +
                                         std::to_string(reply_bytes_));
    }
    Status why_wrong(const Status& status, ByteView reply) const {
        return status.ok() ? wrong_size(reply.size()) : status;
    }

    const MethodId method_;
    std::vector<std::byte> body_;
    const std::size_t reply_bytes_;
};

}  // namespace

Result<Measurement> measure_rpc(const PerfOptions& options, const std::string& uri) {
    if (options.reply_bytes() != options.size && options.size < 4) {
        return fail(Code::invalid_argument,
                    "the request carries --reply-size, so --size must be at least 4");
    }
    Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
    if (!client) return std::move(client).status();
    Loop loop(loop_options(options));
    RpcOperation operation(**client, loop, options);
    if (Status status = operation.check(); !status.ok()) return status;
    if (options.beside.empty()) return run_metered(loop, operation, **client, options);
    Background background(**client, options.beside == "put");
    if (Status status = background.start(options.beside_size); !status.ok()) return status;
    Measurement measured = loop.run(operation);
    if (Status status = background.stop(); !status.ok()) return status;
    measured.beside_mib_per_s = background.mib_per_s();
    return measured;
}

}  // namespace weft::tool
