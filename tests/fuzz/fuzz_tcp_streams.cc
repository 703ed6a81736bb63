// The streams of tcp: however the network cuts them, the same comes out, and nothing is written
// outside of what was offered.
#include <array>

#include "fuzz/fuzz.h"
#include "na/tcp/bulk_stream.h"
#include "na/tcp/inbox.h"

using namespace weft;
using namespace weft::na::tcp;
using fuzz::Input;
using fuzz::must;

namespace {

struct Talk {
    std::vector<std::byte> out;
    bool broken = false;
};

// `cuts` says how much each read brings; none: all that there is room for.
Talk talk_lane(ByteView stream, Input cuts, bool cut) {
    static Slab slab;
    Inbox inbox;
    Talk result;
    while (!stream.empty() && !result.broken) {
        slab.reset();
        iovec pieces[2];
        const bool one = cut && cuts.byte() % 2 != 0;
        const std::size_t used = inbox.room(slab, one, pieces);
        std::size_t most = cut ? 1 + cuts.below(2000) : stream.size();
        std::size_t read = 0;
        for (std::size_t i = 0; i < used; ++i) {
            const std::size_t here =
                std::min({pieces[i].iov_len, most - read, stream.size() - read});
            std::memcpy(pieces[i].iov_base, stream.data() + read, here);
            read += here;
        }
        stream = stream.subspan(read);
        const Inbox::Taken taken = inbox.took(read, slab);
        result.broken = taken.broken;
        must(taken.count <= (one ? 1u : 2u), "as many messages as there is room for");
        for (std::size_t i = 0; i < taken.count; ++i) {
            const ByteView message = taken.messages[i];
            must(message.size() >= sizeof(StreamHead), "a message has a head");
            result.out.insert(result.out.end(), message.begin(), message.end());
            result.out.resize(padded(result.out.size()));
        }
    }
    inbox.clear(slab);
    return result;
}

// Heads and the ends of bodies, as they come.
std::vector<std::uint64_t> bulk_lane(ByteView stream, Input cuts, bool cut) {
    std::vector<std::uint64_t> events;
    std::vector<std::byte> body;
    std::array<std::byte, 256> waste;
    BulkReader reader;
    while (!stream.empty()) {
        iovec pieces[2];
        const std::size_t used = reader.room(cut ? 1 + cuts.below(5000) : 1 << 20, waste, pieces);
        const std::size_t most = cut ? 1 + cuts.below(300) : stream.size();
        std::size_t read = 0;
        for (std::size_t i = 0; i < used; ++i) {
            const std::size_t here =
                std::min({pieces[i].iov_len, most - read, stream.size() - read});
            std::memcpy(pieces[i].iov_base, stream.data() + read, here);
            read += here;
        }
        stream = stream.subspan(read);
        reader.took(read);
        for (BulkReader::Step step; (step = reader.step()) != BulkReader::Step::more;) {
            const BulkHead& head = reader.head();
            events.push_back(head.transfer * 2 + (step == BulkReader::Step::head));
            if (step != BulkReader::Step::head) continue;
            if (head.op != BulkOp::put && head.op != BulkOp::data) continue;
            if (head.length == 0 || head.length > (1u << 20)) return events;  // Judged away.
            body.assign(head.length, std::byte{0});
            reader.expect(head.region % 3 == 0 ? nullptr : body.data());
        }
    }
    return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    const bool talks = input.byte() % 2 == 0;
    const Input cuts(reinterpret_cast<const std::uint8_t*>(input.take(64).data()),
                     std::min<std::size_t>(64, size > 0 ? size - 1 : 0));
    const ByteView stream = input.rest();
    if (talks) {
        const Talk whole = talk_lane(stream, cuts, false), pieces = talk_lane(stream, cuts, true);
        must(whole.broken == pieces.broken || !whole.broken, "a cut mends nothing");
        if (!whole.broken) must(whole.out == pieces.out, "cuts change nothing");
    } else {
        must(bulk_lane(stream, cuts, false) == bulk_lane(stream, cuts, true),
             "cuts change nothing");
    }
    return 0;
}
