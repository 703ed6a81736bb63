// A client of a hostile server: it calls, reads bulk memory and calls a group, and the input
// corrupts good replies. Every operation completes once, by its deadline, and the client still
// works with honest servers.
#include <google/protobuf/stubs/logging.h>

#include "fuzz/fuzz.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;
using fuzz::Input;
using fuzz::must;

namespace {

// The reply of a rank to a subtree request.
coll::SubtreeReply forged(Input& input) {
    coll::SubtreeReply answer;
    answer.kind =
        static_cast<coll::SubtreeReply::Kind>(input.byte() % 8 == 0 ? input.byte() % 3 : 0);
    answer.epoch = input.byte() % 3;
    const std::uint32_t rank = input.byte() % 3;
    const ByteView body = input.take(input.byte() % 32);
    if (input.byte() % 4 == 0) answer.ok = {{rank, rank + 1 + input.byte() % 2}};
    answer.cost = {rank * 0x9e3779b9u, rank};
    answer.has_value = input.byte() % 4 == 0;
    if (answer.has_value) answer.value.assign(body.begin(), body.end());
    answer.outcomes.push_back(
        {rank, Status().with_effect(Effect::applied), {body.begin(), body.end()}});
    return answer;
}

// The reply of an honest server to a frame, with small changes.
Frame answer_to(const Frame& asked, Input& input) {
    switch (head_of(asked).kind) {
        case FrameKind::request: {
            const auto request = base::load<rpc::RequestHeader>(asked.data());
            rpc::ReplyHeader reply;
            reply.call = request.call;
            reply.head.aux = input.byte() % 4 == 0 ? input.value<std::uint16_t>() : rpc::plain_ok;
            if (input.byte() % 4 != 0 && request.method == coll::forward_method.hash) {
                return frame_of(reply, coll::encode_subtree_reply(forged(input), 60'000));
            }
            return frame_of(reply, input.take(input.byte()));
        }
        case FrameKind::bulk_open: {
            const auto open = base::load<bulk::OpenFrame>(asked.data());
            bulk::GrantFrame grant;
            grant.transfer_slot = open.transfer_slot;
            grant.transfer_generation = open.transfer_generation;
            grant.head.aux = input.byte() % 4 == 0 ? input.value<std::uint16_t>() : 0;
            grant.grant = input.byte();
            grant.fabric = {input.value<std::uint64_t>(), input.value<std::uint64_t>()};
            return frame_of(grant, input.take(input.byte() % 64));
        }
        default: return {};
    }
}

void spoil(Frame& frame, Input& input) {
    if (frame.empty()) return;
    const std::size_t at = input.below(frame.size());
    frame[at] = static_cast<std::byte>(input.byte());
}

// The client's operations in flight at the hostile server.
struct UnderWay {
    int called = 0, read = 0, gathered = 0;
    Status call, transfer;
    std::vector<RankOutcome> outcomes;
};

// Options of the group call.
GroupCallOptions options_of(std::uint8_t choice) {
    GroupCallOptions options{.timeout = 2ms};
    options.policy = static_cast<Policy>(choice % 3);
    options.topology.by_host = choice & 0x40;
    if (choice & 0x80) options.reduction.operation = Reduction::Operation::bit_or;
    return options;
}

void start(const RawPeer& liar, const Channel& channel, const Group& group, const Buffer& local,
           const GroupCallOptions& options, UnderWay& under_way) {
    weft::call(channel, echo::v1::EchoMethods::Now, request_of("question"),
               CallOptions{.timeout = 2ms}, [&](const Status& status, const echo::v1::EchoReply&) {
                   ++under_way.called;
                   under_way.call = status;
               });
    RegionRef ref;
    ref.version = 1;
    ref.access = Access::read_write;
    ref.length = 1 << 16;
    ref.owner = liar.incarnation.low;
    channel.get(ref, 0, local, {.timeout = 2ms}, [&](const Status& status) {
        ++under_way.read;
        under_way.transfer = status;
    });
    group.collective(echo::v1::EchoMethods::Everywhere.id, BodyWriter{0, nullptr, [](auto...) {}},
                     options, [&](GroupOutcome outcome) {
                         ++under_way.gathered;
                         under_way.outcomes = std::move(outcome.ranks);
                     });
}

void check_done(const UnderWay& under_way) {
    must(under_way.called == 1 && under_way.read == 1 && under_way.gathered == 1,
         "every operation completes once, by its deadline");
    must(!under_way.transfer.ok(), "unexposed memory is not read");
    must(under_way.call.text().size() <= rpc::error_text_bytes_max + 256, "a text is bounded");
    must(under_way.outcomes.size() == 2, "one outcome per rank");
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        must(under_way.outcomes[rank].rank == rank, "in order of rank");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const google::protobuf::LogSilencer no_complaints;  // For text that is not UTF-8.
    Input input(data, size);
    Victim victim(input.byte() % 2 == 0);
    RawPeer liar(victim.rig, "liar");
    Channel channel = victim.client.connect("sim://liar").value();
    const GroupView view =
        GroupView::make("mixed", 1, {{0, {"sim://liar"}}, {1, {"sim://server"}}}).value();
    Group group = victim.client.group(view).value();
    const Buffer local = victim.client.allocate(4096).value();
    for (int rounds = 0; rounds < 8 && !input.empty(); ++rounds) {
        UnderWay under_way;
        start(liar, channel, group, local, options_of(input.byte()), under_way);
        for (int i = 0; i < 3; ++i) liar.wait(20us);
        Frames answers;
        for (const Frame& asked : liar.take()) {
            const std::uint8_t choice = input.byte();
            Frame answer = answer_to(asked, input);
            if (choice % 4 == 0) spoil(answer, input);
            if (!answer.empty()) answers.push_back(answer);
            if (choice % 8 == 1 && !answer.empty()) answers.push_back(answer);  // Sends it twice.
        }
        if (input.byte() % 4 == 0) std::ranges::reverse(answers);
        for (const Frame& answer : answers) liar.send(answer);
        if (input.byte() % 4 == 0) {
            const Frames good = victim.good_frames();
            Frame other = good[input.below(good.size())];
            spoil(other, input);
            liar.send(other);
        }
        liar.wait(5ms);
        check_done(under_way);
    }
    victim.check_serves();
    channel = Channel();
    victim.rig.run_for(5s);
    const api::Node& node = node_of(victim.client);
    must(node.client.in_flight() == 0, "no call is left");
    must(node.bulk.transfers.in_flight() == 0, "no transfer is left");
    must(victim.rig.world->late_accesses() == 0, "no memory was accessed late");
    return 0;
}
