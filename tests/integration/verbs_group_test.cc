// A group with members that are reached over verbs only, called as one.
#include <weft/protobuf_group.h>

#include "support/echo.h"
#include "support/rdma_host.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId stamp{"test.Stamp/All"};

// A service on bytes, beside the generated one.
struct Stamper final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(stamp,
                      [this](Call call) {
                          const std::string answer =
                              std::to_string(rank) + " " + std::string(as_text(call.request()));
                          call.reply(as_bytes(answer));
                      },
                      {.collective = true});
    }
    std::uint32_t rank = 0;
};

struct MemberServer {
    EchoServer echo;
    Stamper stamper;
    Runtime runtime = Runtime::create().value();
};

}  // namespace

TEST_CASE("verbs: a group of six is called typed and in bytes", "[verbs]") {
    const auto uri = rdma_uri_or_note();
    if (!uri) return;
    constexpr std::uint32_t n = 6;
    std::vector<std::unique_ptr<MemberServer>> servers;
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        auto server = std::make_unique<MemberServer>();
        server->stamper.rank = rank;
        REQUIRE(server->runtime.serve(server->echo, *uri).ok());
        REQUIRE(server->runtime.add(server->stamper).ok());
        members.push_back({rank, server->runtime.addresses()});
        servers.push_back(std::move(server));
    }
    const GroupView view = GroupView::make("verbs", 1, std::move(members)).value();
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        REQUIRE(servers[rank]->runtime.join(view, rank).ok());
    }
    Runtime client = Runtime::create({.manual = true}).value();
    const Group group = client.group(view).value();

    for (const std::size_t bytes : {10u, 100'000u}) {  // In a message, and by rendezvous.
        const std::string text(bytes, 'w');
        std::optional<GroupResult<echo::v1::EchoReply>> typed;
        echo::v1::EchoRequestText request;
        request.set_text(text);
        const auto ask = [&]() -> Task<void> {
            typed = co_await echo::v1::EchoGroupClient(group).Everywhere(request,
                                                                         {.timeout = test_timeout});
        };
        client.spawn(ask());
        REQUIRE(client.turn_until([&] { return typed.has_value(); }, 2 * test_timeout));
        INFO(bytes << " bytes: " << typed->first_error().to_string());
        REQUIRE(typed->size() == n);
        CHECK(typed->status().ok());
        CHECK(typed->all_ok());
        for (const auto& answer : *typed) CHECK(answer.reply.text() == text);

        GroupOutcome outcome;
        const std::vector<RankOutcome>& raw = outcome.ranks;
        group.collective(stamp, BodyWriter::of(as_bytes(text)), {.timeout = test_timeout},
                         [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(client.turn_until([&] { return !raw.empty(); }, 2 * test_timeout));
        REQUIRE(raw.size() == n);
        CHECK(outcome.status.ok());
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            INFO(raw[rank].status.to_string());
            CHECK(raw[rank].status.ok());
            CHECK(raw[rank].rank == rank);
            CHECK(as_text(raw[rank].reply) == std::to_string(rank) + " " + text);
        }
    }
    for (const auto& server : servers) CHECK(server->echo.handled == 2);
}
