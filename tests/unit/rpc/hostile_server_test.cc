// A server that lies to its clients: every call and transfer completes once, with an error that
// names the fault, and the client still uses honest servers.
#include <functional>

#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

namespace {

// An honest client of a liar; the rig's "server" stays honest.
struct Fooled {
    explicit Fooled(bool rma_checked = true) : victim(rma_checked) {
        channel = victim.client.connect("sim://liar").value();
    }

    // Calls the liar, which answers the request with the frames that `lie` returns.
    Status call(const std::function<Frames(const rpc::RequestHeader&)>& lie) {
        int completions = 0;
        Status outcome;
        channel.call(echo::v1::EchoMethods::Now.id, as_bytes("question"), {.timeout = 10ms},
                     [&](const Status& with, ByteView body) {
                         ++completions;
                         outcome = with;
                         reply = as_text(body);
                     });
        answer(lie);
        REQUIRE(victim.rig.run_until([&] { return completions > 0; }));
        liar.wait(20ms);
        CHECK(completions == 1);
        victim.check_serves();
        return outcome;
    }

    void answer(const std::function<Frames(const rpc::RequestHeader&)>& lie) {
        for (int i = 0; i < 3; ++i) liar.wait(20us);
        for (const Frame& frame : liar.take()) {
            if (head_of(frame).kind != FrameKind::request) continue;
            for (const Frame& answer : lie(base::load<rpc::RequestHeader>(frame.data()))) {
                liar.send(answer);
            }
        }
    }

    static Frame reply_to(const rpc::RequestHeader& request, std::string_view body,
                          std::uint16_t aux = rpc::plain_ok) {
        rpc::ReplyHeader reply;
        reply.head.aux = aux;
        reply.call = request.call;
        return frame_of(reply, as_bytes(body));
    }

    Victim victim;
    RawPeer liar{victim.rig, "liar"};
    Channel channel;
    std::string reply;
};

}  // namespace

TEST_CASE("hostile server: a second reply to a call is dropped") {
    Fooled fooled;
    const Status status = fooled.call([](const rpc::RequestHeader& request) {
        return Frames{Fooled::reply_to(request, "first"), Fooled::reply_to(request, "second"),
                      Fooled::reply_to(request, "third")};
    });
    CHECK(status.ok());
    CHECK(fooled.reply == "first");
    CHECK(node_of(fooled.victim.client).client.counters().late_replies == 2);
    CHECK_FALSE(fooled.liar.lost);
}

TEST_CASE("hostile server: a reply of another generation or slot is ignored until the deadline") {
    Fooled fooled;
    for (const auto& off : {std::pair{0, 1}, {0, -1}, {1, 0}, {63, 0}, {64, 0}, {1 << 30, 0}}) {
        const Status status = fooled.call([&](const rpc::RequestHeader& request) {
            rpc::RequestHeader other = request;
            other.call.slot += static_cast<std::uint32_t>(off.first);
            other.call.sequence += static_cast<std::uint32_t>(off.second);
            return Frames{Fooled::reply_to(other, "not yours")};
        });
        CHECK(status.code() == Code::deadline_exceeded);
        CHECK(status.effect() == Effect::unknown);
    }
}

TEST_CASE("hostile server: a reply from another peer than the called one is dropped") {
    Fooled fooled;
    RawPeer accomplice(fooled.victim.rig, "accomplice");
    Channel there = fooled.victim.client.connect("sim://accomplice").value();
    int answered = 0;
    there.call(echo::v1::EchoMethods::Now.id, {}, {.timeout = 10ms},
               [&](const Status&, ByteView) { ++answered; });
    for (int i = 0; i < 3; ++i) accomplice.wait(20us);
    REQUIRE(accomplice.take().size() == 1);
    const Status status = fooled.call([&](const rpc::RequestHeader& request) {
        accomplice.send(Fooled::reply_to(request, "from elsewhere"));
        return Frames{};
    });
    CHECK(status.code() == Code::deadline_exceeded);
    CHECK(answered == 1);
}

TEST_CASE("hostile server: a server that calls its client is disconnected") {
    Fooled fooled;
    for (const bool with_session : {true, false}) {
        const Status status = fooled.call([&](const rpc::RequestHeader& request) {
            rpc::SessionFrame session;
            session.id = {1, 2};
            rpc::RequestHeader call = request;
            call.call = {0, 1};
            return with_session ? Frames{frame_of(session), frame_of(call)}
                                : Frames{frame_of(call)};
        });
        CHECK(status.code() == Code::unavailable);
        CHECK(fooled.liar.lost);
    }
}

