// What members of a group send each other.
#include "coll/wire.h"
#include "fuzz/fuzz.h"

using namespace weft;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const ByteView bytes = input.rest();
    if (which % 2 == 0) {
        const std::uint32_t members = 1 + which;
        if (const auto view = coll::decode_forward(bytes, members)) {
            must(view->header.first < view->header.last && view->header.last <= members,
                 "a subtree lies in its group");
        }
        return 0;
    }
    auto outcomes = coll::decode_outcomes(bytes);
    if (!outcomes) return 0;
    must(outcomes->size() <= bytes.size() / 16, "an outcome takes 16 bytes and more");
    const std::size_t count = outcomes->size();
    const std::vector<std::byte> again =
        coll::encode_outcomes(*std::move(outcomes), bytes.size() + 1024);
    const auto twice = coll::decode_outcomes(again);
    must(twice.ok() && twice->size() == count, "outcomes survive the way there and back");
    return 0;
}
