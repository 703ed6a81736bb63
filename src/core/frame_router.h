// Passes the frames and events of a context to the layers above.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "core/sinks.h"

namespace weft::core {

class FrameRouter {
  public:
    // `rest` receives the frame kinds without a sink.
    explicit FrameRouter(FrameSink& rest) : rest_(rest) { sinks_.fill(&rest); }

    void set_sink(FrameKind kind, FrameSink& sink) {
        WEFT_ASSERT(static_cast<std::size_t>(kind) < frame_kinds);
        sinks_[static_cast<std::size_t>(kind)] = &sink;
        if (std::find(watchers_.begin(), watchers_.end(), &sink) == watchers_.end()) {
            watch(sink);
        }
    }
    void watch(FrameSink& watcher) {
        WEFT_ASSERT(std::ranges::find(watchers_, &watcher) == watchers_.end());
        watchers_.push_back(&watcher);
    }
    void set_rma_sink(RmaSink& sink) {
        WEFT_ASSERT(!rma_sink_);
        rma_sink_ = &sink;
    }

    void dispatch(Peer& peer, FrameHead head, ByteView frame) {
        const auto kind = static_cast<std::size_t>(head.kind);
        if (kind >= frame_kinds) [[unlikely]] {
            return rest_.on_frame(peer, head, frame);
        }
        sinks_[kind]->on_frame(peer, head, frame);
    }
    // The sinks and watchers.
    const std::vector<FrameSink*>& watchers() const { return watchers_; }
    RmaSink* rma_sink() const { return rma_sink_; }

    // The current callback returns first, then the connection of the peer is closed with `why`.
    void fail(PeerRef peer, Status why) {
        WEFT_DCHECK(peer && !why.ok());
        failed_ = peer;
        why_failed_ = std::move(why);
    }
    bool has_failed() const { return bool(failed_); }
    std::pair<PeerRef, Status> take_failed() {
        WEFT_DCHECK(has_failed());
        return {std::exchange(failed_, {}), std::exchange(why_failed_, {})};
    }
    // Forked inside a turn: the next check after a callback ends the process.
    void fail_always() { failed_.at = reinterpret_cast<Peer*>(this); }

  private:
    FrameSink& rest_;
    std::array<FrameSink*, frame_kinds> sinks_;
    std::vector<FrameSink*> watchers_;
    RmaSink* rma_sink_ = nullptr;
    PeerRef failed_;
    Status why_failed_;
};

}  // namespace weft::core
