// A group of servers on a simulated network that record the requests they receive.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/sim_rig.h"

namespace weft::test {

inline constexpr MethodId record_method("test.Group/Record");

class GroupRig {
  public:
    struct Server final : Service {
        GroupRig* rig = nullptr;
        std::uint32_t rank = 0;
        MergeFunction merge = nullptr;
        std::vector<std::string> received;
        bool hold = false;
        std::vector<Call> held;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(record_method,
                          [this](Call call) {
                              received.emplace_back(as_text(call.request()));
                              if (hold) return held.push_back(std::move(call));
                              call.reply(rig->answer(rank, call.request()));
                          },
                          {.collective = true, .merge = merge});
        }
        bool was_cancelled() const { return !held.empty() && held.back().cancelled(); }
    };

    explicit GroupRig(std::uint32_t n, MergeFunction merge = nullptr,
                      const RuntimeOptions& options = {})
        : services(n), size(n) {
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            Server& server = services[rank];
            server.rig = this;
            server.rank = rank;
            server.merge = merge;
            Runtime& runtime = sim.add("s" + std::to_string(rank), options);
            REQUIRE(runtime.add(server).ok());
            REQUIRE(runtime.join(view(), rank).ok());
        }
        client = &sim.add("", options);
    }
    ~GroupRig() {
        for (Server& server : services) server.held.clear();
    }

    GroupView view(std::uint64_t epoch = 1) const {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            members.push_back({rank, {"sim://s" + std::to_string(rank)}});
        }
        return GroupView::make("store", epoch, std::move(members)).value();
    }
    // The group of a member, or of the client: -1.
    Group group(int caller) {
        Runtime& runtime = caller < 0 ? *client : *sim.runtimes[static_cast<std::size_t>(caller)];
        return runtime.group(view()).value();
    }
    GroupOutcome call(const Group& group, std::string_view text,
                      const GroupCallOptions& options = {}) {
        std::optional<GroupOutcome> outcome;
        group.collective(record_method, BodyWriter::of(as_bytes(text)), options,
                         [&](GroupOutcome all) {
                             REQUIRE_FALSE(outcome.has_value());
                             outcome = std::move(all);
                         });
        REQUIRE_FALSE(outcome.has_value());
        REQUIRE(sim.run_until([&] { return outcome.has_value(); }, 60s));
        return *std::move(outcome);
    }
    bool all_hold() {
        return sim.run_until([&] {
            return std::all_of(services.begin(), services.end(),
                               [](const Server& server) { return !server.held.empty(); });
        });
    }
    void reply_held() {
        for (Server& server : services) {
            for (Call& call : std::exchange(server.held, {})) {
                call.reply(answer(server.rank, call.request()));
            }
        }
    }
    std::size_t running() const {
        std::size_t all = 0;
        for (const auto& runtime : sim.runtimes) all += impl_of(*runtime).collectives.running();
        return all;
    }

    std::function<std::vector<std::byte>(std::uint32_t rank, ByteView request)> answer =
        [](std::uint32_t, ByteView) { return std::vector<std::byte>(); };
    std::vector<Server> services;
    const std::uint32_t size;
    SimRig sim;
    Runtime* client = nullptr;
};

}  // namespace weft::test