TEST_CASE("hostile server: a malformed reply costs its connection and the call names the reason") {
    Fooled fooled;
    const auto status_after = [&](const std::function<void(Frame&)>& spoil) {
        return fooled.call([&](const rpc::RequestHeader& request) {
            Frame frame = Fooled::reply_to(request, "body");
            spoil(frame);
            return Frames{frame};
        });
    };
    const auto check = [&](const std::function<void(Frame&)>& spoil) {
        const Status status = status_after(spoil);
        INFO(status.to_string());
        CHECK(status.code() == Code::unavailable);
        CHECK(status.effect() == Effect::unknown);
        CHECK(status.peer() == "sim://liar");
        CHECK(status.text().find("the peer sent") != std::string_view::npos);
        CHECK(fooled.liar.lost);
    };
    for (std::size_t bytes = 1; bytes < sizeof(rpc::ReplyHeader) + 4; ++bytes) {
        check([&](Frame& frame) { frame.resize(bytes); });
    }
    check([](Frame& frame) { frame[0] = std::byte{99}; });
    check([](Frame& frame) { frame[1] = std::byte{1}; });
    check([](Frame& frame) { frame[2] = std::byte{200}; });
    check([](Frame& frame) { frame[4] = std::byte{7}; });
    check([](Frame& frame) { frame[7] = std::byte{0xff}; });
}

TEST_CASE("hostile server: an answer that contradicts itself is DATA_LOSS, effect unknown") {
    Fooled fooled;
    for (const auto& [effect, stage] : {std::pair{Effect::none, Stage::none},
                                        {Effect::none, Stage::queued},
                                        {Effect::unknown, Stage::executing}}) {
        const Status status = fooled.call([effect = effect,
                                           stage = stage](const rpc::RequestHeader& request) {
            return Frames{Fooled::reply_to(request, "fine", rpc::pack(Code::ok, effect, stage))};
        });
        CHECK(status.code() == Code::data_loss);
        CHECK(status.effect() == Effect::unknown);
        CHECK(status.stage() == Stage::sent);
    }
}

