// A whole server in the simulated network, and two clients that send it transport messages made of
// good frames and of bytes of the input. The server keeps serving, no other client can end an
// honest client's call, and no resource is left.
#include <deque>

#include <google/protobuf/stubs/logging.h>

#include "fuzz/fuzz.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using fuzz::Input;
using fuzz::must;

namespace {

// Pads a message, so that the next frame may follow.
void append(Frame& message, ByteView frame) {
    message.resize(core::padded(message.size()));
    message.insert(message.end(), frame.begin(), frame.end());
}

void set_length(Frame& frame) {
    if (frame.size() < sizeof(core::FrameHead)) return;
    base::store(frame.data() + 4, static_cast<std::uint32_t>(frame.size()));
}

Frame spoiled(Frame frame, Input& input) {
    for (std::uint8_t changes = input.byte() % 4; changes > 0; --changes) {
        const std::size_t at = input.below(frame.size());
        const ByteView bytes = input.take(1 + input.byte() % 8);
        for (std::size_t i = 0; i < bytes.size() && at + i < frame.size(); ++i) {
            frame[at + i] = bytes[i];
        }
    }
    return frame;
}

Frame next_frame(const Victim& victim, const Frames& good, Input& input) {
    switch (input.byte() % 6) {
        case 0: {  // A frame of any kind, with a body from the input.
            Frame frame(sizeof(core::FrameHead));
            frame[0] = static_cast<std::byte>(input.byte() % 12);
            const ByteView body = input.take(input.byte());
            frame.insert(frame.end(), body.begin(), body.end());
            set_length(frame);
            return frame;
        }
        case 1: {  // A request for an existing method, with a body from the input.
            Frame frame = good[input.below(6)];
            frame.resize(sizeof(rpc::RequestHeader));
            const ByteView body = input.take(input.byte());
            frame.insert(frame.end(), body.begin(), body.end());
            frame[8] = static_cast<std::byte>(input.byte() % 4);  // Its number.
            set_length(frame);
            return frame;
        }
        case 2: {  // A grant request, nearly valid.
            RegionRef ref = victim.region.ref();
            ref.offset = input.below(1 << 16);
            ref.length = input.below(1 << 16);
            ref.access = static_cast<Access>(input.byte() % 4);
            if (input.byte() % 4 == 0) ref.key ^= input.value<std::uint64_t>();
            if (input.byte() % 4 == 0) ref.generation = input.value<std::uint32_t>();
            if (input.byte() % 4 == 0) ref.region = input.value<std::uint32_t>();
            if (input.byte() % 4 == 0) ref.offset = input.value<std::uint64_t>();
            return victim.open(ref);
        }
        case 3: {  // A collective.
            coll::ForwardHeader header = victim.forward_header();
            std::vector<RankSet::Range> ranges;
            ByteView named;
            switch (input.byte() % 15) {
                case 0: header.root = input.value<std::uint32_t>(); break;
                case 1: header.first = input.value<std::uint32_t>(); break;
                case 2: header.last = input.value<std::uint32_t>(); break;
                case 3: header.tree = input.value<coll::Tree>(); break;
                case 4: header.key = input.value<coll::CollectiveKey>(); break;
                case 5:
                    header.unacknowledged = input.value<std::uint16_t>();
                    header.client = input.value<std::uint16_t>();
                    break;
                case 6: header.kind = input.value<coll::RequestKind>(); break;
                case 7: header.flags = input.byte(); break;
                case 8: header.operation = input.byte(), header.number = input.byte() % 4; break;
                case 9: header.progress_interval_us = input.value<std::uint32_t>(); break;
                case 10: header.view = input.value<std::uint64_t>(); break;
                case 11: ranges.push_back({input.byte(), input.byte()}); break;
                case 12: named = input.take(input.byte() % 64); break;
                case 13: header.parent = input.value<std::uint32_t>(); break;
                default: header.method = input.value<std::uint64_t>(); break;
            }
            return victim.forward({header, ranges, named, input.take(input.byte() % 64)});
        }
        default: return spoiled(good[input.below(good.size())], input);
    }
}

// ---- grants, by the words of docs/wire-format.md
// -------------------------------------------------

bool may_have(const RegionRef& region, ByteView bytes) {
    const auto ref = base::load<RegionRef>(bytes.data());
    __extension__ using Wide = unsigned __int128;
    return ref.version == 1 && ref.reserved16 == 0 && ref.reserved32 == 0 &&
           ref.region == region.region && ref.generation == region.generation &&
           ref.key == region.key && ref.owner == region.owner &&
           static_cast<unsigned>(ref.access) <= 3 && allows(region.access, ref.access) &&
           Wide{ref.offset} + ref.length <= region.length;
}

// A peer, and the grants that it may get.
struct Asker {
    explicit Asker(SimRig& rig) : raw(rig) {}

