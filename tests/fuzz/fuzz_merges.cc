// Merge functions on any two messages that members may send: each returns a message, or a status
// and changes nothing. The memory that a message takes, and keeps when it is reused, is measured
// before it is parsed.
#include <google/protobuf/stubs/logging.h>

#include "fuzz/fuzz.h"
#include "merge.weft.h"

using namespace weft;
using fuzz::must;

static void check_measured(ByteView bytes) {
    merge::v1::All all;
    (void)detail::parse(all, bytes);
    const auto& layout = detail::layout_of<merge::v1::All>();
    const std::size_t measured = detail::measure(layout, bytes, detail::too_large);
    must(all.SpaceUsedLong() <= sizeof all + measured, "no message takes more than was measured");
    must(measured == 0 || detail::measure(layout, bytes, measured - 1) == detail::too_large,
         "a bound is kept to the byte");
}

// A message that is cleared and reused keeps no more than the measured memory of its uses.
static void check_reused(ByteView first, ByteView second) {
    merge::v1::All all;
    std::size_t measured = sizeof all;
    for (const ByteView bytes : {first, second}) {
        (void)detail::parse(all, bytes);
        measured += detail::measure(detail::layout_of<merge::v1::All>(), bytes, detail::too_large);
        all.Clear();
    }
    must(all.SpaceUsedLong() <= measured, "a message keeps no more than its uses were measured to");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const google::protobuf::LogSilencer no_complaints;  // For text that is not UTF-8.
    fuzz::Input input(data, size);
    const std::size_t cut = input.byte();
    const ByteView both = input.rest();
    const ByteView first = both.first(std::min(cut, both.size()));
    const ByteView second = both.subspan(first.size());
    check_measured(first);
    check_measured(second);
    check_reused(first, second);
    std::vector<std::byte> merged(first.begin(), first.end());
    const Status status = merge::v1::MergingMethods::Everything.merge(merged, second);
    if (!status.ok()) {
        must(std::ranges::equal(merged, first), "a failure changes nothing");
        must(!status.text().empty(), "a failure has a text");
        return 0;
    }
    merge::v1::All all;
    must(all.ParseFromArray(merged.data(), static_cast<int>(merged.size())),
         "a success yields a message");
    return 0;
}