TEST_CASE("hostile server: an error text is cut to its limit") {
    Fooled fooled;
    const Status status = fooled.call([](const rpc::RequestHeader& request) {
        return Frames{
            Fooled::reply_to(request, std::string(60'000, 'x'),
                             rpc::pack(Code::internal, Effect::applied, Stage::executing))};
    });
    CHECK(status.code() == Code::internal);
    CHECK(status.text().size() == rpc::error_text_bytes_max);
    const Status foreign = fooled.call([](const rpc::RequestHeader& request) {
        return Frames{
            Fooled::reply_to(request, std::string(rpc::error_text_bytes_max - 1, 'x') + "ü",
                             rpc::pack(Code::internal, Effect::applied, Stage::executing))};
    });
    CHECK(foreign.text() == std::string(rpc::error_text_bytes_max - 1, 'x'));
}

TEST_CASE("hostile server: requests or cancels to a client without services cost the connection") {
    Fooled fooled;
    const bool asks = GENERATE(true, false);
    const Status status = fooled.call([&](const rpc::RequestHeader& request) {
        rpc::CancelHeader cancel;
        cancel.call = request.call;
        return Frames{asks ? fooled.victim.request(echo::v1::EchoMethods::Now.id, "you do it")
                           : frame_of(cancel),
                      Fooled::reply_to(request, "done")};
    });
    CHECK(status.code() == Code::unavailable);
    CHECK(fooled.liar.lost);
}

TEST_CASE("hostile server: a false grant fails the transfer once or is dropped") {
    Fooled fooled(false);
    REQUIRE(fooled
                .call([](const rpc::RequestHeader& request) {
                    return Frames{Fooled::reply_to(request, "")};
                })
                .ok());
    const na::Incarnation liar = fooled.liar.incarnation;
    const auto get = [&](const std::function<Frames(bulk::GrantFrame)>& lie) {
        RegionRef ref;
        ref.version = 1;
        ref.access = Access::read;
        ref.length = 4096;
        ref.owner = liar.low;
        int completions = 0;
        Status outcome;
        fooled.channel.get(ref, 0, fooled.victim.client.allocate(4096).value(), {.timeout = 10ms},
                           [&](const Status& with) {
                               ++completions;
                               outcome = with;
                           });
        for (int i = 0; i < 3; ++i) fooled.liar.wait(20us);
        for (const Frame& frame : fooled.liar.take()) {
            if (head_of(frame).kind != FrameKind::bulk_open) continue;
            const auto open = base::load<bulk::OpenFrame>(frame.data());
            bulk::GrantFrame grant;
            grant.transfer_slot = open.transfer_slot;
            grant.transfer_generation = open.transfer_generation;
            grant.grant = 5;
            for (const Frame& answer : lie(grant)) fooled.liar.send(answer);
        }
        REQUIRE(fooled.victim.rig.run_until([&] { return completions > 0; }));
        fooled.liar.wait(20ms);
        CHECK(completions == 1);
        CHECK(node_of(fooled.victim.client).bulk.transfers.in_flight() == 0);
        fooled.victim.check_serves();
        return outcome;
    };
    // Memory that does not exist.
    CHECK_FALSE(get([](bulk::GrantFrame grant) {
                    grant.fabric = {~std::uint64_t{0}, ~std::uint64_t{0}};
                    return Frames{frame_of(grant)};
                }).ok());
    CHECK_FALSE(
        get([](bulk::GrantFrame grant) {  // Granted twice, then revoked twice.
            bulk::RevokeFrame revoke;
            revoke.grant = grant.grant;
            revoke.transfer_slot = grant.transfer_slot;
            revoke.transfer_generation = grant.transfer_generation;
            return Frames{frame_of(grant), frame_of(grant), frame_of(revoke), frame_of(revoke)};
        })
            .ok());
    CHECK(get([](bulk::GrantFrame grant) {
              ++grant.transfer_generation;
              return Frames{frame_of(grant)};
          }).code() == Code::deadline_exceeded);
    const Status refused = get([](bulk::GrantFrame grant) {
        grant.head.aux = static_cast<std::uint16_t>(Code::permission_denied);
        return Frames{frame_of(grant, as_bytes(std::string(9000, 'n')))};
    });
    CHECK(refused.code() == Code::permission_denied);
    CHECK(refused.text().size() == 256);
}

TEST_CASE("hostile server: a rank that reports false outcomes affects its own subtree only") {
    Fooled fooled;
    const GroupView view =
        GroupView::make("mixed", 1, {{0, {"sim://liar"}}, {1, {"sim://server"}}}).value();
    const Group group = fooled.victim.client.group(view).value();
    const auto outcomes_after = [&](const coll::SubtreeReply& told, std::size_t cut = 0) {
        std::vector<RankOutcome> all;
        int completions = 0;
        group.collective(echo::v1::EchoMethods::Everywhere.id,
                         BodyWriter{0, nullptr, [](auto...) {}}, {.timeout = 20ms},
                         [&](GroupOutcome with) {
                             ++completions;
                             all = std::move(with.ranks);
                         });
        fooled.answer([&](const rpc::RequestHeader& request) {
            const std::vector<std::byte> body = coll::encode_subtree_reply(told, 60'000);
            return Frames{
                Fooled::reply_to(request, as_text(ByteView(body).first(body.size() - cut)))};
        });
        REQUIRE(fooled.victim.rig.run_until([&] { return completions > 0; }));
        CHECK(completions == 1);
        REQUIRE(all.size() == 2);
        CHECK(all[0].rank == 0);
        CHECK(all[1].rank == 1);
        fooled.victim.check_serves();
        return all;
    };
    const Status ok = Status().with_effect(Effect::applied);
    // Outcomes for other ranks, for no rank, and twice.
    coll::SubtreeReply lies;
    lies.ok = {{0, 0xffffffff}};
    lies.outcomes = {{1, fail(Code::internal, "I speak for rank 1"), {}}};
    const std::vector<RankOutcome> all = outcomes_after(lies);
    CHECK(all[0].status.ok());
    CHECK(all[1].status.text().find("I speak") == std::string_view::npos);
    lies.ok = {{0, 1}, {9, 0xffffffff}};  // More ranks than requested.
    CHECK(outcomes_after(lies)[0].status.code() == Code::data_loss);
    lies.outcomes = {{0, fail(Code::data_loss, "or not"), {}}, {0, ok, {}}};
    CHECK(outcomes_after(lies)[0].status.code() == Code::data_loss);  // The worse outcome counts.
    CHECK(outcomes_after({})[0].status.code() == Code::internal);     // Its own is missing.
    coll::SubtreeReply listed;
    listed.outcomes = {{0, ok, std::vector<std::byte>(100)}};
    CHECK(outcomes_after(listed, 3)[0].status.code() == Code::data_loss);
    coll::SubtreeReply stale;  // The rank reports that it has no view of the group.
    stale.kind = coll::SubtreeReply::Kind::stale;
    CHECK(outcomes_after(stale)[0].status.code() == Code::failed_precondition);
    // A merged reply, which was not requested.
    coll::SubtreeReply merged;
    merged.ok = {{0, 1}};
    merged.has_value = true;
    merged.value = std::vector<std::byte>(1000);
    CHECK(outcomes_after(merged)[0].reply.empty());
}
