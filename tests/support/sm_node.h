// One sm endpoint with all its parts, and the loops with which tests turn it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/sm/sm.h"
#include "support/catch.h"
#include "support/test_timeout.h"

namespace weft::test {

// An event with a copy of its bytes, and error() at the time of the event.
struct Seen {
    na::Event event;
    std::string bytes;
    std::string error;
};

inline std::string unique_name(const char* what) {
    static int count = 0;
    return std::string("test-") + what + "-" + std::to_string(::getpid()) + "-" +
           std::to_string(++count);
}

inline TimePoint real_now() { return std::chrono::steady_clock::now(); }

struct SmNode {
    base::KernelRandom random;
    base::Log log{LogLevel::off};
    std::shared_ptr<na::Arena> arena = na::Arena::make(std::size_t{256} << 20);
    std::unique_ptr<na::Provider> provider = na::make_sm_provider();
    std::unique_ptr<na::Endpoint> endpoint;
    std::vector<Seen> seen;

    // Empty name: does not listen.
    explicit SmNode(const std::string& name = "", std::size_t peers_max = 1024) {
        Result<std::unique_ptr<na::Endpoint>> made = open(name, peers_max);
        INFO(made.status().to_string());
        REQUIRE(made.ok());
        endpoint = std::move(*made);
    }

    Result<std::unique_ptr<na::Endpoint>> open(const std::string& name, std::size_t peers_max) {
        na::EndpointParts parts{random, log, *arena, {random.next(), random.next()}, "", peers_max};
        na::Address address{"sm", name, "", 0};
        return provider->open(name.empty() ? nullptr : &address, std::move(parts), real_now());
    }

    na::PeerId connect(const std::string& name) {
        Result<na::PeerId> peer = endpoint->connect({"sm", name, "", 0}, real_now());
        REQUIRE(peer.ok());
        return *peer;
    }

    std::size_t turn() {
        na::Event events[64];
        const std::size_t count = endpoint->poll(events, real_now());
        for (std::size_t i = 0; i < count; ++i) {
            Seen one{events[i], std::string(as_text(events[i].bytes)), ""};
            if (events[i].code != Code::ok) one.error = endpoint->error();
            seen.push_back(std::move(one));
        }
        return count;
    }

    bool send(na::PeerId to, std::string_view text) {
        std::byte* room = endpoint->reserve(to, text.size());
        if (!room) return false;
        std::memcpy(room, text.data(), text.size());
        endpoint->commit(text.size());
        return true;
    }

    // The first event of this kind that was not taken yet.
    const Seen* find(na::EventKind kind) const {
        for (const Seen& one : seen) {
            if (one.event.kind == kind) return &one;
        }
        return nullptr;
    }
    Seen take(na::EventKind kind) {
        for (std::size_t i = 0; i < seen.size(); ++i) {
            if (seen[i].event.kind != kind) continue;
            Seen one = std::move(seen[i]);
            seen.erase(seen.begin() + static_cast<std::ptrdiff_t>(i));
            return one;
        }
        FAIL("no such event");
        return {};
    }
};

// Turns the nodes until `done`; fails the test after `limit`.
template <class Done>
void turn_until(std::initializer_list<SmNode*> nodes, Done&& done, Duration limit = test_timeout) {
    const TimePoint end = real_now() + limit;
    while (!done()) {
        REQUIRE(real_now() < end);
        for (SmNode* node : nodes) node->turn();
    }
}

inline Seen await(std::initializer_list<SmNode*> nodes, SmNode& where, na::EventKind kind,
                  Duration limit = test_timeout) {
    turn_until(
        nodes, [&] { return where.find(kind) != nullptr; }, limit);
    return where.take(kind);
}

// Two connected nodes.
struct SmPair {
    std::string name = unique_name("pair");
    SmNode server{name};
    SmNode client;
    na::PeerId at_client;  // The id of the server at the client.
    na::PeerId at_server;

    SmPair() {
        at_client = client.connect(name);
        const Seen up = await({&server, &client}, client, na::EventKind::peer_up);
        REQUIRE(up.event.peer == at_client);
        at_server = await({&server, &client}, server, na::EventKind::peer_up).event.peer;
    }
};

}  // namespace weft::test
