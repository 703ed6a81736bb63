// A bare endpoint on a rig's simulated network: it completes the handshake as an honest peer and
// then sends frames that no client or server of weft would send.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "na/arena.h"
#include "rpc/channel_impl.h"
#include "support/catch.h"
#include "support/frames.h"
#include "support/hex.h"
#include "support/numbers.h"
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

    // Connects to sim://name, completes the handshake and begins a session.
    void connect(const std::string& name) {
        connect_bare(name);
        session = {rig_.random->next(), rig_.random->next()};
        REQUIRE(send_as_is(numbers.begin(session.high, session.low)));
        wait();
    }
    // The same without the session.
    void connect_bare(const std::string& name) {
        peer = endpoint_->connect({"sim", name, "", 0}, rig_.clock->now()).value();
        lost = false;
        wait();
        REQUIRE(endpoint_->info(peer) != nullptr);
    }

    // One transport message, its requests numbered; false: the connection is lost.
    bool send(ByteView message) {
        if (!send_as_is(numbers.peek(message))) return false;
        numbers.number(message);
        return true;
    }
    bool send_as_is(ByteView message) {
        std::byte* to = lost ? nullptr : endpoint_->reserve(peer, message.size());
        if (!to) return false;
        std::memcpy(to, message.data(), message.size());
        endpoint_->commit(message.size());
        endpoint_->flush();
        return true;
    }

    // Ends the connection.
    void close() {
        endpoint_->close(peer);
        endpoint_->flush();
        lost = true;
    }

    // Lets all messages in flight arrive, also here, and a handshake complete.
    void wait(Duration time = 50us) {
        rig_.run_for(time);
        while (turn()) rig_.run_for(50us);
    }

    // Waits until a client with a lost connection reconnects, confirms its session, and returns the
    // frames that the client sends then.
    std::vector<Frame> resume() {
        for (int i = 0; i < 10; ++i) wait(10ms);
        rpc::SessionGrantFrame grant;
        grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::resumed);
        grant.slots = grant.window = rpc::initial_slots;
        REQUIRE(send_as_is(frame_of(grant)));
        take_about_sessions();
        for (int i = 0; i < 3; ++i) wait();
        return take_about_sessions();
    }

    // The frames received since the last take, in order: those about sessions apart from all
    // others.
    std::vector<Frame> take() { return std::exchange(frames_, {}); }
    std::vector<Frame> take_about_sessions() { return std::exchange(about_sessions_, {}); }

    na::Incarnation incarnation;
    na::PeerId peer;  // The last peer that connected, or the target of connect().
    bool lost = false;
    std::string why;
    Numbers numbers;
    rpc::SessionId session;
    bool answers_pings = false;
    bool grants = true;  // Grants each session that the peer begins.

  private:
    // True: a handshake made progress and continues at the other side.
    bool turn() {
        bool is_greeting = false;
        std::array<na::Event, 64> events;
        const std::size_t count = endpoint_->poll(events, rig_.clock->now());
        for (std::size_t i = 0; i < count; ++i) {
            const na::Event& event = events[i];
            if (event.kind == na::EventKind::message) {
                core::for_each_frame(event.bytes, [&](const core::FrameHead& head, ByteView frame) {
                    std::vector<Frame>& to =
                        is_about_sessions(head.kind) ? about_sessions_ : frames_;
                    to.emplace_back(frame.begin(), frame.end());
                    if (head.kind == core::FrameKind::ping && answers_pings && event.peer == peer) {
                        const core::FrameHead pong{core::FrameKind::pong, 0, head.aux, sizeof head};
                        send_as_is({reinterpret_cast<const std::byte*>(&pong), sizeof pong});
                    }
                    const bool begins = head.kind == core::FrameKind::session && head.flags == 0;
                    if (begins && grants && event.peer == peer) {
                        rpc::SessionGrantFrame grant;
                        grant.slots = grant.window = rpc::initial_slots;
                        is_greeting |= send_as_is(frame_of(grant));
                    }
                    return true;
                });
            } else if (event.kind == na::EventKind::peer_up && event.incoming) {
                peer = event.peer;
                lost = false;
                is_greeting = true;
            } else if (event.kind == na::EventKind::peer_down && event.peer == peer) {
                lost = true;
                why = endpoint_->error();
            }
        }
        endpoint_->flush();
        return is_greeting;
    }

    SimRig& rig_;
    base::Log log_{LogLevel::off};
    std::shared_ptr<na::Arena> arena_ = na::Arena::make(1 << 20);
    std::unique_ptr<na::Provider> provider_;
    std::unique_ptr<na::Endpoint> endpoint_;
    std::vector<Frame> frames_, about_sessions_;
};

}  // namespace weft::test
