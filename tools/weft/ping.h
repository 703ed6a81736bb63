// Pings of one server, for `weft ping` and `weft info URI`.
#pragma once

#include <string>

#include <weft/runtime.h>

namespace weft::tool {

inline constexpr MethodId ping_method("weft.Node/Ping");  // Every server has it.

class Pinger {
  public:
    static Result<Pinger> connect(const std::string& uri);

    // Blocks until the reply or the failure. The first ping includes connecting.
    Result<Duration> ping(Duration timeout);

  private:
    Pinger(Runtime runtime, Channel channel)
        : runtime_(std::move(runtime)), channel_(std::move(channel)) {}

    Runtime runtime_;
    Channel channel_;
};

}  // namespace weft::tool
