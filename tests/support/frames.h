// Frames as bytes, sent unchanged or after they were corrupted.
#pragma once

#include <cstring>
#include <vector>

#include "base/codec.h"
#include "core/frame.h"

namespace weft::test {

using Frame = std::vector<std::byte>;
using Frames = std::vector<Frame>;

// A whole frame: header, body, and their length.
template <class Header>
Frame frame_of(Header header, ByteView body = {}) {
    Frame frame(sizeof header + body.size());
    header.head.bytes = static_cast<std::uint32_t>(frame.size());
    base::store(frame.data(), header);
    if (!body.empty()) std::memcpy(frame.data() + sizeof header, body.data(), body.size());
    return frame;
}

inline core::FrameHead head_of(ByteView frame) { return base::load<core::FrameHead>(frame.data()); }

}  // namespace weft::test
