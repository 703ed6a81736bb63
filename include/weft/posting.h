// How adapters such as <weft/asio.h> start an operation of a channel from another thread.
#pragma once

#include <cstddef>

#include <weft/channel.h>

namespace weft::detail {

// An empty channel: FAILED_PRECONDITION, or nothing happens. Thread: any.
struct Posting {
    // Reserves room to post an operation with a body of `bytes`; not OK (RESOURCE_EXHAUSTED) when
    // 64 MiB wait already. release() frees the room when the operation arrives on the context's
    // thread.
    static Status admit(const Channel& channel, std::size_t bytes);
    static void release(const Channel& channel, std::size_t bytes);
    // The deadline of an operation that starts now, and the options that keep that deadline when it
    // starts on the context's thread.
    static TimePoint deadline(const Channel& channel, const CallOptions& options);
    static CallOptions until(const Channel& channel, TimePoint deadline, CallOptions options);
};

}  // namespace weft::detail
