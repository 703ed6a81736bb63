// A hedged read of two replicas: the second call starts when the first replica is slow.
#pragma once

#include <weft/combine.h>

#include "waiting.weft.h"

inline weft::Task<weft::Result<demo::Blob>> read_after(weft::Duration pause, weft::Channel replica,
                                                       demo::BlobName name) {
    if (weft::Status slept = co_await weft::sleep_for(pause); !slept.ok()) co_return slept;
    co_return co_await demo::BlobsClient(replica).Read(name);
}

// The first reply of the two; if that is a failure, the reply of the other replica.
inline weft::Task<weft::Result<demo::Blob>> hedged_read(weft::Channel near, weft::Channel far,
                                                        demo::BlobName name) {
    using namespace std::chrono_literals;
    auto first = co_await when_any(read_after(0ms, near, name), read_after(10ms, far, name));
    if (first.value()) co_return std::move(first).value();
    const weft::Channel other = first.index() == 0 ? far : near;
    co_return co_await read_after(0ms, other, name);
}
