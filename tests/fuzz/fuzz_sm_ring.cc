// A ring with a peer that writes arbitrary values at any time, also between two reads: its reader,
// and its writer.
#include <memory>

#include "fuzz/fuzz.h"
#include "na/sm/segment.h"

using namespace weft;
using namespace weft::na::sm;
using fuzz::must;

namespace {

// Two rings as two processes have them. Only corrupted parts are cleaned for the next input.
class Shared {
  public:
    Shared() : segment_(Segment::make(&file_).value()) {
        // The writer does not expose its position: an empty claim yields it.
        data_ = segment_.writer(Side::connector).claim(0) - header_bytes;
    }
    RingReader reader() { return segment_.reader(Side::acceptor); }
    RingWriter writer() { return segment_.writer(Side::connector); }
    RingWords& words() { return segment_.writer(Side::connector).words(); }
    std::byte* data() { return data_; }

    void clean() {
        std::memset(static_cast<void*>(&words()), 0, sizeof(RingWords));
        std::memset(data_, 0, spoiled_);
        spoiled_ = 0;
    }
    void spoil(std::size_t at, ByteView bytes) {
        if (bytes.empty()) return;
        std::memcpy(data_ + at, bytes.data(), bytes.size());
        spoiled_ = std::max(spoiled_, std::min(at + bytes.size(), ring_bytes));
        if (at + bytes.size() > ring_bytes) spoiled_ = ring_bytes;
    }
    void spoiled_all() { spoiled_ = ring_bytes; }

  private:
    base::UniqueFd file_;
    Segment segment_;
    std::byte* data_ = nullptr;
    std::size_t spoiled_ = ring_bytes;
};

// A write of the other process to any shared word or byte.
void spoil(Shared& shared, fuzz::Input& input) {
    RingWords& words = shared.words();
    switch (input.byte() % 8) {
        case 0: shared.spoil(input.below(ring_bytes / 16) * 16, input.take(input.byte())); break;
        case 1: words.tail.store(words.tail.load() + input.below(4096)); break;
        case 2: words.tail.store(input.value<std::uint64_t>()); break;
        case 3: words.inline_slot.store(input.value<std::uint64_t>()); break;
        case 4: words.taken.store(input.value<std::uint64_t>()); break;
        case 5: words.head.store(input.value<std::uint64_t>()); break;
        case 6: {  // A valid record at the tail.
            const std::uint64_t tail = words.tail.load();
            const std::uint64_t bytes = input.below(ring_bytes);
            const std::uint64_t header = bytes | std::uint64_t{message_kind} << 32;
            shared.spoil(tail % ring_bytes / 16 * 16,
                         {reinterpret_cast<const std::byte*>(&header), sizeof header});
            words.tail.store(tail + (input.byte() % 4 == 0 ? 16 : record_bytes(bytes)));
            break;
        }
        default: {  // A valid inline message.
            const std::uint64_t tail = words.tail.load();
            words.inline_slot.store(tail << 8 | input.byte());
            words.tail.store(tail + record_unit);
        }
    }
}

// Reads records until the reader detects that the writer broke the ring.
void read_all(Shared& shared, fuzz::Input& input) {
    RingReader reader = shared.reader();
    std::uint64_t before = 0;
    for (int steps = 0; steps < 200 && !input.empty(); ++steps) {
        spoil(shared, input);
        std::size_t bytes = 0;
        std::uint64_t acknowledged = 0;
        std::byte inline_message[inline_bytes_max];
        if (reader.take_single_inline(reader.published(), inline_message, &bytes, &acknowledged)) {
            must(bytes <= inline_bytes_max, "an inline message is short");
            must(reader.taken() == before + record_unit, "an inline message takes one unit");
            before = reader.taken();
            continue;
        }
        if (!reader.has_records()) continue;
        reader.refresh();
        const std::uint64_t seen = reader.published();
        do {
            if (input.byte() % 2 == 0) spoil(shared, input);
            // In memory of exactly that size: a sanitizer detects any access beyond it.
            const std::size_t room =
                input.byte() % 4 == 0 ? input.below(message_bytes_max) : message_bytes_max;
            const std::unique_ptr<std::byte[]> into(new std::byte[room]);
            const auto took = reader.take({into.get(), room}, &bytes);
            if (took == RingReader::Take::broken) return;  // Ends the connection.
            if (took == RingReader::Take::no_room) break;
            must(bytes <= message_bytes_max && bytes <= room, "a message fits its buffer");
            must(reader.taken() > before && reader.taken() - before <= ring_bytes &&
                     reader.taken() % record_unit == 0,
                 "the position advances by whole records");
            before = reader.taken();
            (void)reader.free();
        } while (reader.has_more());
        (void)seen;
    }
}

// Writes until the writer detects that the reader broke the ring; its claims stay its own in any
// case.
void write_all(Shared& shared, fuzz::Input& input) {
    RingWriter writer = shared.writer();
    std::uint64_t written = 0, taken = 0;
    for (int steps = 0; steps < 200 && !input.empty(); ++steps) {
        spoil(shared, input);
        const std::size_t bytes = input.below(message_bytes_max + 1);
        std::byte* room = writer.claim_inline(bytes);
        if (room) {
            must(bytes <= inline_bytes_max, "an inline message is short");
            std::memset(room, 0x5a, bytes);
            writer.send_inline(bytes, 0);
            written += record_unit;
        } else {
            room = writer.claim(bytes);
            if (!room && writer.is_broken()) return;
            if (!room) continue;
            must(room >= shared.data() && room + bytes <= shared.data() + 2 * ring_bytes,
                 "a claim lies in the ring");
            std::memset(room, 0x5a, bytes);
            shared.spoiled_all();
            writer.commit(bytes);
            writer.publish(0);
            written += record_bytes(bytes);
        }
        const auto told = input.value<std::uint32_t>();
        if (writer.acknowledge(told)) {
            must(told <= written, "only written bytes are acknowledged");
            taken = std::max<std::uint64_t>(taken, told);
        } else {
            must(told > written || told % record_unit != 0, "a valid acknowledgement is accepted");
            return;
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Shared shared;
    fuzz::Input input(data, size);
    shared.clean();
    if (input.byte() % 2 == 0) read_all(shared, input);
    else write_all(shared, input);
    return 0;
}
