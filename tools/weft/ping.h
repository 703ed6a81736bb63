// One server, asked whether it lives. What `weft ping` and `weft info URI` share.
#pragma once

#include <string>

#include <weft/runtime.h>

namespace weft::tool {

inline constexpr MethodId ping_method("weft.Node/Ping");  // Which every server has.

class Pinger {
  public:
    static Result<Pinger> connect(const std::string& uri);

    // Blocks until the answer or the failure. The first one includes the connecting.
    Result<Duration> ping(Duration timeout);

  private:
    Pinger(Runtime runtime, Channel channel)
        : runtime_(std::move(runtime)), channel_(std::move(channel)) {}

    Runtime runtime_;
    Channel channel_;
};

}  // namespace weft::tool
