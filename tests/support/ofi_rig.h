// Endpoints of ofi+tcp for tests: each with its own parts, turned by hand.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/ofi/endpoint.h"
#include "na/ofi/ofi.h"
#include "support/catch.h"
#include "support/test_timeout.h"

namespace weft::test {

inline const std::string ofi_any_port = "ofi+tcp://127.0.0.1:0";

// ofi+tcp uses no arena: any memory can be exposed.
class NoArena final : public na::Arena {
  public:
    Result<Buffer> allocate(std::size_t, Use) override {
        return fail(Code::unimplemented, "no arena");
    }
    Result<int> fd() override { return fail(Code::unimplemented, "no arena"); }
    std::size_t size() const override { return 0; }
    std::optional<std::uint64_t> offset_of(ByteView) const override { return std::nullopt; }
    std::size_t allocated_bytes() const override { return 0; }
    bool hold(std::uint64_t, std::size_t) override { return false; }
    void release(std::uint64_t, std::size_t) noexcept override {}
};

inline na::Provider& ofi_tcp() {
    static const std::unique_ptr<na::Provider> provider = na::make_ofi_tcp_provider();
    return *provider;
}

inline TimePoint real_now() { return std::chrono::steady_clock::now(); }

// An event, with copies of the data that the endpoint owns.
struct Seen {
    na::Event event;
    std::string bytes;
    std::string error;
};

class Node {
  public:
    Node() { open(nullptr); }  // Connects only.
    explicit Node(const std::string& uri, std::size_t peers_max = 64) {
        const na::Address at = *na::parse_address(uri);
        open(&at, peers_max);
    }

    // Over connections with the given traits, which outlive the node; empty uri: connects only.
    Node(const na::ofi::FabricTraits& traits, const std::string& uri) {
        const na::Incarnation incarnation{random_.next(), random_.next()};
        auto made = std::make_unique<na::ofi::OfiEndpoint>(
            traits, na::EndpointParts{random_, log_, arena_, incarnation, std::string(), 64},
            real_now());
        if (!uri.empty()) REQUIRE(made->listen(*na::parse_address(uri)).ok());
        endpoint_ = std::move(made);
    }

    na::Endpoint& operator*() { return *endpoint_; }
    na::Endpoint* operator->() { return endpoint_.get(); }
    void destroy() { endpoint_.reset(); }

    na::PeerId connect(const std::string& uri) {
        return endpoint_->connect(*na::parse_address(uri), real_now() + ahead).value();
    }

    void turn() {
        if (!endpoint_) return;
        std::array<na::Event, 32> events;
        const std::size_t count = endpoint_->poll(events, real_now() + ahead);
        for (std::size_t i = 0; i < count; ++i) {
            Seen entry{events[i], std::string(as_text(events[i].bytes)), {}};
            if (events[i].code != Code::ok) entry.error = endpoint_->error();
            seen.push_back(std::move(entry));
        }
    }

    // Sends one frame; false: no room.
    bool send(na::PeerId peer, std::string_view frame) {
        std::byte* to = endpoint_->reserve(peer, frame.size());
        if (!to) return false;
        std::memcpy(to, frame.data(), frame.size());
        endpoint_->commit(frame.size());
        return true;
    }

    // The first event of this kind that was not taken yet.
    Seen* find(na::EventKind kind) {
        for (Seen& entry : seen) {
            if (entry.event.kind == kind) return &entry;
        }
        return nullptr;
    }
    std::size_t count(na::EventKind kind) const {
        std::size_t n = 0;
        for (const Seen& entry : seen) n += entry.event.kind == kind;
        return n;
    }

    std::vector<Seen> seen;
    Duration ahead{};  // Added to the real time: as if this process had not run for that long.

  private:
    void open(const na::Address* listen, std::size_t peers_max = 64) {
        const na::Incarnation incarnation{random_.next(), random_.next()};
        auto opened = ofi_tcp().open(
            listen, {random_, log_, arena_, incarnation, std::string(), peers_max}, real_now());
        endpoint_ = std::move(opened).value();
    }

    base::KernelRandom random_;
    base::Log log_;
    NoArena arena_;
    std::unique_ptr<na::Endpoint> endpoint_;
};

// Turns the nodes until `done`; false after `limit`.
inline bool turn_until(std::initializer_list<Node*> nodes, const std::function<bool()>& done,
                       Duration limit = test_timeout) {
    const TimePoint end = real_now() + limit;
    while (!done()) {
        if (real_now() > end) return false;
        for (Node* node : nodes) node->turn();
    }
    return true;
}

// Turns them for a while, whatever happens.
inline void turn_for(std::initializer_list<Node*> nodes, Duration span) {
    turn_until(
        nodes, [] { return false; }, span);
}

// Connects both: returns the client's peer and puts the server's peer into `incoming`.
inline na::PeerId join(Node& client, Node& server, na::PeerId* incoming = nullptr) {
    const na::PeerId peer = client.connect(server->address());
    const bool up = turn_until({&client, &server}, [&] {
        return (client.find(na::EventKind::peer_up) && server.find(na::EventKind::peer_up)) ||
               client.find(na::EventKind::peer_down);
    });
    if (const Seen* down = client.find(na::EventKind::peer_down)) FAIL(down->error);
    REQUIRE(up);
    REQUIRE(client.find(na::EventKind::peer_up)->event.peer == peer);
    if (incoming) *incoming = server.find(na::EventKind::peer_up)->event.peer;
    client.seen.clear();
    server.seen.clear();
    return peer;
}

}  // namespace weft::test
