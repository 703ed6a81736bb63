// What members of a group send each other.
#include "coll/gathering.h"
#include "coll/wire.h"
#include "fuzz/fuzz.h"

using namespace weft;
using fuzz::must;

static bool is_same(const RankOutcome& a, const RankOutcome& b) {
    return a.rank == b.rank && a.status.code() == b.status.code() &&
           a.status.effect() == b.status.effect() && a.status.stage() == b.status.stage() &&
           a.status.text().substr(0, 256) == b.status.text() &&
           a.status.peer().substr(0, 256) == b.status.peer() && a.reply == b.reply;
}

static void check_forward(ByteView bytes, std::uint32_t members) {
    const auto view = coll::decode_forward(bytes, members);
    if (!view) return;
    const coll::ForwardHeader& header = view->header;
    must(header.first < header.last && header.last <= members, "a subtree lies in its group");
    must(header.root < members, "the root is a member");
    must(header.tree.is_possible({header.first + 1, header.last}), "tree");
    must(header.method != coll::forward_method.hash, "no collective of collectives");
    std::vector<std::byte> again(coll::forward_bytes(view->body.size()));
    coll::encode_forward(header, view->body, again);
    must(std::ranges::equal(again, bytes), "a collective is written as it came");
}

static void check_outcomes(ByteView bytes, std::size_t room) {
    const auto outcomes = coll::decode_outcomes(bytes);
    if (!outcomes) return;
    must(outcomes->size() <= bytes.size() / 16, "an outcome takes 16 bytes and more");
    const auto again = coll::encode_outcomes(*outcomes, ~std::size_t{0});
    must(again.size() <= bytes.size(), "outcomes do not grow");
    const auto twice = coll::decode_outcomes(again);
    must(twice.ok() && std::ranges::equal(*outcomes, *twice, is_same),
         "outcomes survive the way there and back");
    // Into less room: no rank is lost, and a success stays one or says what was lost.
    const auto less = coll::decode_outcomes(coll::encode_outcomes(*outcomes, room));
    must(less.ok() && less->size() == outcomes->size(), "no rank is lost for want of room");
    for (std::size_t i = 0; i < outcomes->size(); ++i) {
        const RankOutcome& before = (*outcomes)[i];
        const RankOutcome& after = (*less)[i];
        must(before.rank == after.rank, "ranks keep their order");
        must(after.reply == before.reply || after.status.code() == Code::resource_exhausted,
             "a reply that did not fit says so");
    }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const auto room = input.value<std::uint16_t>();
    const std::vector<std::byte> bytes = fuzz::exact(input.rest());
    if (which % 2 == 0) check_forward(bytes, 1 + which);
    else check_outcomes(bytes, room);
    return 0;
}
