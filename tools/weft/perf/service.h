// The methods of a server that is measured, beside weft.Node/Ping of every server.
#pragma once

#include <map>
#include <mutex>

#include <weft/runtime.h>

namespace weft::tool {

// The first 4 bytes of the request (little endian) are the length of the reply.
inline constexpr MethodId perf_reply("weft.Perf/Reply");
// The longest reply in bytes: a bound on the memory that a request can make the server hold.
inline constexpr std::uint32_t perf_reply_bytes_max = 64u << 20;
// A request of 8 bytes: the size of the region to expose. The reply is its RegionRef.
inline constexpr MethodId perf_expose("weft.Perf/Expose");

// Echoes the request after its first 4 bytes (little endian) as nanoseconds of computation.
inline constexpr MethodId perf_work("weft.Perf/Work");
inline constexpr Duration perf_work_max = std::chrono::milliseconds(100);

// An empty request; the reply has a line for each device counter; empty without a device.
inline constexpr MethodId perf_device_counters("weft.Perf/DeviceCounters");

// The request is a rank (u32) and a group's view: the server joins the group as that rank.
inline constexpr MethodId perf_join("weft.Perf/Join");
// The collective method of a broadcast; the reply is empty.
inline constexpr MethodId perf_broadcast("weft.Perf/Broadcast");

// Thread: any; one serves all contexts.
class PerfService final : public Service {
  public:
    explicit PerfService(Runtime& runtime) : runtime_(runtime) {}
    void register_methods(MethodRegistrar& registrar) override;

  private:
    struct Exposed {
        Buffer memory;
        Region region;
    };
    Result<RegionRef> expose(std::uint64_t bytes);
    Status join(ByteView request);

    Runtime& runtime_;
    std::mutex mutex_;
    std::map<std::uint64_t, Exposed> exposed_;  // By size: clients share them. Guarded by it.
};

}  // namespace weft::tool
