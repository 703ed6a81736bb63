#include "na/sm/segment.h"

#include <sys/mman.h>

#include "base/assert.h"

namespace weft::na::sm {

static constexpr std::size_t words_bytes = 4096;
static constexpr std::size_t file_bytes = words_bytes + 2 * ring_bytes;
static constexpr std::size_t mapped_bytes = words_bytes + 4 * ring_bytes;
static_assert(2 * sizeof(RingWords) <= words_bytes);

Result<Segment> Segment::make(base::UniqueFd* file) {
    Result<base::UniqueFd> made = make_memory_file("weft-sm-rings", file_bytes);
    if (!made) return std::move(made).status();
    if (Status status = seal(*made, FutureWrite::allowed); !status.ok()) return status;
    Result<Segment> segment = map(made->get());
    if (segment) *file = std::move(*made);
    return segment;
}

Result<Segment> Segment::attach(int file) {
    Result<std::size_t> bytes = validate_memory_file(file, "ring file", file_bytes, file_bytes);
    if (!bytes) return std::move(bytes).status();
    return map(file);
}

// Words, ring 0, ring 0 again, ring 1, ring 1 again.
Result<Segment> Segment::map(int file) {
    void* at = ::mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (at == MAP_FAILED) {
        return fail(Code::resource_exhausted, errno_text("reserving addresses for rings"));
    }
    Mapping mapping(static_cast<std::byte*>(at), mapped_bytes);
    struct Piece {
        std::size_t at, bytes, offset;
    };
    const Piece pieces[] = {
        {0, words_bytes + ring_bytes, 0},
        {words_bytes + ring_bytes, ring_bytes, words_bytes},
        {words_bytes + 2 * ring_bytes, ring_bytes, words_bytes + ring_bytes},
        {words_bytes + 3 * ring_bytes, ring_bytes, words_bytes + ring_bytes},
    };
    for (const Piece& piece : pieces) {
        if (::mmap(mapping.data() + piece.at, piece.bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(piece.offset)) == MAP_FAILED) {
            return fail(Code::resource_exhausted, errno_text("mapping rings"));
        }
    }
    return Segment(std::move(mapping));
}

RingWords& Segment::words(std::size_t ring) const {
    WEFT_DCHECK(ring < 2);
    return reinterpret_cast<RingWords*>(mapping_.data())[ring];
}

std::byte* Segment::data(std::size_t ring) const {
    WEFT_DCHECK(ring < 2);
    return mapping_.data() + words_bytes + ring * 2 * ring_bytes;
}

}  // namespace weft::na::sm
