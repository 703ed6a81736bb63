// A reader of a ring whose writer writes what it likes, also between two of the reader's looks.
#include <memory>

#include "fuzz/fuzz.h"
#include "na/sm/ring.h"

using namespace weft;
using namespace weft::na::sm;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    static const auto words = std::make_unique<RingWords>();
    static const auto ring = std::make_unique<std::byte[]>(ring_bytes);
    static const auto into = std::make_unique<std::byte[]>(256 * 1024);
    std::memset(static_cast<void*>(words.get()), 0, sizeof *words);
    RingReader reader(words.get(), ring.get());
    const auto spoil = [&] {
        switch (input.byte() % 4) {
            case 0: {
                const std::size_t at = input.below(4096) * 16;
                const ByteView bytes = input.take(1 + input.byte() % 64);
                if (!bytes.empty()) std::memcpy(ring.get() + at, bytes.data(), bytes.size());
                break;
            }
            case 1: words->tail.store(words->tail.load() + input.below(4096)); break;
            case 2: {
                std::uint64_t any = 0;
                const ByteView bytes = input.take(sizeof any);
                if (!bytes.empty()) std::memcpy(&any, bytes.data(), bytes.size());
                words->tail.store(any);
                break;
            }
            default: {
                std::uint64_t any = 0;
                const ByteView bytes = input.take(sizeof any);
                if (!bytes.empty()) std::memcpy(&any, bytes.data(), bytes.size());
                words->letter.store(any);
            }
        }
    };
    for (int steps = 0; steps < 200 && !input.empty(); ++steps) {
        spoil();
        std::size_t bytes = 0;
        std::uint64_t acknowledged = 0;
        if (reader.take_lone_letter(reader.published(), into.get(), &bytes, &acknowledged)) {
            must(bytes <= letter_bytes_max, "a letter is short");
            continue;
        }
        if (!reader.has_records()) continue;
        reader.look();
        do {
            spoil();
            const auto took = reader.take(Bytes(into.get(), 256 * 1024), &bytes);
            if (took != RingReader::Take::message) return 0;  // It costs the connection.
            must(bytes <= message_bytes_max, "a message is bounded");
            (void)reader.free();
        } while (reader.has_seen_more());
    }
    return 0;
}
