// Messages between members of a group: requests, members by name, bodies per member, replies; and
// the outcomes computed from replies.
#include <algorithm>

#include "coll/outcomes.h"
#include "coll/wire.h"
#include "fuzz/fuzz.h"
#include "group/host.h"

using namespace weft;
using fuzz::must;

static bool is_same(const coll::Outcome& a, const coll::Outcome& b) {
    return a.position == b.position && a.status.code() == b.status.code() &&
           a.status.effect() == b.status.effect() && a.status.stage() == b.status.stage() &&
           a.status.text().substr(0, 256) == b.status.text() &&
           a.status.peer().substr(0, 256) == b.status.peer() && a.reply == b.reply;
}

static void check_forward(ByteView bytes) {
    const auto view = coll::decode_forward(bytes);
    if (!view) return;
    const coll::ForwardHeader& header = view->header;
    must(header.first < header.last && header.last <= GroupView::members_max, "a subtree");
    must(header.tree.is_possible({header.first + 1, header.last}), "tree");
    must(header.method != coll::forward_method.hash, "no collective of collectives");
    must(header.kind <= coll::RequestKind::clock, "request kind");
    must(header.acknowledged_below() <= header.key.sequence, "the acknowledged range");
    must(view->ranges.size() == header.ranges * sizeof(RankSet::Range) &&
             view->named.size() == header.named,
         "parts");
    const auto ranges = coll::decode_ranges(view->ranges);
    if (!ranges) return;
    std::uint64_t next = 0;
    for (const RankSet::Range& range : *ranges) {
        must(range.first >= next && range.first <= range.last, "ranges in order, with gaps");
        next = std::uint64_t{range.last} + 2;
    }
    const coll::ForwardParts parts{header, *ranges, view->named, view->body};
    std::vector<std::byte> again(parts.bytes());
    coll::encode_forward(parts, again);
    must(std::ranges::equal(again, bytes), "a collective is encoded as it was decoded");
}

static void check_members(ByteView bytes, std::uint32_t count) {
    const auto members = coll::decode_members(bytes, count);
    if (!members) return;
    must(members->size() == count, "as many members as positions");
    must(std::ranges::equal(members->bytes(0, count), bytes), "a list is forwarded unchanged");
    must(members->heap_bytes() <= bytes.size() + 4 * (std::size_t{count} + 1),
         "an index of 4 each");
    for (std::uint32_t i = 0; i < count; ++i) {
        const Member member = members->at(i);
        must(!member.uris.empty() && member.uris.size() <= GroupView::uris_max, "addresses");
        must(members->host_at(i) == group::host_of(member), "its host");
        must(std::ranges::equal(coll::encode_members({&member}), members->bytes(i, i + 1)),
             "members are encoded as they were decoded");
    }
}

// Decodes as many members as fit, and more than arrived.
static void check_many(ByteView one, std::uint32_t count) {
    if (!coll::decode_members(one, 1).ok()) return;
    std::vector<std::byte> bytes;
    const std::size_t most = std::min<std::size_t>(count, (1 << 20) / one.size());
    for (std::size_t i = 0; i < most; ++i) bytes.insert(bytes.end(), one.begin(), one.end());
    const auto members = coll::decode_members(fuzz::exact(bytes), count);
    must(members.ok() == (most == count), "the count equals the members that arrived");
    if (!members) return;
    for (const std::uint32_t at : {0u, count / 2, count - 1}) {
        must(std::ranges::equal(members->bytes(at, at + 1), one), "each member is at its position");
    }
}

static void check_pieces(ByteView bytes, std::uint32_t count, coll::Interval of) {
    if (!coll::piece_of(bytes, count, 0).ok()) return;
    std::size_t total = 0;
    for (std::uint32_t i = 0; i < count; ++i) total += coll::piece_of(bytes, count, i)->size() + 4;
    must(total == bytes.size(), "each byte belongs to a piece");
    std::vector<std::byte> cut;
    coll::append_pieces(cut, bytes, {0, count}, of);
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        const auto piece = coll::piece_of(cut, of.size(), at - of.first);
        must(piece.ok() && std::ranges::equal(*piece, *coll::piece_of(bytes, count, at)),
             "the bodies of a part are a part of the bodies");
    }
}

