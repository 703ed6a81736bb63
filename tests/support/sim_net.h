// Endpoints on the simulated network, polled by hand: no context above them.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/sim/sim.h"
#include "support/catch.h"

namespace weft::test {

struct SimHost {
    std::unique_ptr<na::Provider> provider;
    std::unique_ptr<na::Endpoint> endpoint;
    std::vector<std::string> messages;
    std::vector<Code> downs;
    std::deque<na::PeerId> ups;
    int writable = 0;
    std::vector<Code> done;  // Codes of completed transfers.
    std::vector<std::uint32_t> fenced;
};

// Hosts, all polled at each instant.
class SimNet {
  public:
    explicit SimNet(std::uint64_t seed, const weft::sim::Link& link = {}, bool is_checked = true)
        : random_(seed),
          world(std::make_shared<na::sim::World>(random_, options(link, is_checked))) {}

    SimHost& open(const std::string& name) {
        SimHost& host = hosts_[name];
        host.provider = na::sim::make_sim_provider(world, name);
        const na::Address address{"sim", name, "", 0};
        const na::EndpointParts parts{random_, log_, *arena_, {random_.next(), random_.next()},
                                      "",      1024, true};
        auto endpoint = host.provider->open(&address, parts, clock.now());
        REQUIRE(endpoint);
        host.endpoint = *std::move(endpoint);
        return host;
    }

    SimHost& at(const std::string& name) { return hosts_.at(name); }

    void poll() {
        for (auto& [name, host] : hosts_) {
            if (!host.endpoint) continue;
            std::array<na::Event, 4> events;
            while (const std::size_t count = host.endpoint->poll(events, clock.now())) {
                for (const na::Event& event : std::span(events).first(count)) note(host, event);
            }
            host.endpoint->flush();
        }
    }
    template <class Done>
    bool until(Done&& done, Duration limit = 10s) {
        const TimePoint end = clock.now() + limit;
        for (poll(); !done(); poll()) {
            const TimePoint next = world->next_event();
            if (next > end) {
                clock.advance(end - clock.now());
                poll();
                return done();
            }
            clock.advance(next - clock.now());
        }
        return true;
    }
    // Connects one host to the other until both have the peer.
    na::PeerId join(SimHost& from, const std::string& to) {
        from.ups.clear();
        hosts_[to].ups.clear();
        REQUIRE(from.endpoint->connect({"sim", to, "", 0}, clock.now()));
        REQUIRE(until([&] { return !from.ups.empty() && !hosts_[to].ups.empty(); }));
        return from.ups.front();
    }
    static bool send(SimHost& from, na::PeerId peer, std::string_view text) {
        std::byte* to = from.endpoint->reserve(peer, text.size());
        if (!to) return false;
        std::memcpy(to, text.data(), text.size());
        from.endpoint->commit(text.size());
        from.endpoint->flush();
        return true;
    }

  private:
    static na::sim::WorldOptions options(const weft::sim::Link& link, bool is_checked) {
        na::sim::WorldOptions options;
        options.link = link;
        options.connect_timeout = 2s;
        options.joins_commits = false;
        options.rma_checked = is_checked;
        return options;
    }
    static void note(SimHost& host, const na::Event& event) {
        switch (event.kind) {
            case na::EventKind::message: host.messages.emplace_back(as_text(event.bytes)); break;
            case na::EventKind::peer_up: host.ups.push_back(event.peer); break;
            case na::EventKind::peer_down: host.downs.push_back(event.code); break;
            case na::EventKind::writable: ++host.writable; break;
            case na::EventKind::rma_done: host.done.push_back(event.code); break;
            case na::EventKind::region_fenced: host.fenced.push_back(event.region); break;
        }
    }

    base::SeededRandom random_;
    base::Log log_{LogLevel::off};
    std::shared_ptr<na::Arena> arena_ = na::Arena::make(1u << 20);
    std::map<std::string, SimHost> hosts_;

  public:
    std::shared_ptr<na::sim::World> world;
    base::ManualClock clock;
};

}  // namespace weft::test
