// Frames that no client of weft sends, over each real transport: each costs its own connection, and
// the server keeps serving. tests/unit/rpc/hostile_frames_test.cc tests the validation of frames
// over the simulator.
#include <unistd.h>

#include <string>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "rpc/header.h"
#include "support/bare_peer.h"
#include "support/catch.h"
#include "support/frames.h"
#include "support/hex.h"
#include "support/hold_server.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

namespace {

constexpr MethodId echo = HoldServer::echo;
constexpr MethodId hold = HoldServer::hold;

// Whether one message costs its own connection. Copies of it follow: in a stream a frame that is
// too long is detected only when the next one is missing.
bool loses_by(BarePeer& stranger, ByteView message) {
    REQUIRE(stranger.connect());
    return stranger.poll_until([&] {
        (void)stranger.say(message);
        return stranger.is_lost();
    });
}

Frame request(const MethodId& method) {
    rpc::RequestHeader header;
    header.call = {1, 1};
    header.remaining_us = 60'000'000;
    header.method = method.hash;
    return frame_of(header, as_bytes("body"));
}

Frames bad_messages() {
    const Frame good = request(echo);
    const auto with_head = [&](auto change) {
        Frame frame = good;
        core::FrameHead head = head_of(frame);
        change(head);
        base::store(frame.data(), head);
        return frame;
    };
    Frame twice = request(hold);
    const Frame again = twice;
    twice.resize(core::padded(twice.size()));
    twice.insert(twice.end(), again.begin(), again.end());
    rpc::ReplyHeader impossible;
    impossible.head.aux = 0xffff;
    rpc::CancelHeader cancel;
    return {
        with_head([](core::FrameHead& head) { head.kind = FrameKind{200}; }),
        with_head([](core::FrameHead& head) { head.kind = FrameKind::none; }),
        with_head([](core::FrameHead& head) { head.flags = 1; }),
        with_head([](core::FrameHead& head) { head.aux = 8; }),
        with_head([](core::FrameHead& head) { head.bytes = 0; }),
        with_head([](core::FrameHead& head) { head.bytes += 8; }),
        with_head([](core::FrameHead& head) { head.bytes = 0xffffffff; }),
        Frame(good.begin(), good.begin() + 5),
        Frame(good.begin(), good.begin() + 20),
        frame_of(impossible),
        frame_of(cancel, as_bytes("more")),
        twice,
    };
}

void check_serves(Runtime& client, const std::string& uri) {
    Status status = fail(Code::unknown, "no completion");
    bool done = false;
    Channel channel = client.connect(uri).value();
    channel.call(echo, as_bytes("still there"), {.timeout = test_timeout},
                 [&](const Status& with, ByteView) {
                     status = with;
                     done = true;
                 });
    REQUIRE(client.turn_until([&] { return done; }, test_timeout));
    INFO(status.to_string());
    REQUIRE(status.ok());
}

void check_transport(const std::string& uri) {
    const api::RuntimeParts parts = api::production_parts();
    if (!is_in_this_build(uri)) return;
    const auto provider = parts.providers->find(uri.substr(0, uri.find(':')));
    HoldServer service;
    Runtime server = Runtime::create({.log_level = LogLevel::off}).value();
    REQUIRE(server.serve(service, uri).ok());
    const std::string address = server.addresses().front();
    Runtime client = Runtime::create({.manual = true}).value();
    BarePeer stranger(**provider, address);
    // In a stream the next bytes complete a frame that was cut short.
    const bool is_stream = uri.starts_with("tcp") || uri.starts_with("unix");
    for (const Frame& message : bad_messages()) {
        const bool cut_short = message.size() < sizeof(core::FrameHead) ||
                               head_of(message).bytes == request(echo).size();
        if (is_stream && cut_short && message.size() < request(echo).size()) continue;
        INFO(hex_of(message));
        REQUIRE(loses_by(stranger, message));
        check_serves(client, address);
    }
    node_of(server).on_context([&] { service.held.clear(); });
}

}  // namespace

TEST_CASE("bad frames over sm cost their connection and nothing else") {
    check_transport("sm://hostile-" + std::to_string(getpid()));
}

TEST_CASE("bad frames over tcp cost their connection and nothing else") {
    check_transport("tcp://127.0.0.1:0");
}

TEST_CASE("bad frames over unix cost their connection and nothing else") {
    check_transport("unix:///tmp/weft-hostile-" + std::to_string(getpid()));
}

TEST_CASE("bad frames over ofi+tcp cost their connection and nothing else") {
    check_transport("ofi+tcp://127.0.0.1:0");
}
