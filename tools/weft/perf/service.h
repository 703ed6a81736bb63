// What a server offers to be measured, beside weft.Node/Ping that every server has.
#pragma once

#include <map>

#include <weft/runtime.h>

namespace weft::tool {

// A request whose first 4 bytes (little endian) say how long the reply shall be.
inline constexpr MethodId perf_reply("weft.Perf/Reply");
// The longest reply that a client may ask for, in bytes: a peer can make the server hold so much.
inline constexpr std::uint32_t perf_reply_bytes_max = 64u << 20;
// A request of 8 bytes: the size of the region to expose. The reply is its RegionRef.
inline constexpr MethodId perf_expose("weft.Perf/Expose");

// An empty request; the reply is a line for each count of the ledger, empty without a card.
inline constexpr MethodId perf_ledger("weft.Perf/Ledger");

// A rank (u32) and a group's view: the server takes part as that rank from then on.
inline constexpr MethodId perf_join("weft.Perf/Join");
// What a broadcast tells each rank; the reply is empty.
inline constexpr MethodId perf_tell("weft.Perf/Tell");

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
