#include "cli/bare_endpoint.h"

#include <poll.h>

#include <array>
#include <cstring>
#include <optional>

#include "api/runtime_impl.h"

namespace weft::tool {

static TimePoint steady_now() { return std::chrono::steady_clock::now(); }

BareEndpoint::BareEndpoint() : log_(LogLevel::warning), arena_(na::Arena::make()) {
    providers_ = api::production_parts().providers;
}

Result<std::unique_ptr<BareEndpoint>> BareEndpoint::open(const std::string& transport,
                                                         const std::string& listen_uri,
                                                         WaitMode wait) {
    std::unique_ptr<BareEndpoint> bare_endpoint(new BareEndpoint());
    std::optional<na::Address> listen;
    if (!listen_uri.empty()) {
        Result<na::Address> address = na::parse_address(listen_uri);
        if (!address) return std::move(address).status();
        listen = *std::move(address);
    }
    Result<na::Provider*> provider =
        bare_endpoint->providers_->find(listen ? listen->scheme : transport);
    if (!provider) return std::move(provider).status();
    const na::Incarnation incarnation{bare_endpoint->random_.next(), bare_endpoint->random_.next()};
    Result<std::unique_ptr<na::Endpoint>> endpoint =
        (*provider)->open(listen ? &*listen : nullptr,
                          {bare_endpoint->random_, bare_endpoint->log_, *bare_endpoint->arena_,
                           incarnation, "", 64, wait != WaitMode::spin},
                          steady_now());
    if (!endpoint) return std::move(endpoint).status();
    bare_endpoint->endpoint_ = *std::move(endpoint);
    return bare_endpoint;
}

Result<na::PeerId> BareEndpoint::connect(const std::string& uri, Duration limit) {
    Result<na::Address> address = na::parse_address(uri);
    if (!address) return std::move(address).status();
    const TimePoint end = saturating_add(steady_now(), limit);
    Result<na::PeerId> peer = endpoint_->connect(*address, steady_now());
    if (!peer) return peer;
    std::array<na::Event, 8> events;
    while (steady_now() < end) {
        const std::size_t count = endpoint_->poll(events, steady_now());
        for (std::size_t i = 0; i < count; ++i) {
            if (events[i].peer != *peer) continue;
            if (events[i].kind == na::EventKind::peer_up) return peer;
            if (events[i].kind == na::EventKind::peer_down) {
                return fail(Code::unavailable, endpoint_->error()).with_peer(uri);
            }
        }
        if (count == 0) sleep_on(*endpoint_, 1ms);
    }
    return fail(Code::deadline_exceeded,
                "no connection within " + std::to_string(limit / 1ms) + " ms")
        .with_peer(uri);
}

void sleep_on(na::Endpoint& endpoint, Duration longest) {
    const TimePoint now = steady_now();
    const TimePoint next = endpoint.next_deadline();
    if (next <= now || (endpoint.caps().wait_fd && !endpoint.arm())) return;
    if (!endpoint.caps().wait_fd) longest = std::min<Duration>(longest, 1ms);
    if (next != never) longest = std::min(longest, next - now);
    timespec timeout{};
    timeout.tv_sec = longest.count() / 1'000'000'000;
    timeout.tv_nsec = longest.count() % 1'000'000'000;
    pollfd watched{endpoint.caps().wait_fd ? endpoint.wait_fd() : -1, POLLIN, 0};
    ppoll(&watched, 1, &timeout, nullptr);
}

bool send_frame(na::Endpoint& endpoint, na::PeerId peer, ByteView frame) {
    std::byte* to = endpoint.reserve(peer, frame.size());
    if (!to) return false;
    std::memcpy(to, frame.data(), frame.size());
    endpoint.commit(frame.size());
    return true;
}

}  // namespace weft::tool
