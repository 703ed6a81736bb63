// The operations that tests of awaits wait for: each as a task, through any channel or group.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include <weft/protobuf_group.h>

#include "support/echo.h"

namespace weft::test::awaited {

inline Task<Status> call(Channel channel, MethodId method, Duration timeout) {
    const std::vector<std::byte> body(8);
    co_return (co_await weft::call(channel, method, body, {.timeout = timeout})).status();
}

// A reference to memory that no process exposes.
inline RegionRef some_region() {
    RegionRef ref;
    ref.length = 64;
    return ref;
}
inline Buffer some_memory() {
    const auto memory = std::make_shared<std::array<std::byte, 64>>();
    return Buffer::adopt(*memory, [memory] {});
}
inline Task<Status> get(Channel channel, Duration timeout) {
    const Buffer local = some_memory();
    co_return co_await weft::get(channel, some_region(), 0, local, {.timeout = timeout});
}
inline Task<Status> put(Channel channel, Duration timeout) {
    const Buffer local = some_memory();
    co_return co_await weft::put(channel, some_region(), 0, local, {.timeout = timeout});
}

inline Task<Status> collective(Group group, Duration timeout) {
    const echo::v1::EchoGroupClient client(group);
    GroupCallOptions options;
    options.timeout = timeout;
    echo::v1::EchoRequestText request;
    co_return (co_await client.Everywhere(request, options)).status();
}

}  // namespace weft::test::awaited
