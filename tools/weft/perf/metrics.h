// The metrics that go through a runtime, each in its own file.
#pragma once

#include <memory>
#include <string>

#include <weft/result.h>
#include <weft/runtime.h>

#include "perf/loop.h"
#include "perf/options.h"

namespace weft::tool {

// A runtime that the measuring thread turns itself, and a channel to the server under measurement.
class PerfClient {
  public:
    static Result<std::unique_ptr<PerfClient>> connect(const PerfOptions& options,
                                                       const std::string& uri);

    // Blocks. Errors: the call's.
    Result<std::string> call(const MethodId& method, ByteView body);
    // Blocks: the server exposes a region of that size for measurements.
    Result<RegionRef> expose_at_server(std::uint64_t bytes);
    // Blocks: one transfer of all of `local` at the start of `remote`.
    Status transfer(bool put, const RegionRef& remote, const Buffer& local);

    std::uint32_t turn() { return runtime_.turn(); }
    void turn_and_sleep(Duration longest);
    Runtime& runtime() { return runtime_; }
    const Channel& channel() const { return channel_; }

  private:
    PerfClient(Runtime runtime, Channel channel)
        : runtime_(std::move(runtime)), channel_(std::move(channel)) {}

    Runtime runtime_;
    Channel channel_;
};

// An operation that progresses by turns of a PerfClient.
class ClientOperation : public Operation {
  public:
    explicit ClientOperation(PerfClient& client, Loop& loop) : client_(client), loop_(loop) {}
    std::uint32_t turn() final { return client_.turn(); }
    void turn_and_sleep(Duration longest) final { client_.turn_and_sleep(longest); }

  protected:
    PerfClient& client_;
    Loop& loop_;
};

LoopOptions loop_options(const PerfOptions& options);
// Runs the loop; with --ledger, also counts the operations of both devices.
Result<Measurement> run_metered(Loop& loop, Operation& operation, PerfClient& client,
                                const PerfOptions& options);

// Each first checks the bytes that it receives, then measures.
// Errors: of that check; those of the measured operations are in the Measurement.
Result<Measurement> measure_rpc(const PerfOptions& options, const std::string& uri);
Result<Measurement> measure_proto(const PerfOptions& options, const std::string& uri);
// Starts the ranks itself.
Result<Measurement> measure_broadcast(const PerfOptions& options);
Result<Measurement> measure_bulk(const PerfOptions& options, const std::string& uri);

}  // namespace weft::tool
