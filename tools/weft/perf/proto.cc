// The metric `proto`: a generated stub and a generated service, messages parsed and serialised at
// both ends. `size` is that of the bytes field, so the message is a few bytes longer.
#include "perf/proto.h"

#include <algorithm>

#include "bench.weft.h"
#include "perf/metrics.h"
#include "perf/service.h"

namespace weft::tool {

namespace {

class BenchServer final : public bench::BenchService {
  public:
    Status Echo(Call&, const bench::Payload& in, bench::Payload& out) override {
        if (in.reply_bytes() > perf_reply_bytes_max) {
            return fail(Code::invalid_argument, "the reply size is out of range");
        }
        if (in.data().size() == in.reply_bytes()) {
            out.set_data(in.data());
        } else {
            const char fill = in.data().empty() ? char{0} : in.data().front();
            out.mutable_data()->assign(in.reply_bytes(), fill);
        }
        return {};
    }
};

class ProtoOperation final : public ClientOperation {
  public:
    ProtoOperation(PerfClient& client, Loop& loop, const PerfOptions& options)
        : ClientOperation(client, loop), stub_(client.channel()) {
        request_.set_data(std::string(options.size, 'w'));
        request_.set_reply_bytes(options.reply_bytes());
    }

    void issue(std::uint32_t slot) override {
        stub_.Echo(request_, {}, [this, slot](const Status& status, const bench::Payload& reply) {
            if (status.ok() && reply.data().size() == request_.reply_bytes()) [[likely]] {
                loop_.succeeded(slot);
            } else {
                loop_.failed(slot, status.ok() ? wrong() : status);
            }
        });
    }

    // Makes one call and checks every byte of its reply.
    Status check() {
        bool done = false;
        Status outcome;
        stub_.Echo(request_, {}, [&](const Status& status, const bench::Payload& reply) {
            const std::string& data = reply.data();
            const char fill = request_.data().empty() ? char{0} : 'w';
            const bool good =
                data.size() == request_.reply_bytes() &&
                std::all_of(data.begin(), data.end(), [&](char c) { return c == fill; });
            outcome = status.ok() && !good ? wrong() : status;
            done = true;
        });
        client_.runtime().turn_until([&] { return done; }, Duration::max());
        return outcome;
    }

  private:
    static Status wrong() { return fail(Code::data_loss, "the reply does not match the request"); }

    bench::BenchClient stub_;
    bench::Payload request_;
};

}  // namespace

std::unique_ptr<Service> make_bench_service() { return std::make_unique<BenchServer>(); }

Result<Measurement> measure_proto(const PerfOptions& options, const std::string& uri) {
    Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
    if (!client) return std::move(client).status();
    Loop loop(loop_options(options));
    ProtoOperation operation(**client, loop, options);
    if (Status status = operation.check(); !status.ok()) return status;
    return run_metered(loop, operation, **client, options);
}

}  // namespace weft::tool
