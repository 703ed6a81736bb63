// The methods of a server that is measured, beside weft.Node/Ping of every server.
#pragma once

#include <map>

#include <weft/runtime.h>

namespace weft::tool {

// The first 4 bytes of the request (little endian) are the length of the reply.
inline constexpr MethodId perf_reply("weft.Perf/Reply");
// The longest reply in bytes: a bound on the memory that a request can make the server hold.
inline constexpr std::uint32_t perf_reply_bytes_max = 64u << 20;
// A request of 8 bytes: the size of the region to expose. The reply is its RegionRef.
inline constexpr MethodId perf_expose("weft.Perf/Expose");

// An empty request; the reply has a line for each device counter; empty without a device.
inline constexpr MethodId perf_device_counters("weft.Perf/DeviceCounters");

// The request is a rank (u32) and a group's view: the server joins the group as that rank.
inline constexpr MethodId perf_join("weft.Perf/Join");
// The collective method of a broadcast; the reply is empty.
inline constexpr MethodId perf_broadcast("weft.Perf/Broadcast");

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
    std::map<std::uint64_t, Exposed> exposed_;  // By size: clients share them.
};

}  // namespace weft::tool