static void check_answer(ByteView bytes, std::size_t room) {
    const auto answer = coll::decode_subtree_reply(bytes);
    if (!answer) return;
    must(coll::bytes_of(*answer) <= bytes.size(), "a reply takes at most its encoded size");
    const auto again = coll::encode_subtree_reply(*answer, ~std::size_t{0});
    must(again.size() <= bytes.size(), "replies do not grow");
    const auto twice = coll::decode_subtree_reply(again);
    must(twice.ok() && twice->kind == answer->kind && twice->epoch == answer->epoch &&
             twice->clock == answer->clock && twice->cost == answer->cost &&
             twice->ok == answer->ok && twice->value == answer->value &&
             std::ranges::equal(answer->outcomes, twice->outcomes, is_same),
         "replies survive encoding and decoding");
    // A large interval takes no room until its value does not fit.
    std::uint64_t succeeded = 0;
    for (const coll::Interval& one : answer->ok) succeeded += one.size();
    if (succeeded > 1 << 12) return;
    // Into less room: no rank is lost, and a success stays a success or reports the lost reply.
    const auto less = coll::decode_subtree_reply(coll::encode_subtree_reply(*answer, room));
    must(less.ok(), "a shrunk reply can be decoded");
    std::uint64_t still = 0;
    for (const coll::Interval& one : less->ok) still += one.size();
    must(still + less->outcomes.size() == succeeded + answer->outcomes.size(), "no rank is lost");
    for (std::size_t i = 0; i < answer->outcomes.size(); ++i) {
        const coll::Outcome& before = answer->outcomes[i];
        const coll::Outcome& after = less->outcomes[i];
        must(before.position == after.position, "ranks keep their order");
        must(after.reply == before.reply || after.status.code() == Code::resource_exhausted,
             "a reply that did not fit is RESOURCE_EXHAUSTED");
    }
}

// Two replies about one subtree, from any source.
static void check_outcomes(ByteView first, ByteView second, const coll::Merge& merge,
                           coll::Interval of) {
    coll::Outcomes all(merge);
    for (const ByteView bytes : {first, second}) {
        auto answer = coll::decode_subtree_reply(bytes);
        if (answer) all.add(of, *std::move(answer));
    }
    for (const coll::Interval& one : all.known().intervals()) {
        must(one.first >= of.first && one.last <= of.last, "a reply covers only its own subtree");
    }
    all.add_missing(of, fail(Code::unavailable, "no reply"));
    all.finish();
    must(all.known_count() == of.size() && all.contains(of), "each rank is known once");
    must(all.ok_count() <= of.size(), "no more ranks succeeded than exist");
    const coll::SubtreeReply snapshot = all.snapshot(coll::SubtreeReply::Kind::complete);
    std::uint64_t succeeded = 0;
    for (const coll::Interval& one : snapshot.ok) succeeded += one.size();
    must(succeeded + snapshot.outcomes.size() == of.size(), "each rank is reported once");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const auto room = input.value<std::uint16_t>();
    switch (which % 5) {
        case 0: check_forward(fuzz::exact(input.rest())); break;
        case 1: check_answer(fuzz::exact(input.rest()), room); break;
        case 2: {
            const std::vector<std::byte> bytes = fuzz::exact(input.rest());
            check_members(bytes, room % 64);
            check_many(bytes, 1 + room);
            break;
        }
        case 3: {
            const std::uint32_t count = 1 + which / 8;
            const std::uint32_t first = room % count;
            check_pieces(fuzz::exact(input.rest()), count,
                         {first, first + 1 + (room >> 8) % (count - first)});
            break;
        }
        case 4: {
            coll::Merge merge;
            merge.reduction.operation = static_cast<Reduction::Operation>(room % 4);
            merge.reduction.ordered = room & 4;
            const std::uint32_t begin = room >> 8 & 7;
            const auto one = fuzz::exact(input.take(input.value<std::uint16_t>() % 512));
            check_outcomes(one, fuzz::exact(input.rest()), merge,
                           {begin, begin + 1 + (room >> 11 & 31)});
            break;
        }
    }
    return 0;
}