    void send(const Victim& victim, ByteView message) {
        if (!raw.peer || raw.lost) {
            raw.connect("server");
            due.clear();
        }
        core::for_each_frame(message, [&](const core::FrameHead& head, ByteView frame) {
            if (head.kind == core::FrameKind::bulk_open &&
                frame.size() == sizeof(bulk::OpenFrame)) {
                due.push_back(may_have(victim.region.ref(), frame.subspan(16)));
            }
            return true;
        });
        raw.send(message);
    }

    // Checks each reply in order, until the connection is lost.
    void take() {
        for (const Frame& answer : raw.take()) {
            if (head_of(answer).kind != core::FrameKind::bulk_grant) continue;
            must(!due.empty(), "only requested memory is granted");
            const bool granted = head_of(answer).aux == 0;
            must(granted == due.front(), "exactly the allowed memory is granted");
            if (granted)
                must(answer.size() == sizeof(bulk::GrantFrame), "a grant frame has its fixed size");
            due.pop_front();
        }
        if (raw.lost) due.clear();
    }

    RawPeer raw;
    std::deque<bool> due;
};

void storm(Victim& victim, Input& input) {
    const Frames good = victim.good_frames();
    Asker one(victim.rig), other(victim.rig);
    for (int steps = 0; steps < 64 && !input.empty(); ++steps) {
        const std::uint8_t choice = input.byte();
        Asker& asker = choice % 2 == 0 ? one : other;
        Frame message = next_frame(victim, good, input);
        for (int more = choice / 2 % 4; more > 1; --more) {
            append(message, next_frame(victim, good, input));
        }
        if (choice & 0x10) message.resize(1 + input.below(message.size()));
        asker.send(victim, message);
        asker.raw.wait(choice & 0x20 ? 20ms : 50us);
        asker.take();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const google::protobuf::LogSilencer no_complaints;  // For text that is not UTF-8.
    Input input(data, size);
    Victim victim(input.byte() % 2 == 0);
    // Read-only for peers, so that no peer changes it.
    const Buffer vault = victim.server.allocate(4096).value();
    std::memset(vault.bytes().data(), 0x77, vault.size());
    Region region = victim.server.expose(vault, {.access = Access::read}).value();
    // An honest call that lasts as long as the attack.
    int ended = 0;
    const OperationId held =
        weft::call(victim.channel, echo::v1::EchoMethods::Held, request_of("mine"),
                   CallOptions{.timeout = no_timeout},
                   [&](const Status&, const echo::v1::EchoReply&) { ++ended; });
    must(victim.rig.run_until([&] { return victim.service.waiting == 1; }), "a call is held");
    storm(victim, input);
    victim.check_serves();
    must(ended == 0, "a client can't end another client's call");
    victim.channel.cancel_call(held);
    victim.rig.run_for(5s);
    must(ended == 1, "a call completes once");
    must(std::ranges::all_of(vault.bytes(), [](std::byte b) { return b == std::byte{0x77}; }),
         "read-only memory is not written");
    const api::Node& node = node_of(victim.server);
    must(node.server.executing() == 0, "no call is left in a handler");
    must(node.client.in_flight() == 0, "no call of the server's own is left");
    must(node.bulk.transfers.in_flight() == 0, "no transfer is left");
    must(node.bulk.regions->open_regions() == 2, "no region is opened or closed by others");
    must(victim.rig.world->late_accesses() == 0, "no memory was accessed late");
    region.close();
    victim.rig.run_for(1s);
    must(node.bulk.regions->open_regions() == 1, "memory is returned");
    return 0;
}
