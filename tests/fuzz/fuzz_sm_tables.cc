// A peer's table of regions, which the peer may write at any time, and the files that it passes:
// accepted ranges lie inside its arena, and mapped memory can't be taken away.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "na/sm/region_table.h"
#include "na/sm/segment.h"

using namespace weft;
using namespace weft::na;
using namespace weft::na::sm;
using fuzz::must;

namespace {

// A table of the peer, from both sides.
struct Table {
    base::UniqueFd file = make_memory_file("fuzz-regions", sizeof(SharedRegionTable)).value();
    Mapping mapping = map_file(file.get(), sizeof(SharedRegionTable), Writable::yes).value();
    RegionView view;
    Table() {
        must(seal(file, FutureWrite::allowed).ok(), "sealed");
        view = RegionView::attach(file.get()).value();
    }
    SharedRegionTable& page() { return *reinterpret_cast<SharedRegionTable*>(mapping.data()); }
};

// Usually the good value, so that the later checks are reached.
template <class T>
T near(fuzz::Input& input, T good) {
    switch (input.byte() % 4) {
        case 0: return input.value<T>();
        case 1: return input.byte() % 2 == 0 ? good + 1 : good - 1;
        default: return good;
    }
}

void check_judge(fuzz::Input& input) {
    static Table table;
    AccessRequest request;
    request.region = input.byte() % 8 == 0 ? input.value<std::uint32_t>() : input.byte() % 4;
    request.generation = input.value<std::uint32_t>();
    request.key = input.value<std::uint64_t>();
    request.offset = input.value<std::uint64_t>();
    request.bytes = 1 + input.value<std::uint32_t>() % (1 << 20);
    request.access = input.byte() % 2 == 0 ? Access::read : Access::write;
    const std::uint64_t arena_bytes =
        4096 + input.value<std::uint64_t>() % (std::uint64_t{1} << 40);

    RegionEntry& entry = table.page().entries[request.region % regions_max];
    const std::uint64_t state =
        std::uint64_t{near(input, request.generation)} << 1 | (input.byte() % 8 == 0 ? 0 : 1);
    const std::uint64_t key = near(input, request.key), offset = near(input, std::uint64_t{0});
    const std::uint64_t bytes = near(input, request.offset + request.bytes);
    const auto access = near(input, std::uint32_t{3});
    entry.state.store(state);
    entry.key.store(key);
    const bool is_private = input.byte() % 4 == 0;
    entry.at.store(offset);
    entry.is_private.store(is_private ? 1 : 0);
    entry.bytes.store(bytes);
    entry.access.store(access);

    const char* why = nullptr;
    const auto target = table.view.validate(request, arena_bytes, &why);
    __extension__ using Wide = unsigned __int128;
    const Wide end = is_private ? ~std::uint64_t{0} : arena_bytes;
    const bool good = request.region < regions_max &&
                      state == (std::uint64_t{request.generation} << 1 | 1) && key == request.key &&
                      allows(static_cast<Access>(access & 3), request.access) &&
                      Wide{request.offset} + request.bytes <= bytes && Wide{offset} + bytes <= end;
    must(target.has_value() == good, "the table alone decides access");
    must(good || why, "a refusal has its reason");
    if (target) {
        must(target->is_private == is_private, "private memory is told apart");
        must(target->at == offset + request.offset, "the address of an access");
        must(Wide{target->at} + request.bytes <= end, "an access lies in the peer's memory");
    }
    entry.state.store(0);
}

void check_files(fuzz::Input& input) {
    static constexpr std::size_t rings = 4096 + 2 * ring_bytes;
    const std::uint8_t choice = input.byte();
    std::size_t bytes = choice % 2 == 0 ? sizeof(SharedRegionTable) : rings;
    if (input.byte() % 4 == 0) bytes = input.value<std::uint32_t>() % (2 * rings);
    const base::UniqueFd file = make_memory_file("fuzz-file", bytes).value();
    const int seals = input.byte() & (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
    must(::fcntl(file.get(), F_ADD_SEALS, seals) == 0, "sealed");
    const bool fixed = (seals & F_SEAL_SHRINK) != 0 && (seals & F_SEAL_GROW) != 0;
    const auto table = RegionView::attach(file.get());
    must(table.ok() == (fixed && bytes == sizeof(SharedRegionTable)),
         "a table has one size, for ever");
    const auto segment = Segment::attach(file.get());
    must(segment.ok() == (fixed && bytes == rings), "rings have one size, for ever");
    for (const Status& status : {table.status(), segment.status()}) {
        must(status.ok() || status.code() == Code::data_loss, "a bad file is the peer's fault");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    if (input.byte() % 4 == 0) check_files(input);
    else check_judge(input);
    return 0;
}
