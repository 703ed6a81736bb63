// Messages of member collectives.
#include "coll/member_collective_wire.h"
#include "fuzz/fuzz.h"

using namespace weft;
using fuzz::must;

static void check_header(ByteView bytes) {
    ByteView rest;
    const auto header = coll::decode_member_collective_header(bytes, &rest);
    if (!header) return;
    must(header->name.size() <= coll::MemberCollectiveHeader::name_bytes_max, "a name");
    std::vector<std::byte> again = coll::encode(*header);
    again.insert(again.end(), rest.begin(), rest.end());
    must(std::ranges::equal(again, bytes), "a member collective is encoded as it was decoded");
}

static bool is_same(const RankOutcome& a, const RankOutcome& b) {
    return a.rank == b.rank && a.status.code() == b.status.code() &&
           a.status.effect() == b.status.effect() && a.reply == b.reply &&
           a.incarnation == b.incarnation;
}

static void check_outcome(ByteView bytes, std::size_t room) {
    static const GroupView view =
        GroupView::make("g", 1, {{0, {"tcp://127.0.0.1:1"}, 7}, {9, {"tcp://127.0.0.1:2"}}})
            .value();
    const auto outcome = coll::decode_outcome(bytes, view);
    if (!outcome) return;
    must(std::ranges::is_sorted(outcome->ranks, {}, &RankOutcome::rank), "ranks in order");
    // No encoder produces this.
    for (std::size_t i = 1; i < outcome->ranks.size(); ++i) {
        if (outcome->ranks[i - 1].rank == outcome->ranks[i].rank) return;
    }
    if (!outcome->ranks.empty() && outcome->ranks.back().rank > GroupView::rank_max) return;
    const auto again = coll::encode_outcome(*outcome, true, ~std::size_t{0});
    must(again.has_value(), "there is room");
    const auto twice = coll::decode_outcome(*again, view);
    must(twice.ok() && twice->epoch == outcome->epoch && twice->merged == outcome->merged &&
             twice->status.code() == outcome->status.code() &&
             std::ranges::equal(outcome->ranks, twice->ranks, is_same),
         "outcomes survive encoding and decoding");
    const auto less = coll::encode_outcome(*outcome, true, room);
    must(!less || less->size() <= room, "an outcome that does not fit is not encoded");
}

static void check_probe_reply(ByteView bytes) {
    const auto probe_reply = coll::decode_probe_reply(bytes);
    if (probe_reply)
        must(std::ranges::equal(coll::encode(*probe_reply), bytes),
             "a probe reply is encoded as it was decoded");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const auto room = input.value<std::uint16_t>();
    switch (which % 3) {
        case 0: check_header(fuzz::exact(input.rest())); break;
        case 1: check_outcome(fuzz::exact(input.rest()), room); break;
        case 2: check_probe_reply(fuzz::exact(input.rest())); break;
    }
    return 0;
}
