#include "info/self_test.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cli/bare_endpoint.h"
#include "cli/median.h"
#include "cli/own_uri.h"
#include "core/frame.h"

namespace weft::tool {

namespace {

constexpr std::size_t message_bytes = 64;
constexpr std::size_t transfer_bytes = 4096;
constexpr int rounds_measured = 101;
constexpr Duration patience = 1s;  // For each step.

// Both ends, polled in turn by this thread.
class Pair {
  public:
    Pair(BareEndpoint& server, BareEndpoint& client) : server_(server), client_(client) {}

    Status connect() {
        Result<na::PeerId> peer = [&]() -> Result<na::PeerId> {
            Result<na::Address> address = na::parse_address(server_.endpoint().address());
            if (!address) return std::move(address).status();
            return client_.endpoint().connect(*address, std::chrono::steady_clock::now());
        }();
        if (!peer) return std::move(peer).status();
        peer_ = *peer;
        return wait([&] { return client_up_ && server_peer_; }, "connecting");
    }

    // A message to the server, and its echo.
    Status echo() {
        answered_ = false;
        std::array<std::byte, message_bytes> frame{};
        base::store(frame.data(), core::FrameHead{core::FrameKind::request, 0, 0, message_bytes});
        if (!send(client_.endpoint(), peer_, frame)) {
            return fail(Code::resource_exhausted, "the first message was refused");
        }
        return wait([&] { return answered_; }, "a message");
    }

    Status get() {
        if (!exposed_) {
            if (Status status = expose(); !status.ok()) return status;
        }
        transferred_ = false;
        na::RmaItem item;
        item.kind = na::RmaKind::get;
        item.peer = peer_;
        item.generation = 1;
        item.key = key_;
        item.fabric = fabric_;
        item.local = to_.bytes();
        if (client_.endpoint().post({&item, 1}) != 1) {
            return fail(Code::resource_exhausted, "the first transfer was refused");
        }
        if (Status status = wait([&] { return transferred_; }, "a transfer"); !status.ok()) {
            return status;
        }
        if (std::memcmp(to_.data(), from_.data(), transfer_bytes) == 0) return {};
        return fail(Code::data_loss, "a transfer returned wrong bytes");
    }

  private:
    Status expose() {
        Result<Buffer> from = server_.arena().allocate(transfer_bytes);
        Result<Buffer> to = client_.arena().allocate(transfer_bytes);
        if (!from) return std::move(from).status();
        if (!to) return std::move(to).status();
        from_ = *from;
        to_ = *to;
        for (std::size_t i = 0; i < transfer_bytes; ++i) {
            from_.data()[i] = static_cast<std::byte>(i * 7);
        }
        std::memset(to_.data(), 0, transfer_bytes);
        key_ = server_.random().next();
        Result<na::FabricKey> fabric =
            server_.endpoint().expose({0, 1, key_, from_.bytes(), Access::read});
        if (!fabric) return std::move(fabric).status();
        fabric_ = *fabric;
        exposed_ = true;
        return {};
    }

    static bool send(na::Endpoint& endpoint, na::PeerId peer, ByteView bytes) {
        if (!send_frame(endpoint, peer, bytes)) return false;
        endpoint.flush();
        return true;
    }

    template <class Done>
    Status wait(Done&& done, const char* what) {
        TimePoint now = std::chrono::steady_clock::now();
        const TimePoint end = now + patience;
        while (!done()) {
            if (!broken_.ok()) return broken_;
            if (now >= end) {
                return fail(Code::deadline_exceeded, std::string(what) + " took over a second");
            }
            poll(server_, true, now);
            poll(client_, false, now);
            now = std::chrono::steady_clock::now();
        }
        return {};
    }

    void poll(BareEndpoint& bare_endpoint, bool server, TimePoint now) {
        std::array<na::Event, 16> events;
        const std::size_t count = bare_endpoint.endpoint().poll(events, now);
        for (std::size_t i = 0; i < count; ++i) on_event(bare_endpoint, server, events[i]);
        bare_endpoint.endpoint().flush();
    }

    void on_event(BareEndpoint& bare_endpoint, bool server, const na::Event& event) {
        switch (event.kind) {
            case na::EventKind::peer_up:
                if (server) server_peer_ = event.peer;
                else client_up_ = true;
                break;
            case na::EventKind::peer_down:
                broken_ = fail(event.code == Code::ok ? Code::unavailable : event.code,
                               bare_endpoint.endpoint().error());
                break;
            case na::EventKind::message:
                if (server) send(bare_endpoint.endpoint(), event.peer, event.bytes);
                else answered_ = event.bytes.size() >= message_bytes;
                break;
            case na::EventKind::rma_done:
                transferred_ = true;
                if (event.code != Code::ok)
                    broken_ = fail(event.code, bare_endpoint.endpoint().error());
                break;
            case na::EventKind::writable:
            case na::EventKind::region_fenced: break;
        }
    }

    BareEndpoint& server_;
    BareEndpoint& client_;
    na::PeerId peer_, server_peer_;
    na::FabricKey fabric_;
    std::uint64_t key_ = 0;
    Buffer from_, to_;
    Status broken_;
    bool client_up_ = false, answered_ = false, transferred_ = false, exposed_ = false;
};

template <class Step>
Status time_steps(Step&& step, std::optional<double>& into) {
    if (Status status = step(); !status.ok()) return status;  // Warms up.
    std::vector<double> times;
    const TimePoint end = std::chrono::steady_clock::now() + 100ms;
    TimePoint last = std::chrono::steady_clock::now();
    while (times.size() < rounds_measured && last < end) {
        if (Status status = step(); !status.ok()) return status;
        const TimePoint now = std::chrono::steady_clock::now();
        times.push_back(static_cast<double>((now - last).count()));
        last = now;
    }
    into = median_of(times);
    return {};
}

}  // namespace

SelfTest test_transport(const std::string& scheme) {
    SelfTest test;
    Result<std::unique_ptr<BareEndpoint>> server = BareEndpoint::open("", own_uri(scheme, "info"));
    if (!server) {
        test.status = std::move(server).status();
        return test;
    }
    test.caps = (*server)->endpoint().caps();
    test.address = (*server)->endpoint().address();
    Result<std::unique_ptr<BareEndpoint>> client = BareEndpoint::open(scheme, "");
    if (!client) {
        test.status = std::move(client).status();
        return test;
    }
    Pair pair(**server, **client);
    test.status = pair.connect();
    if (test.status.ok()) {
        test.status = time_steps([&] { return pair.echo(); }, test.round_trip_ns);
    }
    if (test.status.ok() && test.caps.rma) {
        test.status = time_steps([&] { return pair.get(); }, test.get_ns);
    }
    return test;
}

}  // namespace weft::tool
