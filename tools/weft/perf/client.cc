#include <algorithm>
#include <array>

#include "api/runtime_impl.h"
#include "base/codec.h"
#include "perf/device_counters.h"
#include "perf/metrics.h"
#include "perf/service.h"

namespace weft::tool {

Result<std::unique_ptr<PerfClient>> PerfClient::connect(const PerfOptions& options,
                                                        const std::string& uri) {
    RuntimeOptions with;
    with.manual = true;
    with.wait = options.wait;
    with.verbs_without = options.without;
    Result<Runtime> runtime = Runtime::create(with);
    if (!runtime) return std::move(runtime).status();
    Result<Channel> channel = runtime->connect(uri);
    if (!channel) return std::move(channel).status();
    return std::unique_ptr<PerfClient>(new PerfClient(*std::move(runtime), *std::move(channel)));
}

// Every call has a deadline, so that this ends.
static bool always(Runtime& runtime, const bool& done) {
    return runtime.turn_until([&done] { return done; }, Duration::max());
}

Result<std::string> PerfClient::call(const MethodId& method, ByteView body) {
    bool done = false;
    Status outcome;
    std::string answer;
    channel_.call(method, body, {}, [&](const Status& status, ByteView reply) {
        outcome = status;
        answer = as_text(reply);
        done = true;
    });
    always(runtime_, done);
    if (!outcome.ok()) return outcome;
    return answer;
}

Result<RegionRef> PerfClient::expose_at_server(std::uint64_t bytes) {
    std::array<std::byte, 8> size;
    base::store(size.data(), bytes);
    Result<std::string> reply = call(perf_expose, size);
    if (!reply) return std::move(reply).status();
    return RegionRef::decode(as_bytes(*reply));
}

Status PerfClient::transfer(bool put, const RegionRef& remote, const Buffer& local) {
    bool done = false;
    Status outcome;
    auto completion = [&](const Status& status) {
        outcome = status;
        done = true;
    };
    if (put) {
        channel_.put(remote, 0, local, {}, completion);
    } else {
        channel_.get(remote, 0, local, {}, completion);
    }
    always(runtime_, done);
    return outcome;
}

void PerfClient::turn_and_sleep(Duration longest) {
    node_of(runtime_).driver.turn_and_wait(longest);
}

LoopOptions loop_options(const PerfOptions& options) {
    const Duration window = options.window();
    return {options.inflight, options.wait, std::min<Duration>(100ms, window), window};
}

Result<Measurement> run_metered(Loop& loop, Operation& operation, PerfClient& client,
                                const PerfOptions& options) {
    if (!options.device_counters) return loop.run(operation);
    DeviceCounterMeter meter(client);
    if (Status status = meter.begin(); !status.ok()) return status;
    Measurement measured = loop.run(operation);
    Result<std::vector<CounterRow>> rows = meter.end(std::max<std::uint64_t>(measured.started, 1));
    if (!rows) return std::move(rows).status();
    measured.device_counters = *std::move(rows);
    return measured;
}

}  // namespace weft::tool
