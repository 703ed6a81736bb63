// A bare endpoint on a real transport: it completes the handshake and then sends frames that no
// client or server of weft would send. (Over the simulator: raw_peer.h.)
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/random.h"
#include "na/address.h"
#include "na/arena.h"
#include "na/provider.h"
#include "support/catch.h"
#include "support/frames.h"
#include "support/numbers.h"
#include "support/test_timeout.h"

namespace weft::test {

class BarePeer {
  public:
    BarePeer(na::Provider& provider, const std::string& uri)
        : address_(na::parse_address(uri).value()),
          endpoint_(provider.open(nullptr, {random_, log_, *arena_, incarnation_, "", 16}, now())
                        .value()) {}

    // Connects and begins a session. False: refused; error() returns the reason.
    bool connect() {
        return connect_bare() && send_as_is(numbers_.begin(random_.next(), random_.next()));
    }
    bool connect_bare() {
        peer_ = endpoint_->connect(address_, now()).value();
        up_ = down_ = false;
        REQUIRE(poll_until([&] { return up_ || down_; }));
        return up_;
    }
    bool is_lost() const { return down_; }
    Code code() const { return code_; }  // The code of the loss.
    const std::string& error() const { return error_; }

    // Sends one message; false: no room now. Reads nothing.
    bool say(ByteView message) {
        if (!say_as_is(numbers_.peek(message))) return false;
        numbers_.number(message);
        return true;
    }
    bool say_as_is(ByteView message) {
        std::byte* to = endpoint_->reserve(peer_, message.size());
        if (!to) return false;
        std::memcpy(to, message.data(), message.size());
        endpoint_->commit(message.size());
        endpoint_->flush();
        return true;
    }
    // The same, but reads while there is no room; false: the connection is lost.
    bool send(ByteView message) {
        return poll_until([&] { return down_ || say(message); }) && !down_;
    }
    bool send_as_is(ByteView message) {
        return poll_until([&] { return down_ || say_as_is(message); }) && !down_;
    }
    // Runs a put or get and returns how it ended.
    Code run(na::RmaItem item) {
        item.peer = peer_;
        item.cookie = ++last_cookie_;
        REQUIRE(poll_until([&] { return endpoint_->post({&item, 1}) == 1; }));
        endpoint_->flush();
        REQUIRE(poll_until([&] { return rma_done_.contains(item.cookie); }));
        return rma_done_.at(item.cookie);
    }

    template <class Done>
    bool poll_until(Done&& done, Duration limit = test_timeout) {
        const TimePoint end = now() + limit;
        while (!done()) {
            if (now() > end) return false;
            poll();
        }
        return true;
    }
    // The frames received since the last take, in order. Pings are answered and left out.
    Frames take() { return std::exchange(frames_, {}); }
    std::size_t frames() const { return frames_.size(); }
    na::Arena& arena() { return *arena_; }
    const na::Incarnation& incarnation() const { return incarnation_; }
    static TimePoint now() { return std::chrono::steady_clock::now(); }

  private:
    void poll() {
        std::array<na::Event, 16> events;
        const std::size_t count = endpoint_->poll(events, now());
        for (std::size_t i = 0; i < count; ++i) {
            const na::Event& event = events[i];
            if (event.kind == na::EventKind::message) {
                core::for_each_frame(event.bytes, [&](const core::FrameHead& head, ByteView frame) {
                    if (is_about_sessions(head.kind)) return true;
                    if (head.kind == core::FrameKind::ping) {
                        const core::FrameHead pong{core::FrameKind::pong, 0, head.aux, sizeof head};
                        (void)say_as_is({reinterpret_cast<const std::byte*>(&pong), sizeof pong});
                        return true;
                    }
                    frames_.emplace_back(frame.begin(), frame.end());
                    return true;
                });
            } else if (event.kind == na::EventKind::peer_up) {
                up_ = true;
            } else if (event.kind == na::EventKind::rma_done) {
                rma_done_[event.cookie] = event.code;
            } else if (event.kind == na::EventKind::peer_down) {
                down_ = true;
                code_ = event.code;
                error_ = endpoint_->error();
            }
        }
        endpoint_->flush();
    }

    base::KernelRandom random_;
    const na::Incarnation incarnation_{random_.next(), random_.next()};
    base::Log log_{LogLevel::off};
    std::shared_ptr<na::Arena> arena_ = na::Arena::make(4 << 20);
    const na::Address address_;
    std::unique_ptr<na::Endpoint> endpoint_;
    na::PeerId peer_;
    bool up_ = false, down_ = false;
    Code code_ = Code::ok;
    std::string error_;
    Frames frames_;
    Numbers numbers_;
    std::uint64_t last_cookie_ = 0;
    std::map<std::uint64_t, Code> rma_done_;
};

}  // namespace weft::test
