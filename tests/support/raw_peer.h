// A bare endpoint on a rig's simulated network: it greets as an honest one does and then says what
// no client or server of weft would.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "na/arena.h"
#include "support/catch.h"
#include "support/frames.h"
#include "support/hex.h"
#include "support/sim_rig.h"

namespace weft::test {

class RawPeer {
  public:
    // Empty name: connects only.
    explicit RawPeer(SimRig& rig, const std::string& name = "")
        : rig_(rig), provider_(na::sim::make_sim_provider(rig.world)) {
        const na::Address address{"sim", name, "", 0};
        incarnation = {rig.random->next(), rig.random->next()};
        endpoint_ =
            provider_
                ->open(name.empty() ? nullptr : &address,
                       {*rig.random, log_, *arena_, incarnation, "", 1024}, rig.clock->now())
                .value();
    }

    // Connects to sim://name, and lets the handshake end.
    void connect(const std::string& name) {
        peer = endpoint_->connect({"sim", name, "", 0}, rig_.clock->now()).value();
        lost = false;
        wait();
        REQUIRE(endpoint_->info(peer) != nullptr);
    }

    // One transport message, as it is; false: the connection is gone.
    bool send(ByteView message) {
        std::byte* to = lost ? nullptr : endpoint_->reserve(peer, message.size());
        if (!to) return false;
        std::memcpy(to, message.data(), message.size());
        endpoint_->commit(message.size());
        endpoint_->flush();
        return true;
    }

    // Lets everything that is under way arrive, here too.
    void wait(Duration time = 50us) {
        rig_.run_for(time);
        turn();
    }

    // The frames that came in since the last take, one after the other.
    std::vector<Frame> take() { return std::exchange(frames_, {}); }

    na::Incarnation incarnation;
    na::PeerId peer;  // Who connected last, or was connected to.
    bool lost = false;
    std::string why;

  private:
    void turn() {
        std::array<na::Event, 64> events;
        const std::size_t count = endpoint_->poll(events, rig_.clock->now());
        for (std::size_t i = 0; i < count; ++i) {
            const na::Event& event = events[i];
            if (event.kind == na::EventKind::message) {
                core::for_each_frame(event.bytes, [&](const core::FrameHead&, ByteView frame) {
                    frames_.emplace_back(frame.begin(), frame.end());
                    return true;
                });
            } else if (event.kind == na::EventKind::peer_up && event.incoming) {
                peer = event.peer;
                lost = false;
            } else if (event.kind == na::EventKind::peer_down && event.peer == peer) {
                lost = true;
                why = endpoint_->error();
            }
        }
        endpoint_->flush();
    }

    SimRig& rig_;
    base::Log log_{LogLevel::off};
    std::shared_ptr<na::Arena> arena_ = na::Arena::make(1 << 20);
    std::unique_ptr<na::Provider> provider_;
    std::unique_ptr<na::Endpoint> endpoint_;
    std::vector<Frame> frames_;
};

}  // namespace weft::test
